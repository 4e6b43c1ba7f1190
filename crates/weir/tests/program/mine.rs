//! `weir mine`: archives of a pool and git directories as tables.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Env, Rng};

/// Returns the rows of each table of a dataset of JSON lines, sorted.
fn tables(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::new();
    for table in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let name = table.file_name().into_string().unwrap();
        if name == "_weir" {
            continue;
        }
        let files = fs::read_dir(table.path()).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|file| file.extension().is_some_and(|e| e == "jsonl"));
        let text: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        rows.sort();
        tables.insert(name, rows);
    }
    tables
}

/// Returns the tables without those that tell how often was mined.
fn content(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut tables = tables(folder);
    tables.remove("mining").unwrap();
    tables
}

fn json_args<'a>(folder: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["mine", "--to", "jsonl", "-o", folder.to_str().unwrap()], more].concat()
}

/// Returns a pool with a repository that was mirrored.
fn mirrored(env: &Env) -> std::path::PathBuf {
    let upstream = env.odd_repository("up.git");
    env.weir(&["init"]);
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    upstream
}

#[test]
fn later_runs_add_what_is_new_and_what_is_gone_stays() {
    let env = Env::new();
    let upstream = mirrored(&env);
    let (grown, whole) = (env.path("grown"), env.path("whole"));
    let said = env.weir(&json_args(&grown, &[]));
    assert!(said.contains("mined up: ") && said.ends_with("1 mined, 0 unchanged, 0 failed\n"), "{said}");
    let lost = env.commit_file(&upstream, "refs/heads/topic", "topic", b"1");
    env.add_commit(&upstream, 1);
    env.weir(&["mirror", "up"]);
    env.weir(&json_args(&grown, &[]));
    // A branch moves to another history, and a tag is gone.
    let forced = env.commit_file(&upstream, "refs/heads/topic", "topic", b"2");
    env.weir(&["mirror", "up"]);
    env.weir(&json_args(&grown, &["up"]));
    let said = env.weir(&json_args(&grown, &[]));
    assert_eq!(said, "0 mined, 1 unchanged, 0 failed\n");
    env.weir(&json_args(&whole, &[]));
    assert_eq!(content(&grown), content(&whole));
    let tables = tables(&grown);
    let ids: Vec<&String> =
        tables["revision"].iter().filter(|r| r.contains(&lost) || r.contains(&forced)).collect();
    assert_eq!(ids.len(), 2, "the commit that no branch has any more is still there");
    let moved = format!("\"old_target\":\"{lost}\",\"target\":\"{forced}\"");
    assert!(tables["ref_change"].iter().any(|row| row.contains(&moved)), "{:?}", tables["ref_change"]);
    assert_eq!(tables["origin_visit"].len(), 3);
    let snapshot =
        env.weir_json(&["visits", "up"])[0]["snapshot"].as_str().unwrap().replace("swh:1:snp:", "");
    assert!(tables["origin_visit"].iter().any(|row| row.contains(&snapshot)), "{snapshot}");
}

#[test]
fn an_archive_has_the_rows_of_its_upstream() {
    let env = Env::new();
    let upstream = mirrored(&env);
    let (of_pool, of_path) = (env.path("of_pool"), env.path("of_path"));
    env.weir(&json_args(&of_pool, &["up"]));
    env.weir(&json_args(&of_path, &["--what", "commits,numstat", upstream.to_str().unwrap()]));
    let of_origin = |folder: &Path, table: &str| -> Vec<String> {
        let rows = &tables(folder)[table];
        rows.iter().map(|row| row.split_once(',').unwrap().1.to_owned()).collect()
    };
    for table in ["revision", "revision_history", "release", "file_change"] {
        assert_eq!(of_origin(&of_pool, table), of_origin(&of_path, table), "{table}");
    }
    let printed = env.weir(&["mine", "--to", "jsonl", "--what", "changes", "up"]);
    let row: serde_json::Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!((row["table"].as_str(), row["origin"].as_str()), (Some("file_change"), Some("up")));
    assert_eq!(row["insertions"], serde_json::Value::Null);
    let archive = env.pool().join("store").join("up.tar");
    let of_tar = env.weir(&["mine", "--to", "jsonl", "--what", "changes", archive.to_str().unwrap()]);
    assert_eq!(of_tar.lines().count(), printed.lines().count());
}

/// Mirrors repositories of different sizes.
fn mirrored_six(env: &Env) {
    env.weir(&["init"]);
    for n in 0..6 {
        let upstream = env.odd_repository(&format!("up{n}.git"));
        (0..n).for_each(|k| env.add_commit(&upstream, k));
        env.weir(&["add", "--name", &format!("up{n}"), upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
}

/// Runs `weir` with `args` and kills it, again and again.
fn kill_at_random(env: &Env, args: &[&str], times: usize, within: Duration) {
    let mut random = Rng(7);
    for _ in 0..times {
        let mut child = env.weir_command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(within.as_micros() as u64)));
        let _ = child.kill();
        child.wait().unwrap();
    }
}

#[test]
fn a_run_that_is_killed_is_taken_up_again() {
    let env = Env::new();
    mirrored_six(&env);
    let (whole, killed) = (env.path("whole"), env.path("killed"));
    env.weir(&json_args(&whole, &[]));
    kill_at_random(&env, &json_args(&killed, &["-j2"]), 25, Duration::from_millis(40));
    env.weir(&json_args(&killed, &[]));
    assert_eq!(content(&killed), content(&whole));
    for table in ["revision", "file_change"] {
        let hidden = fs::read_dir(killed.join(table)).unwrap();
        assert_eq!(
            hidden.filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "tmp").count(),
            0
        );
    }
}

/// Returns what `program`, a shell for SQL, prints of the tables that do not tell how often was mined.
fn content_of_database(program: &str, place: &str) -> String {
    let tables = ["revision", "revision_history", "release", "file_change", "ref_change", "origin_visit"];
    let rows = |table| {
        let sql = format!("SELECT * FROM {table}");
        let told = weir_testing::command(program).args([place, &sql]).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        format!("{table}\n{}\n", lines.join("\n"))
    };
    tables.map(rows).concat()
}

#[test]
fn a_run_into_a_database_that_is_killed_is_taken_up_again() {
    let env = Env::new();
    mirrored_six(&env);
    if weir_testing::program("sqlite3").is_none() {
        return;
    }
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let file = |name| env.path(name).to_str().unwrap().to_owned();
    for (format, program, [whole, killed]) in [
        ("sqlite", "sqlite3", [file("whole"), file("killed")]),
        ("postgres", "psql", [server.schema("whole"), server.schema("killed")]),
    ] {
        let said = env.weir(&["mine", "--to", format, "-o", &whole]);
        assert!(said.ends_with("6 mined, 0 unchanged, 0 failed\n"), "{said}");
        let args = ["mine", "--to", format, "-o", &killed, "-j2"];
        kill_at_random(&env, &args, 25, Duration::from_millis(80));
        env.weir(&args);
        assert_eq!(content_of_database(program, &killed), content_of_database(program, &whole));
        assert_eq!(env.weir(&args), "0 mined, 6 unchanged, 0 failed\n");
    }
}

/// Returns the lines that are added and removed in each path, as `git log` of commits but merges says.
fn lines_of_git(env: &Env, repository: &Path, of: &str) -> BTreeMap<String, u64> {
    let args = ["log", of, "--no-merges", "--numstat", "--format=", "-M", "-z"];
    let said = env.git(repository, &args);
    let mut fields = said.split('\0').filter(|field| !field.is_empty());
    let mut sums = BTreeMap::new();
    while let Some(field) = fields.next() {
        let [added, removed, path] = field.splitn(3, '\t').collect::<Vec<_>>()[..] else {
            panic!("{field:?}")
        };
        // A renamed file has both of its names behind.
        let path = if path.is_empty() { fields.nth(1).unwrap() } else { path };
        if let (Ok(added), Ok(removed)) = (added.parse::<u64>(), removed.parse::<u64>()) {
            *sums.entry(path.to_owned()).or_default() += added + removed;
        }
    }
    sums
}

#[test]
fn the_queries_of_the_book_sum_what_git_does() {
    if weir_testing::program("sqlite3").is_none() {
        return;
    }
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.commit_file(&upstream, "refs/heads/apart", "apart", b"1\n2\n");
    let file = env.path("mined.sqlite");
    env.weir(&["mine", "--to", "sqlite", "-o", file.to_str().unwrap(), upstream.to_str().unwrap()]);
    let book = include_str!("../../../../docs/book/src/mining.md");
    let queries = book.match_indices("select path, sum(").map(|(at, _)| {
        let query = &book[at..at + book[at..].find(" limit 10").unwrap()];
        query.replace("'mined/", "").replace("/*.parquet'", "")
    });
    let mut sums = queries.map(|query| {
        let mut shell = weir_testing::command("sqlite3");
        let output = shell.args(["-json".as_ref(), file.as_os_str(), query.as_ref()]).output().unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect(&query);
        let sum = |row: &serde_json::Value| {
            Some((row["path"].as_str().unwrap().to_owned(), row["lines"].as_u64()?))
        };
        rows.iter().filter_map(sum).collect::<BTreeMap<_, _>>()
    });
    let (all, of_branch) = (lines_of_git(&env, &upstream, "--all"), lines_of_git(&env, &upstream, "HEAD"));
    assert!(all.len() > of_branch.len() && of_branch.len() > 10, "{all:?}");
    assert_eq!(sums.next(), Some(all));
    assert_eq!(sums.next(), Some(of_branch));
    assert_eq!(sums.next(), None);
}

#[test]
fn what_was_printed_is_not_printed_again() {
    let env = Env::new();
    let [a, bad, c] = ["a.git", "bad.git", "c.git"].map(|name| env.odd_repository(name));
    // It opens, and cannot be read: the folder of some loose objects is a file.
    let is_free = |folder: &std::path::PathBuf| !folder.exists();
    let folder_of_none = (0..=255).map(|n| bad.join(format!("objects/{n:02x}"))).find(is_free).unwrap();
    fs::write(&folder_of_none, b"").unwrap();
    let args =
        ["mine", "--to", "jsonl", "-j1"].into_iter().chain([&a, &bad, &c].map(|p| p.to_str().unwrap()));
    let output = env.weir_command(&args.collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(folder_of_none.to_str().unwrap()), "{error}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let of = |path: &Path| {
        let origin = format!("\"origin\":\"{}\"", path.display());
        printed.lines().filter(|row| row.contains(&origin)).collect::<Vec<_>>()
    };
    for path in [&a, &c] {
        let alone = env.weir(&["mine", "--to", "jsonl", path.to_str().unwrap()]);
        assert_eq!(of(path).len(), alone.lines().count(), "{printed}");
    }
    assert!(of(&bad).is_empty(), "{printed}");
}

#[test]
fn what_cannot_be_mined_is_told() {
    let env = Env::new();
    mirrored(&env);
    let other = env.odd_repository("other.git");
    env.weir(&["add", "--name", "other", other.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let folder = env.path("d");
    fs::write(env.pool().join("store/other.tar"), b"no archive").unwrap();
    let output = env.weir_command(&json_args(&folder, &["--json"])).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed: Vec<_> = told.as_array().unwrap().iter().filter(|r| r["result"] == "failed").collect();
    assert_eq!((failed.len(), failed[0]["name"].as_str()), (1, Some("other")));
    assert!(!tables(&folder)["revision"].is_empty());
    let error = env.weir_fails(&["mine", "-o", folder.to_str().unwrap()]);
    assert!(
        error.contains("other settings; give the same again, '--to jsonl --what commits,numstat,refs"),
        "{error}"
    );
    let error = env.weir_fails(&["mine", "-o", "-", "up"]);
    assert!(error.contains("only jsonl can be printed"), "{error}");
    let error = env.weir_fails(&["mine", "--to", "postgres", "up"]);
    assert!(error.contains("--output postgres://USER@HOST/DATABASE"), "{error}");
    let error =
        env.weir_fails(&["mine", "--to", "postgres", "-o", "postgres://weir:secret@127.0.0.1:1/db", "up"]);
    assert!(error.contains("127.0.0.1") && !error.contains("secret"), "{error}");
    let error = env.weir_fails(&["mine", other.to_str().unwrap()]);
    assert!(error.contains("--output"), "{error}");
    let error = env.weir_fails(&["mine", "no-such-repository"]);
    assert!(error.contains("no-such-repository"), "{error}");
    let mut command = env.weir_command(&["mine", "--to", "jsonl", "up"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cannot write the rows"), "{error}");
}

#[test]
fn query_answers_as_git_does() {
    let env = Env::new();
    let upstream = mirrored(&env);
    let by_author = "SELECT author_name, count(*) AS n FROM revision GROUP BY 1 ORDER BY n DESC, 1";
    let listed = env.git(&upstream, &["log", "--all", "--format=%aN"]);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    listed.lines().for_each(|name| *counts.entry(name).or_default() += 1);
    let answer = env.weir_json(&["query", by_author, "up"]);
    let found: BTreeMap<&str, u64> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row[0].as_str().unwrap(), row[1].as_u64().unwrap()))
        .collect();
    assert_eq!(found.values().sum::<u64>(), counts.values().sum::<u64>());
    // Names that are not UTF-8 are the same but for U+FFFD.
    assert_eq!(found.len(), counts.len(), "{found:?} {counts:?}");
    // A path is queried without a pool, as text and as comma-separated values.
    let path = upstream.to_str().unwrap();
    let count = env.git(&upstream, &["rev-list", "--all", "--count"]);
    let of_path = env.weir(&["query", "SELECT count(*) AS commits FROM revision", path]);
    let lines: Vec<&str> = of_path.lines().map(str::trim).collect();
    assert_eq!(lines, ["commits", count.as_str()]);
    let csv =
        env.weir(&["query", "--csv", "-n", "1", "SELECT path, status FROM file_change ORDER BY 1", path]);
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.starts_with("path,status\n"), "{csv}");
    for (args, words) in [
        (["SELECT nowhere FROM revision", "up"], "no such column: nowhere (at byte 7 of the statement)"),
        (["DROP TABLE revision", "up"], "a query only reads the tables"),
        (["SELECT 1", "no-such"], "no-such"),
    ] {
        let said = env.weir_fails(&[&["query"], &args[..]].concat());
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let said = env.weir_fails(&["query", "--timeout", "1s", endless, "up"]);
    assert!(said.contains("the query took longer than --timeout (1 s)"), "{said}");
}

#[test]
fn query_prints_rows_as_they_come() {
    let env = Env::new();
    let upstream = mirrored(&env);
    let numbers =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, x * 2 AS y FROM n";
    let first = env.weir(&["query", "--csv", "-n", "2", numbers, upstream.to_str().unwrap()]);
    assert_eq!(first, "x,y\n1,2\n2,4\n");
    assert_eq!(env.weir(&["query", "--csv", "-n", "0", numbers, "up"]), "x,y\n");
    // A full disk is no end of the answer.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = env.weir_command(&["query", "--csv", "-n", "9", numbers, "up"]);
    assert!(!child.stdout(full).status().unwrap().success());
    // Whoever has read enough ends it.
    let mut child =
        env.weir_command(&["query", "--csv", numbers, "up"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 12];
    std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut start).unwrap();
    assert_eq!(&start, b"x,y\n1,2\n2,4\n");
    let began = std::time::Instant::now();
    child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let said = env.weir_fails(&["--json", "query", "--csv", "SELECT 1", "up"]);
    assert!(said.contains("give either --csv or --json"), "{said}");
}

#[test]
fn nothing_is_made_only_to_be_forgotten() {
    let env = Env::new();
    mirrored(&env);
    for (name, more) in [("folder", &[][..]), ("file.db", &["--to", "sqlite"])] {
        let path = env.path(name);
        let said =
            env.weir_fails(&[&["mine", "--forget", "up", "-o", path.to_str().unwrap()], more].concat());
        assert!(said.contains(&format!("there are no tables at '{}'", path.display())), "{said}");
        assert!(!path.exists());
    }
}
