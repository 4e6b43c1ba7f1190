//! Databases: they hold the rows that datasets hold, and nothing is there twice or half.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::databases::{Place, Row, json_rows};
use common::{CONTENT, add_commits, git, mined, mined_into, of_commits, of_refs, rows, source};
use weir_tables::{
    DatabaseStore, Dataset, Error, FileFormat, MineOutput, MineSettings, MineSource, TableKind, forget,
};

/// Fails unless the database has the rows of the dataset.
fn assert_same(place: &Place, folder: &Path, tables: &[TableKind]) {
    for &table in tables {
        let (found, wanted) = (place.rows(table), json_rows(folder, table));
        assert_eq!(found.len(), wanted.len(), "{table:?}");
        found.iter().zip(&wanted).for_each(|(a, b)| assert_eq!(a, b, "{table:?}"));
    }
}

/// Calls `f` with a folder, and with a database of each kind in it.
fn in_each_database(f: impl Fn(&Path, &Place)) {
    let dir = weir_testing::folder();
    f(dir.path(), &Place::Sqlite(dir.path().join("db.sqlite")));
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let dir = weir_testing::folder();
    f(dir.path(), &Place::Postgres(server.schema("mined")));
}

/// Makes a repository `name` with `count` commits, and one more whose texts have NUL and times far away.
fn odd_repository(dir: &Path, name: &str, count: usize) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir(&path).unwrap();
    add_commits(&path, 0, count);
    let commit = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
        author \xff\0\"\\ <\ta,\xc3\xbc@x> 253402300800 +0000\n\
        committer C <c@x> -62135596801 -9959\nodd\0key v\0\n\n\0a\nb\0\\x";
    let object = dir.join("commit");
    fs::write(&object, commit).unwrap();
    let args = ["hash-object", "--literally", "-w", "-t", "commit", object.to_str().unwrap()];
    let id = weir_testing::run_git(&path, &args, b"");
    git(&path, &["update-ref", "refs/heads/odd", std::str::from_utf8(&id).unwrap().trim()], b"");
    path
}

#[test]
fn databases_hold_the_rows_of_datasets() {
    in_each_database(|dir, place| {
        let git_dir = odd_repository(dir, "git", 50);
        let sources = [source("a", &git_dir), source("b", &git_dir)];
        let folder = dir.join("json");
        mined(&folder, FileFormat::JsonLines, &sources);
        assert_eq!(place.mined(&sources).mined, 2);
        assert_same(place, &folder, TableKind::ALL);
        for name in ["revision", "file_change"] {
            assert_eq!(place.count(name), 2 * place.count(&format!("unique_{name}")), "{name}");
        }
        let odd: Vec<Row> = place.rows(TableKind::Revision);
        let odd: Vec<&Row> = odd
            .iter()
            .filter(|row| row.get("message_raw").is_some_and(|raw| raw == "00610a62005c78"))
            .collect();
        assert_eq!(odd.len(), 2);
        assert_eq!((odd[0]["message"].as_str(), odd[0]["author_name"].as_str()), ("", ""));
        let headers = place.rows(TableKind::RevisionExtraHeader);
        assert!(headers.iter().any(|row| row["key"] == "odd\u{fffd}key" && row["value"] == "v\u{fffd}"));
        assert_eq!((odd[0].get("author_date"), odd[0].get("committer_date")), (None, None));
        assert!(odd[0]["committer_raw"].starts_with("43203c"));
    });
}

#[test]
fn later_runs_add_what_is_new() {
    in_each_database(|dir, place| {
        let (git_dir, folder) = (odd_repository(dir, "git", 20), dir.join("json"));
        for (from, to) in [(20, 21), (21, 70)] {
            add_commits(&git_dir, from, to);
            assert_eq!(place.mined(&[source("a", &git_dir)]).mined, 1);
            let totals = place.mined(&[source("a", &git_dir)]);
            assert_eq!((totals.mined, totals.unchanged), (0, 1));
        }
        mined(&folder, FileFormat::JsonLines, &[source("a", &git_dir)]);
        assert_same(place, &folder, CONTENT);
        assert_eq!(place.rows(TableKind::OriginVisit).len(), 2);
    });
}

#[test]
fn a_repository_that_fails_half_way_leaves_no_rows() {
    in_each_database(|dir, place| {
        let (git_dir, bad_dir) = (odd_repository(dir, "git", 30), odd_repository(dir, "bad", 30));
        let folder = dir.join("json");
        mined(&folder, FileFormat::JsonLines, &[source("a", &git_dir), source("c", &git_dir)]);
        // The states of the refs are written before the loose objects turn out to be unreadable.
        let is_free = |folder: &PathBuf| !folder.exists();
        let folder_of_none =
            (0..=255).map(|n| bad_dir.join(format!("objects/{n:02x}"))).find(is_free).unwrap();
        fs::write(folder_of_none, b"").unwrap();
        let totals = place.mined(&[source("a", &git_dir), source("b", &bad_dir), source("c", &git_dir)]);
        assert_eq!((totals.mined, totals.failed), (2, 1));
        assert_same(place, &folder, TableKind::ALL);
    });
}

#[test]
fn a_database_that_cannot_be_used_is_named() {
    in_each_database(|dir, place| {
        let fails = |settings: &MineSettings| place.try_open(settings).map(drop).unwrap_err();
        let first = place.try_open(&of_commits()).unwrap();
        assert!(matches!(fails(&of_commits()), Error::InUse(_)));
        drop(first);
        let Error::OtherSettings { format: None, flags, .. } = fails(&of_refs()) else {
            panic!("it has the settings of commits")
        };
        assert!(flags.starts_with("--what commits"), "{flags}");
        let other = dir.join("other");
        fs::write(&other, "no database".repeat(100)).unwrap();
        let error =
            DatabaseStore::sqlite(&other, &MineSettings::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains("other': file is not a database"), "{error}");
        assert_eq!(fs::read(&other).unwrap(), "no database".repeat(100).as_bytes());
    });
}

#[test]
fn a_server_that_goes_away_is_told_and_nothing_is_lost() {
    let dir = weir_testing::folder();
    let (git_dir, folder) = (odd_repository(dir.path(), "git", 50), dir.path().join("json"));
    let Some(mut server) = weir_testing::PostgresServer::start(&[]) else { return };
    let place = Place::Postgres(server.schema("mined"));
    place.mined(&[source("a", &git_dir)]);
    let database = place.try_open(&MineSettings::default()).unwrap();
    server.crash();
    let sources = [source("a", &git_dir), source("b", &git_dir)];
    let (totals, _) = mined_into(database, &sources);
    let error = totals.unwrap_err().to_string();
    assert!(error.starts_with("cannot write to 'the server': "), "{error}");
    place.mined(&sources);
    mined(&folder, FileFormat::JsonLines, &sources);
    assert_same(&place, &folder, TableKind::ALL);
}

#[test]
fn repositories_move_and_are_forgotten() {
    in_each_database(|dir, place| {
        let (one, two) = (odd_repository(dir, "one", 5), odd_repository(dir, "two", 7));
        let folder = dir.join("json");
        let mine = |sources: &[MineSource<'_>]| {
            mined(&folder, FileFormat::JsonLines, sources);
            mined(&dir.join("parquet"), FileFormat::Parquet, sources);
            place.mined(sources)
        };
        mine(&[source("a", &one), source("b", &two)]);
        // The rows of a repository with another name move with it, and nothing is mined again.
        let renamed = MineSource { former: vec!["a".to_owned()], ..source("c", &one) };
        assert_eq!(mine(&[renamed, source("b", &two)]).unchanged, 2);
        assert_same(place, &folder, TableKind::ALL);
        let origins = |table| -> std::collections::BTreeSet<String> {
            place.rows(table).into_iter().map(|row| row["origin"].clone()).collect()
        };
        for &table in TableKind::ALL.iter().filter(|table| **table != TableKind::MiningError) {
            assert_eq!(origins(table), ["b".to_owned(), "c".to_owned()].into(), "{table:?}");
        }
        fn forget_c(mut output: impl MineOutput) {
            assert_eq!(forget(&mut output, &|name| name == "c").unwrap(), ["c"]);
        }
        forget_c(place.try_open(&MineSettings::default()).unwrap());
        forget_c(Dataset::open(&folder, FileFormat::JsonLines, &MineSettings::default()).unwrap());
        forget_c(Dataset::open(&dir.join("parquet"), FileFormat::Parquet, &MineSettings::default()).unwrap());
        assert_same(place, &folder, TableKind::ALL);
        assert_eq!(origins(TableKind::Revision), ["b".to_owned()].into());
        assert_eq!(
            rows(&dir.join("parquet"), TableKind::Revision).len(),
            json_rows(&folder, TableKind::Revision).len()
        );
        // What is forgotten is mined as if for the first time.
        assert_eq!(mine(&[source("c", &one), source("b", &two)]).mined, 1);
        assert_same(place, &folder, CONTENT);
    });
}

/// Makes a repository whose one commit has a tree of ten million files, of a few hundred bytes.
fn bomb(dir: &Path) -> PathBuf {
    let path = dir.join("bomb");
    fs::create_dir(&path).unwrap();
    git(&path, &["init", "-q", "--bare", "."], b"");
    let run = |args: &[&str], input: &str| {
        let said = weir_testing::run_git(&path, args, input.as_bytes());
        String::from_utf8(said).unwrap().trim().to_owned()
    };
    let blob = run(&["hash-object", "-w", "--stdin"], "x\n");
    let tree_of = |mode: &str, kind: &str, id: &str| {
        let lines: String = (0..10).map(|n| format!("{mode} {kind} {id}\t{n}\n")).collect();
        run(&["mktree"], &lines)
    };
    let mut tree = tree_of("100644", "blob", &blob);
    for _ in 0..6 {
        tree = tree_of("040000", "tree", &tree);
    }
    let commit = run(&["commit-tree", "-m", "x", &tree], "");
    git(&path, &["update-ref", "refs/heads/main", &commit], b"");
    path
}

/// Makes a repository with a path that no btree of PostgreSQL takes, and with long names.
fn long_ones(dir: &Path) -> PathBuf {
    let path = dir.join("long");
    fs::create_dir(&path).unwrap();
    git(&path, &["init", "-q", "--bare", "."], b"");
    let mut stream = String::new();
    let mut state = 1u64;
    let mut name = || {
        let letters = (0..200).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (state >> 33) as u8 % 26)
        });
        letters.collect::<String>()
    };
    let deep: Vec<String> = (0..15).map(|_| name()).collect();
    for n in 0..40 {
        let who = "a".repeat(1 << 20);
        stream +=
            &format!("commit refs/heads/main\nauthor {who} <a@x> {n} +0000\ncommitter C <c@x> {n} +0000\n");
        stream += &format!("data 1\nx\nM 644 inline {}\ndata 2\n{n:02}\n\n", deep.join("/"));
    }
    git(&path, &["fast-import", "--quiet"], stream.as_bytes());
    path
}

#[test]
fn one_repository_ends_no_other() {
    in_each_database(|dir, place| {
        let good = odd_repository(dir, "good", 5);
        let (bomb, long) = (bomb(dir), long_ones(dir));
        let panicking = MineSource { open: Box::new(|| panic!("a fault")), ..source("panic", &good) };
        let failing = MineSource { open: Box::new(|| Err("no disk".into())), ..source("fail", &good) };
        let sources = [
            source("a", &good),
            source("bomb", &bomb),
            panicking,
            source("b", &good),
            source("long", &long),
            failing,
            source("c", &good),
            source("c", &good),
        ];
        let folder = dir.join("json");
        let totals = mined(&folder, FileFormat::JsonLines, &sources).0;
        assert_eq!((totals.mined, totals.failed), (5, 2));
        let totals = place.mined(&sources);
        assert_eq!((totals.mined, totals.failed), (5, 2));
        assert_same(place, &folder, TableKind::ALL);
        let revisions =
            |name: &str| place.rows(TableKind::Revision).iter().filter(|row| row["origin"] == name).count();
        assert_eq!([revisions("a"), revisions("b"), revisions("c"), revisions("long")], [6, 6, 6, 40]);
        let told = place.rows(TableKind::MiningError);
        assert!(told.iter().any(|row| row["origin"] == "bomb" && row["kind"] == "limit"), "{told:?}");
    });
}
