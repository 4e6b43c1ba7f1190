//! Random sequences of changes to a git directory, mined in between: afterwards each output holds what mining
//! it once holds, and besides only what is gone, nothing twice.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use common::databases::{Place, Row, json_rows};
use common::{CONTENT, git, mined, mined_into, source};
use weir_tables::{FileFormat, MineEvent, MineSettings, MineSource, TableKind};

/// A generator of numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}

/// A git directory that changes, and its upstream, which it may be a clone of.
struct Changing {
    folder: PathBuf,
    random: Random,
    commits: usize,
    /// Ids that branches had.
    ids: Vec<String>,
    is_clone: bool,
    has_alternate: bool,
    /// A file that was moved away.
    away: Option<PathBuf>,
}

impl Changing {
    fn new(folder: &Path, seed: u64) -> Changing {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut new = Changing {
            folder: folder.to_owned(),
            random,
            commits: 0,
            ids: Vec::new(),
            is_clone: false,
            has_alternate: false,
            away: None,
        };
        fs::create_dir(folder.join("up.git")).unwrap();
        git(&new.upstream(), &["init", "-q", "--bare", "-b", "b0", "."], b"");
        new.commit(0);
        for _ in 0..3 {
            let branch = new.random.below(3);
            new.commit(branch);
        }
        new.is_clone = new.random.below(2) == 0;
        if new.is_clone {
            git(&new.upstream(), &["config", "uploadpack.allowFilter", "true"], b"");
            let url = format!("file://{}", new.upstream().display());
            let how = [&["--depth=1"][..], &["--depth=2"], &["--filter=blob:none"], &["--filter=tree:0"]];
            let how = how[new.random.below(how.len())];
            git(folder, &[&["clone", "-q", "--mirror"], how, &[&url, "it.git"]].concat(), b"");
        } else {
            fs::rename(new.upstream(), new.dir()).unwrap();
        }
        // git changes nothing behind the test's back.
        git(&new.dir(), &["config", "maintenance.auto", "false"], b"");
        new
    }

    fn upstream(&self) -> PathBuf {
        self.folder.join("up.git")
    }

    fn dir(&self) -> PathBuf {
        self.folder.join("it.git")
    }

    /// The directory that new commits and refs go to.
    fn source(&self) -> PathBuf {
        if self.dir().exists() && !self.is_clone { self.dir() } else { self.upstream() }
    }

    fn branches(&self) -> Vec<PathBuf> {
        let refs = fs::read_dir(self.source().join("refs/heads")).unwrap();
        let mut paths: Vec<PathBuf> = refs.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    fn commit(&mut self, branch: usize) {
        let n = self.commits;
        self.commits += 1;
        let path = self.source().join(format!("refs/heads/b{branch}"));
        let from = if path.exists() { format!("from refs/heads/b{branch}^0\n") } else { String::new() };
        // One branch may stand on another.
        let merged = match self.branches() {
            branches if !branches.is_empty() && self.random.below(4) == 0 && !from.is_empty() => {
                let other = &branches[self.random.below(branches.len())];
                format!("merge refs/heads/{}^0\n", other.file_name().unwrap().display())
            }
            _ => String::new(),
        };
        let (time, file) = (1_700_000_000 + n, self.random.below(4));
        let mut stream = format!(
            "commit refs/heads/b{branch}\ncommitter C <c@x> {time} +0000\ndata 2\n{n:02}\n{from}{merged}\
            M 644 inline d/f{file}\ndata 3\n{n:02}\n\n"
        );
        if self.random.below(4) == 0 {
            stream +=
                &format!("tag t{n}\nfrom refs/heads/b{branch}\ntagger T <t@x> {time} +0000\ndata 1\nx\n");
        }
        git(&self.source(), &["fast-import", "--quiet", "--force"], stream.as_bytes());
        self.ids.push(fs::read_to_string(path).unwrap());
    }

    /// Moves something away, so that objects or refs cannot be read.
    fn take_away(&mut self) {
        let objects = self.dir().join("objects");
        let mut candidates: Vec<PathBuf> = Vec::new();
        if self.has_alternate {
            candidates.push(self.folder.join("alternate"));
        }
        for folder in fs::read_dir(&objects).unwrap().map(|entry| entry.unwrap().path()) {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            if name.len() == 2 || name == "pack" {
                candidates.extend(fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        candidates.sort();
        if !candidates.is_empty() {
            let path = candidates[self.random.below(candidates.len())].clone();
            fs::rename(&path, self.folder.join("away")).unwrap();
            self.away = Some(path);
        }
    }

    fn bring_back(&mut self) {
        if let Some(path) = self.away.take() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::rename(self.folder.join("away"), path).unwrap();
        }
    }

    fn collect_garbage(&self) {
        git(&self.dir(), &["reflog", "expire", "--expire=now", "--all"], b"");
        git(&self.dir(), &["gc", "-q", "--prune=now"], b"");
        // Branches stay loose, so that their files tell where they are.
        for line in fs::read_to_string(self.dir().join("packed-refs")).unwrap_or_default().lines() {
            if let Some((id, name)) = line.split_once(' ').filter(|(_, name)| name.starts_with("refs/heads"))
            {
                fs::create_dir_all(self.dir().join("refs/heads")).unwrap();
                fs::write(self.dir().join(name), format!("{id}\n")).unwrap();
            }
        }
        let packed = fs::read_to_string(self.dir().join("packed-refs")).unwrap_or_default();
        let kept: String =
            packed.lines().filter(|line| !line.contains("refs/heads/")).map(|l| format!("{l}\n")).collect();
        fs::write(self.dir().join("packed-refs"), kept).unwrap();
    }

    fn step(&mut self) -> &'static str {
        // git itself needs what is away.
        if self.away.is_some() {
            self.bring_back();
            return "bring back";
        }
        let branches = self.branches();
        let branch = branches[self.random.below(branches.len())].clone();
        match self.random.below(11) {
            10 => {
                let head = format!("refs/heads/b{}", self.random.below(3));
                git(&self.dir(), &["symbolic-ref", "HEAD", &head], b"");
                "head"
            }
            0 if branches.len() > 1 => {
                fs::remove_file(&branch).unwrap();
                "delete"
            }
            1 | 2 => {
                let id = self.ids[self.random.below(self.ids.len())].clone();
                let known = fs::read_dir(self.source().join("objects").join(&id[..2]))
                    .is_ok_and(|mut files| files.any(|f| *f.unwrap().file_name() == *id[2..].trim_end()));
                if known {
                    fs::write(&branch, id).unwrap();
                }
                "force"
            }
            3 => {
                self.take_away();
                "take away"
            }
            4 if !self.is_clone => {
                self.collect_garbage();
                "collect garbage"
            }
            5 if !self.is_clone && !self.has_alternate => {
                let alternate = self.folder.join("alternate");
                fs::rename(self.dir().join("objects"), &alternate).unwrap();
                fs::create_dir_all(self.dir().join("objects/info")).unwrap();
                fs::write(
                    self.dir().join("objects/info/alternates"),
                    format!("\"{}\"\n", alternate.display()),
                )
                .unwrap();
                self.has_alternate = true;
                "alternate"
            }
            6 | 7 if self.is_clone => {
                let how = match self.random.below(5) {
                    0 => &["--unshallow"][..],
                    1 => &["--refetch", "--no-filter"],
                    _ => &["--deepen=1"],
                };
                let is_shallow = self.dir().join("shallow").exists();
                let how = if is_shallow || how[0] == "--refetch" { how } else { &[][..] };
                git(
                    &self.dir(),
                    &[&["fetch", "-q", "--prune"], how, &["origin", "+refs/*:refs/*"]].concat(),
                    b"",
                );
                "fetch"
            }
            _ => {
                let branch = self.random.below(3);
                self.commit(branch);
                "commit"
            }
        }
    }
}

const ALL: &[&[TableKind]] =
    &[CONTENT, &[TableKind::MiningError, TableKind::RefChange, TableKind::DefaultBranch]];

/// Returns the id of the commit or tag that a row is about.
fn key(row: &Row) -> String {
    ["revision", "id", "object"].iter().find_map(|name| row.get(*name)).unwrap().clone()
}

/// Returns where the rows of `ref_change` lead.
fn replayed(mut changes: Vec<Row>) -> BTreeMap<String, String> {
    changes.sort_by_key(|change| change["visit"].parse::<u64>().unwrap());
    let mut refs = BTreeMap::new();
    for change in changes {
        let (name, before) = (&change["name"], change.get("old_target").cloned());
        match change.get("target") {
            Some(target) => assert_eq!(refs.insert(name.clone(), target.clone()), before),
            None => assert_eq!(refs.remove(name), before),
        }
    }
    refs
}

#[test]
fn whatever_happened_in_between() {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let of = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seed = of("WEIR_SEED").unwrap_or(clock % 1_000_000_007);
    let server = weir_testing::PostgresServer::start(&["fsync=off"]);
    for round in 0..of("WEIR_ROUNDS").unwrap_or(30) {
        sequence(seed + round, server.as_ref());
    }
}

fn sequence(seed: u64, server: Option<&weir_testing::PostgresServer>) {
    let folder = weir_testing::folder();
    let folder = folder.path();
    let mut changing = Changing::new(folder, seed);
    let path = changing.dir();
    // The names that the repository has had; the last is its own.
    let mut names = vec!["it".to_owned()];
    let named = |names: &[String]| match names.split_last() {
        Some((name, former)) => [MineSource { former: former.to_vec(), ..source(name, &path) }],
        None => unreachable!("it has a name"),
    };
    let place = |name: &str| folder.join(name);
    let mut databases = vec![("sqlite", Place::Sqlite(place("mined.sqlite")))];
    let schema = format!("seed_{seed}");
    databases.extend(server.map(|server| ("postgres", Place::Postgres(server.schema(&schema)))));
    let mine = |names: &[String], story: &[&str]| {
        let sources = named(names);
        let mut told = Vec::new();
        for (_, database) in &databases {
            let database = database.try_open(&MineSettings::default()).unwrap();
            let (totals, events) = mined_into(database, &sources);
            assert_eq!(totals.unwrap().failed, 0, "WEIR_SEED={seed}: {story:?} {events:?}");
            told.extend(events);
        }
        for (name, format) in [("parquet", FileFormat::Parquet), ("jsonl", FileFormat::JsonLines)] {
            told.extend(mined(&place(name), format, &sources).1);
        }
        told
    };
    let mut story: Vec<&str> = vec![if changing.is_clone { "clone" } else { "own" }];
    for _ in 0..10 {
        story.push(changing.step());
        if changing.random.below(8) == 0 {
            story.push("rename");
            names.push(format!("it{}", names.len()));
        }
        if changing.random.below(2) == 0 {
            story.push("mine");
            mine(&names, &story);
        }
    }
    changing.bring_back();
    mine(&names, &story);
    let told = mine(&names, &story);
    let is_same = |event: &MineEvent| *event == MineEvent::Unchanged;
    assert!(told.iter().all(is_same), "WEIR_SEED={seed}: {story:?} {told:?}");
    mined(&place("scratch"), FileFormat::JsonLines, &named(&names));
    let read = |name: &str, table| match databases.iter().find(|(output, _)| *output == name) {
        Some((_, database)) => database.rows(table),
        None => json_rows(&place(name), table),
    };
    let here_now: BTreeSet<String> = read("scratch", TableKind::Revision).iter().map(key).collect();
    let outputs = ["jsonl", "parquet"].into_iter().chain(databases.iter().map(|(output, _)| *output));
    for output in outputs {
        for &table in ALL.iter().copied().flatten() {
            let context = format!("WEIR_SEED={seed}: {output} {table:?} {story:?}");
            assert_as_once(table, read(output, table), &read("scratch", table), &here_now, &context);
        }
    }
    if let Some(server) = server {
        server.sql(&format!("DROP SCHEMA {schema} CASCADE"));
    }
}

/// Fails unless rows of `table` are those of mining once, and besides only rows of what is not `here_now`,
/// each once.
fn assert_as_once(
    table: TableKind,
    found: Vec<Row>,
    once: &[Row],
    here_now: &BTreeSet<String>,
    context: &str,
) {
    if table == TableKind::RefChange {
        assert_eq!(replayed(found), replayed(once.to_vec()), "{context}");
        return;
    }
    if table == TableKind::DefaultBranch {
        assert_eq!(found, once, "{context}");
        return;
    }
    let keys: BTreeSet<String> = once.iter().map(key).collect();
    let (here, gone): (Vec<Row>, Vec<Row>) = found.into_iter().partition(|row| keys.contains(&key(row)));
    assert_eq!(here, once, "{context}");
    let mut each_once = gone.clone();
    each_once.dedup();
    assert_eq!(each_once, gone, "{context}");
    // Errors are only of commits that are gone themselves.
    let is_left = |row: &Row| here_now.contains(&key(row));
    let is_error = table == TableKind::MiningError;
    assert!(!is_error || !gone.iter().any(is_left), "{context}: {gone:?}");
}
