//! Datasets on disk: both formats hold the same rows, and nothing is there twice or half.

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{CONTENT, add_commits, files, git, mined, mined_on, of_commits, of_refs, rows, source};
use weir_tables::{Dataset, Error, FileFormat, MineSettings, MineSource, TableKind};

/// Fails unless both datasets have the same rows in `tables`.
fn assert_same(a: &Path, b: &Path, tables: &[TableKind]) {
    for &table in tables {
        let (a, b) = (rows(a, table), rows(b, table));
        assert_eq!(a.len(), b.len(), "{table:?}");
        a.iter().zip(&b).for_each(|(a, b)| assert_eq!(a, b, "{table:?}"));
    }
}

#[test]
fn both_formats_hold_the_same_rows() {
    let dir = weir_testing::folder();
    let [git_dir, parquet, json] = ["git", "parquet", "json"].map(|name| dir.path().join(name));
    fs::create_dir(&git_dir).unwrap();
    add_commits(&git_dir, 0, 50);
    let sources = [source("a", &git_dir), source("b", &git_dir)];
    mined(&parquet, FileFormat::Parquet, &sources);
    mined(&json, FileFormat::JsonLines, &sources);
    assert_same(&parquet, &json, TableKind::ALL);
    let revisions = rows(&json, TableKind::Revision);
    assert_eq!(revisions.len(), 100);
    let of =
        |n: usize| revisions.iter().find(|row| row.contains(&(1_700_000_000 + n * 60).to_string())).cloned();
    assert_eq!(of(0), None, "times are texts");
    // Commits 0, 6, 12, ... name their encoding; 3, 9, 15, ... do not.
    let count = |part: &str| revisions.iter().filter(|row| row.contains(part)).count();
    assert_eq!(count("\"author_name\":\"J\u{f6}rg\""), 2 * (50 - 8));
    assert_eq!(count("\"author_name\":\"J\u{fffd}rg\""), 2 * 8);
    assert_eq!(count("\"author_raw\":"), 2 * 17);
    assert!(rows(&json, TableKind::FileChange).iter().any(|row| row.contains("\"path_raw\":\"6effc3bc\"")));
}

#[test]
fn a_later_run_adds_what_is_new() {
    let dir = weir_testing::folder();
    let [git_dir, grown, whole] = ["git", "grown", "whole"].map(|name| dir.path().join(name));
    fs::create_dir(&git_dir).unwrap();
    for (from, to) in [(0, 20), (20, 21), (21, 70)] {
        add_commits(&git_dir, from, to);
        let (totals, _) = mined(&grown, FileFormat::Parquet, &[source("a", &git_dir)]);
        assert_eq!((totals.mined, totals.unchanged), (1, 0));
        let (totals, _) = mined(&grown, FileFormat::Parquet, &[source("a", &git_dir)]);
        assert_eq!((totals.mined, totals.unchanged), (0, 1));
    }
    mined(&whole, FileFormat::Parquet, &[source("a", &git_dir)]);
    assert_same(&grown, &whole, CONTENT);
    git(&git_dir, &["update-ref", "-d", "refs/tags/v20"], b"");
    mined(&grown, FileFormat::Parquet, &[source("a", &git_dir)]);
    let changes = rows(&grown, TableKind::RefChange);
    let gone = changes.iter().find(|row| row.contains("\"visit\":4")).unwrap();
    assert!(gone.contains("refs/tags/v20") && !gone.contains("\"target\""), "{gone}");
    assert_eq!(rows(&grown, TableKind::OriginVisit).len(), 4);
}

#[test]
fn what_a_killed_process_left_is_completed_or_deleted() {
    let dir = weir_testing::folder();
    let [git_dir, folder, whole] = ["git", "killed", "whole"].map(|name| dir.path().join(name));
    fs::create_dir(&git_dir).unwrap();
    add_commits(&git_dir, 0, 30);
    let sources = || [source("a", &git_dir)];
    mined(&whole, FileFormat::Parquet, &sources());
    mined(&folder, FileFormat::Parquet, &sources());
    // It was killed after the run's file got its name: hidden files belong to the dataset.
    for table in TableKind::ALL {
        for file in files(&folder, *table) {
            let name = file.file_name().unwrap().to_str().unwrap();
            fs::rename(&file, file.with_file_name(format!(".{name}.tmp"))).unwrap();
        }
    }
    // It was killed before: others do not.
    let torn = folder.join("revision/.part-00000999.parquet.tmp");
    fs::write(&torn, b"PAR1 torn").unwrap();
    let (totals, _) = mined(&folder, FileFormat::Parquet, &sources());
    assert_eq!(totals.unchanged, 1);
    assert!(!torn.exists());
    assert_same(&folder, &whole, TableKind::ALL);
    // Without the run's file nothing of it counts.
    fs::remove_file(folder.join("_weir/run-00000001.json")).unwrap();
    for table in TableKind::ALL {
        files(&folder, *table).iter().for_each(|file| fs::remove_file(file).unwrap());
    }
    mined(&folder, FileFormat::Parquet, &sources());
    assert_same(&folder, &whole, TableKind::ALL);
}

#[test]
fn a_repository_that_fails_half_way_leaves_no_rows() {
    let dir = weir_testing::folder();
    let [git_dir, bad_dir, folder, whole] =
        ["git", "bad", "failed", "whole"].map(|name| dir.path().join(name));
    for dir in [&git_dir, &bad_dir] {
        fs::create_dir(dir).unwrap();
        add_commits(dir, 0, 30);
    }
    mined(&whole, FileFormat::Parquet, &[source("a", &git_dir), source("c", &git_dir)]);
    // The states of the refs are written before the loose objects turn out to be unreadable.
    let is_free = |folder: &std::path::PathBuf| !folder.exists();
    let folder_of_none = (0..=255).map(|n| bad_dir.join(format!("objects/{n:02x}"))).find(is_free).unwrap();
    fs::write(folder_of_none, b"").unwrap();
    let sources = [source("a", &git_dir), source("b", &bad_dir), source("c", &git_dir)];
    let (totals, told) = mined(&folder, FileFormat::Parquet, &sources);
    assert_eq!((totals.mined, totals.failed), (2, 1), "{told:?}");
    assert_same(&folder, &whole, TableKind::ALL);
    // One of the others fails when it is mined again.
    let times = AtomicUsize::new(0);
    let open = || {
        let dir = if times.fetch_add(1, Ordering::Relaxed) == 0 { &git_dir } else { &bad_dir };
        weir_repo::open_directory(dir).map_err(Into::into)
    };
    let fading = MineSource { open: Box::new(open), bytes: 9, ..source("d", &git_dir) };
    let of_size = |bytes, source| MineSource { bytes, ..source };
    let sources = [
        of_size(10, source("a", &git_dir)),
        fading,
        of_size(8, source("c", &git_dir)),
        of_size(7, source("b", &bad_dir)),
    ];
    fs::remove_dir_all(&folder).unwrap();
    let dataset = Dataset::open(&folder, FileFormat::Parquet, &MineSettings::default()).unwrap();
    let (totals, told) = mined_on(1, dataset, &sources);
    let totals = totals.unwrap();
    assert_eq!((totals.mined, totals.failed), (2, 2), "{told:?}");
    assert_same(&folder, &whole, TableKind::ALL);
}

#[test]
fn a_repository_that_cannot_be_opened_costs_no_other_its_rows() {
    let dir = weir_testing::folder();
    let [git_dir, folder] = ["git", "unread"].map(|name| dir.path().join(name));
    fs::create_dir(&git_dir).unwrap();
    add_commits(&git_dir, 0, 30);
    let opened = AtomicUsize::new(0);
    let good = |origin: &str, bytes| {
        let open = || {
            opened.fetch_add(1, Ordering::Relaxed);
            weir_repo::open_directory(&git_dir).map_err(Into::into)
        };
        MineSource { open: Box::new(open), bytes, ..source(origin, &git_dir) }
    };
    let unread = MineSource { open: Box::new(|| Err("no disk".into())), bytes: 2, ..source("b", &git_dir) };
    let sources = [good("a", 4), good("c", 3), unread, good("d", 1)];
    let (totals, told) = mined(&folder, FileFormat::Parquet, &sources);
    assert_eq!((totals.mined, totals.failed), (3, 1), "{told:?}");
    assert_eq!(opened.load(Ordering::Relaxed), 3, "each is mined once");
    assert_eq!(rows(&folder, TableKind::Revision).len(), 90);
}

#[test]
fn a_file_that_was_cut_is_named() {
    let dir = weir_testing::folder();
    let [git_dir, folder] = ["git", "cut"].map(|name| dir.path().join(name));
    fs::create_dir(&git_dir).unwrap();
    add_commits(&git_dir, 0, 30);
    for format in [FileFormat::JsonLines, FileFormat::Parquet] {
        mined(&folder, format, &[source("a", &git_dir)]);
        let is_of_run = |file: &std::path::PathBuf| !file.to_str().unwrap().contains("part-00000000");
        let file = files(&folder, TableKind::Revision).into_iter().find(is_of_run).unwrap();
        let length = fs::metadata(&file).unwrap().len();
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(length - 1).unwrap();
        let error =
            Dataset::open(&folder, format, &MineSettings::default()).map(drop).unwrap_err().to_string();
        let wanted = format!("is damaged: it has {} bytes, not {length}", length - 1);
        assert!(error.contains(file.to_str().unwrap()) && error.contains(&wanted), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn a_file_with_the_last_number_ends_nothing() {
    let dir = weir_testing::folder();
    let [git_dir, folder] = ["git", "last"].map(|name| dir.path().join(name));
    fs::create_dir(&git_dir).unwrap();
    add_commits(&git_dir, 0, 5);
    fs::create_dir_all(folder.join("_weir")).unwrap();
    fs::create_dir(folder.join("revision")).unwrap();
    let other = folder.join("revision/part-18446744073709551615.jsonl");
    fs::write(&other, b"somebody else's").unwrap();
    mined(&folder, FileFormat::JsonLines, &[source("a", &git_dir)]);
    assert_eq!(fs::read(&other).unwrap(), b"somebody else's");
    fs::write(folder.join("_weir/run-18446744073709551615.json"), br#"{"parts":[],"origins":[]}"#).unwrap();
    let error =
        Dataset::open(&folder, FileFormat::JsonLines, &MineSettings::default()).map(drop).unwrap_err();
    assert!(error.to_string().contains("no run has this number"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let dir = weir_testing::folder();
    let open = |path: &Path, format, settings: &MineSettings| {
        Dataset::open(path, format, settings).map(drop).unwrap_err()
    };
    let folder = dir.path().join("d");
    let first = Dataset::open(&folder, FileFormat::Parquet, &of_commits()).unwrap();
    assert!(matches!(open(&folder, FileFormat::Parquet, &of_commits()), Error::InUse(_)));
    drop(first);
    for (format, settings) in [(FileFormat::JsonLines, of_commits()), (FileFormat::Parquet, of_refs())] {
        let Error::OtherSettings { format: Some(format), flags, .. } = open(&folder, format, &settings)
        else {
            panic!("it has the settings of commits")
        };
        assert!(format == "parquet" && flags.starts_with("--what commits"), "{format} {flags}");
    }
    fs::write(folder.join("_weir/run-00000001.json"), b"{").unwrap();
    assert!(matches!(open(&folder, FileFormat::Parquet, &of_commits()), Error::Damaged { .. }));
    fs::write(
        folder.join("_weir/run-00000001.json"),
        br#"{"parts":[{"name":"revision/part-00000001","bytes":1}],"origins":[]}"#,
    )
    .unwrap();
    let error = open(&folder, FileFormat::Parquet, &of_commits()).to_string();
    assert!(error.contains("part-00000001.parquet' is damaged: the file is missing"), "{error}");
    for (version, remedy) in [("1", "mine into another place"), ("99", "use a newer weir")] {
        let file = format!(r#"{{"version":{version},"format":"parquet","settings":"--what commits"}}"#);
        fs::write(folder.join("_weir/dataset.json"), file).unwrap();
        let error = open(&folder, FileFormat::Parquet, &of_commits()).to_string();
        assert!(
            error.contains(&format!("has tables of version {version}")) && error.ends_with(remedy),
            "{error}"
        );
    }
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), b"").unwrap();
    assert!(matches!(open(&other, FileFormat::Parquet, &MineSettings::default()), Error::NotADataset(_)));
    assert!(matches!(
        open(&other.join("file"), FileFormat::Parquet, &MineSettings::default()),
        Error::File { .. }
    ));
}

/// Returns the tables of the book's page, each with its columns and their types.
fn documented() -> Vec<(String, Vec<(String, String)>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/reference/tables.md");
    let text = fs::read_to_string(page).unwrap();
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let section = |text: &str| {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let columns = rows.map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            (cell(cells[1]), cell(cells[2]))
        });
        (text.lines().next().unwrap().to_owned(), columns.collect())
    };
    text.split("\n## ").skip(1).map(section).collect()
}

#[test]
fn the_page_of_tables_has_every_column() {
    use arrow_schema::DataType;
    let documented = documented();
    let mut names: Vec<&str> = documented.iter().map(|(name, _)| name.as_str()).collect();
    let mut there: Vec<&str> = TableKind::ALL.iter().map(|table| table.name()).collect();
    names.sort_unstable();
    there.sort_unstable();
    assert_eq!(names, there);
    for table in TableKind::ALL {
        let (_, columns) = documented.iter().find(|(name, _)| name == table.name()).unwrap();
        let schema = table.schema();
        let fields: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), fields, "{table:?}");
        for ((name, documented), field) in columns.iter().zip(schema.fields()) {
            let is_right = match field.data_type() {
                DataType::Utf8 => documented == "text",
                DataType::Binary => documented == if name.ends_with("_raw") { "bytes" } else { "id" },
                DataType::Boolean => documented == "boolean",
                DataType::Timestamp(..) => documented == "time",
                _ => documented == "number",
            };
            assert!(is_right, "{table:?}.{name} is {documented} in the page");
        }
    }
}
