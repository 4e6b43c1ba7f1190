//! Imports of dumps from other projects. All rows must arrive, whatever interrupts the import.

use crate::common::{Env, Rng};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

const ROWS: u64 = 60_000;

/// Returns rows of GHTorrent's `projects`: every tenth is in C, the others in Go, every hundredth is deleted.
fn projects() -> String {
    let mut text = String::new();
    for n in 1..=ROWS {
        let language = if n % 10 == 0 { "C" } else { "Go" };
        let deleted = u8::from(n % 100 == 1);
        writeln!(
            text,
            "{n},\"https://api.github.com/repos/o{}/r{n}\",{n},\"r{n}\",\"says \
            \\\"{n}\\\"\",\"{language}\",\"2013-01-01 00:00:00\",\\N,{deleted}",
            n % 90
        )
        .unwrap();
    }
    text
}

fn import(env: &Env, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&env.weir(&[&["--json", "import"], args].concat())).unwrap()
}

#[test]
fn killed_at_random_points_the_end_is_the_same() {
    kill_at_random_points(&Env::new(), &mut Rng(0x6d0b));
}

#[test]
fn killed_at_random_points_the_end_is_the_same_over_postgres() {
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    kill_at_random_points(&Env::over(&server.schema("import")), &mut Rng(0x6d0c));
}

fn kill_at_random_points(env: &Env, rng: &mut Rng) {
    let dump = env.path("projects.csv");
    std::fs::write(&dump, projects()).unwrap();
    let dump = dump.to_str().unwrap();
    let mut kills = 0;
    for _ in 0..20 {
        let mut child =
            env.weir_command(&["-q", "import", "ghtorrent", dump]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50 + rng.below(250)));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 0, "too fast to be killed");
    let last = import(env, &["ghtorrent", dump]);
    assert_eq!(
        (last["finished"].as_bool(), last["lines"].as_u64(), last["known"].as_u64()),
        (Some(true), Some(ROWS), Some(0)),
        "{last}"
    );
    assert_eq!(
        env.weir_json(&["status"])["counts"]["repositories"],
        ROWS - ROWS / 100,
        "after {kills} kills"
    );
}

#[test]
fn filters_dry_runs_standard_input_and_what_is_wrong() {
    let env = Env::new();
    let dump = env.path("projects.csv");
    std::fs::write(&dump, projects()).unwrap();
    let dump = dump.to_str().unwrap();
    let config = "[[forge]]\ntype = \"github\"\nurl = \"https://github.com\"\nlanguages = [\"c\"]\ninclude = \
        [\"o1*/*\"]\n";
    std::fs::write(env.pool().join("weir.toml"), config).unwrap();
    let said = import(&env, &["ghtorrent", "--dry-run", dump]);
    assert_eq!((said["rows"].as_u64(), said["added"].as_u64()), (Some(ROWS - ROWS / 100), Some(0)));
    assert_eq!(env.weir_json(&["ls"]).as_array().unwrap().len(), 0);
    let added = import(&env, &["ghtorrent", dump])["added"].as_u64().unwrap();
    let list = env.weir_json(&["ls"]);
    assert!(added > 0 && list.as_array().unwrap().len() as u64 == added);
    for r in list.as_array().unwrap() {
        let name = r["name"].as_str().unwrap();
        assert!(name.starts_with("github.com/o1") && name.ends_with('0'), "{name}");
        assert_eq!(r["url"], format!("https://{name}.git"));
    }
    // A second import of the same dump adds nothing. An hour of events from standard input adds repositories.
    assert_eq!(import(&env, &["ghtorrent", dump])["rows"], 0);
    assert_eq!(import(&env, &["ghtorrent", "--again", dump])["known"], added);
    std::fs::write(env.pool().join("weir.toml"), "").unwrap();
    let mut child = env
        .weir_command(&["--json", "import", "gharchive", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let events = br#"{"repo":{"id":5,"name":"x/new"}}
{"repo":{"id":6,"name":"x/../../etc"}}
{"repo":{"id":7,"name":"x/.git"}}
{
"#;
    child.stdin.take().unwrap().write_all(events).unwrap();
    let output = child.wait_with_output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((said["added"].as_u64(), said["bad"].as_u64()), (Some(1), Some(3)));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(["-:2", "-:3", "-:4"].iter().all(|line| told.contains(line)), "{told}");
    let missing = env.weir_fails(&["import", "ghtorrent", "/nowhere/projects.csv"]);
    assert!(missing.contains("/nowhere/projects.csv"), "{missing}");
    assert!(env.weir_fails(&["import", "ghtorrent", "--forge", "nobody", dump]).contains("nobody"));
}

#[test]
fn pushes_that_gharchive_tells_of_make_due_what_was_visited_before() {
    let env = Env::new();
    let times = rusqlite::Connection::open_in_memory().unwrap();
    let event = |kind: &str, id: u32, at: i64| {
        let rfc3339 = "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', ?1, 'unixepoch')";
        let at: String = times.query_row(rfc3339, [at], |row| row.get(0)).unwrap();
        let repo = json!({"id": id, "name": format!("x/r{id}")});
        json!({"type": kind, "repo": repo, "created_at": at}).to_string() + "\n"
    };
    let import_hour = |name: &str, events: &[String]| {
        std::fs::write(env.path(name), events.concat()).unwrap();
        import(&env, &["gharchive", env.path(name).to_str().unwrap()])
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let (day, week) = (86_400, 7 * 86_400);
    import_hour("first", &(1..6).map(|id| event("WatchEvent", id, now - week)).collect::<Vec<_>>());
    let catalog = rusqlite::Connection::open(env.pool().join("catalog.db")).unwrap();
    // Repository 5 is one that a listing has named.
    let visited = "UPDATE repositories SET next_due = ?1, last_attempt = ?2, last_success = ?2, seq = 1,
        seen_pass = CASE WHEN name LIKE '%r5' THEN 1 ELSE 0 END";
    assert_eq!(catalog.execute(visited, [now + week, now - day]).unwrap(), 5);
    let said = import_hour(
        "next",
        &[
            event("PushEvent", 1, now - 100),
            // An event that comes later in the same hour does not hide it.
            event("WatchEvent", 1, now - 50),
            event("WatchEvent", 2, now - 100),
            event("PushEvent", 3, now - 3 * day),
            event("DeleteEvent", 4, now - 100),
            event("PushEvent", 5, now - 100),
        ],
    );
    assert_eq!((said["hinted"].as_u64(), said["known"].as_u64()), (Some(3), Some(2)), "{said}");
    let sql = "SELECT name FROM repositories WHERE next_due < ?1 ORDER BY name";
    let mut due = catalog.prepare(sql).unwrap();
    let due: Vec<String> =
        due.query_map([now + day], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(due, ["github.com/x/r1", "github.com/x/r4", "github.com/x/r5"]);
}

#[test]
fn a_crawld_moves_over() {
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let url = server.schema("crawld");
    // The part of crawld's db/create_schema.sql that weir reads.
    server.sql(
        "SET search_path = crawld;
         CREATE TABLE repositories (id SERIAL PRIMARY KEY, name VARCHAR NOT NULL,
         primary_language VARCHAR NOT NULL,
             clone_url VARCHAR UNIQUE NOT NULL, clone_path VARCHAR UNIQUE NOT NULL, vcs VARCHAR NOT NULL);
         CREATE TABLE gh_repositories (id SERIAL PRIMARY KEY, repository_id INTEGER REFERENCES repositories,
         github_id INTEGER UNIQUE NOT NULL,
             full_name VARCHAR, description VARCHAR, homepage VARCHAR, fork BOOLEAN, default_branch VARCHAR,
             master_branch VARCHAR,
             html_url VARCHAR, forks_count INTEGER, open_issues_count INTEGER, stargazers_count INTEGER,
             subscribers_count INTEGER,
             watchers_count INTEGER, size_in_kb INTEGER, created_at TIMESTAMP, updated_at TIMESTAMP,
             pushed_at TIMESTAMP);
         INSERT INTO repositories SELECT n, 'r' || n, 'Go', 'https://github.com/o/r' || n || '.git',
         'go/o/r' || n, 'git'
             FROM generate_series(1, 25000) n;
         INSERT INTO gh_repositories SELECT n, n, 100000 + n, 'o/r' || n, 'a \"quoted\", \\slashed' || \
             chr(10) || 'text', NULL, n % 10 = 0, 'main',
             NULL, 'https://github.com/o/r' || n, 1, 2, n, 4, 5, 6, '2014-01-02 03:04:05', NULL,
             '2015-01-02 03:04:05'
             FROM generate_series(1, 25000) n",
    );
    let env = Env::new();
    let said = import(&env, &["crawld", "--dry-run", &url]);
    assert_eq!((said["rows"].as_u64(), said["bad"].as_u64()), (Some(25_000), Some(0)), "{said}");
    let said = import(&env, &["crawld", &url]);
    assert_eq!((said["added"].as_u64(), said["finished"].as_bool()), (Some(25_000), Some(true)), "{said}");
    assert_eq!(env.weir_json(&["show", "github.com/o/r7"])["url"], "https://github.com/o/r7.git");
    assert_eq!(import(&env, &["crawld", &url])["rows"], 0, "imported before");
    // An import that breaks off must not look like one that is complete.
    server.sql("ALTER TABLE crawld.gh_repositories ALTER pushed_at TYPE VARCHAR USING 'soon'");
    assert!(env.weir_fails(&["import", "crawld", "--again", &url]).contains("to_char"));
    assert!(env.weir_fails(&["import", "crawld", "config.json"]).contains("postgres://"));
    assert!(
        env.weir_fails(&["import", "crawld", "postgres://u:secret@127.0.0.1:1/x"]).contains("cannot connect")
    );
}
