//! SQL over tables that are mined for a query, and tables in all formats.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use arrow_ipc::reader::StreamReader;
use arrow_json::LineDelimitedWriter;
use common::{add_commits, git, mined, rows, source};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rusqlite::types::ValueRef;
use weir_ground::{Stop, Timestamp};
use weir_repo::{Repo, open_directory};
use weir_tables::{
    FileFormat, KeptDatabases, PresentRepository, QueryAnswer, QueryDatabase, QueryError, QueryLimits,
    QueryRow, QueryValue, RowFormat, TableKind, write_table,
};

const FILE_BYTES_MAX: u64 = 64 << 20;
const LIMITS: QueryLimits = QueryLimits { rows_max: 1000, bytes_max: 1 << 20 };

fn present<'r>(repo: &'r Repo, origin: &'r str) -> PresentRepository<'r> {
    PresentRepository { repo, origin, url: None, now: Timestamp(1_750_000_000) }
}

fn repository(dir: &Path) -> Repo {
    fs::create_dir(dir).unwrap();
    add_commits(dir, 0, 50);
    open_directory(dir).unwrap()
}

/// Runs a query over `repos` in a database of its own.
fn query(folder: &Path, repos: &[(&str, &Repo)], sql: &str) -> Result<QueryAnswer, QueryError> {
    let mut database = QueryDatabase::new(folder, FILE_BYTES_MAX)?;
    let wanted = database.reads(sql)?;
    let load = database.load(&wanted)?;
    for (origin, repo) in repos {
        load.mine(&present(repo, origin), 2, &Stop::default())?;
    }
    load.finish()?.run(sql, LIMITS, &Stop::default())
}

/// Returns the rows as texts.
fn texts(answer: &QueryAnswer) -> Vec<Vec<String>> {
    answer.rows.iter().map(|row| row.iter().map(QueryValue::to_text).collect()).collect()
}

#[test]
fn query_joins_tables_of_repositories() {
    let dir = weir_testing::folder();
    let (a, b) = (repository(&dir.path().join("a")), repository(&dir.path().join("b")));
    let repos = [("a", &a), ("b", &b)];
    let run = |sql: &str| texts(&query(dir.path(), &repos, sql).unwrap_or_else(|e| panic!("{sql}: {e}")));
    assert_eq!(run("SELECT origin, count(*) FROM revision GROUP BY 1"), [["a", "50"], ["b", "50"]]);
    assert_eq!(run("SELECT count(*) FROM unique_revision"), [["50"]]);
    let joined = "SELECT r.origin, count(DISTINCT f.path), max(strftime('%Y', r.author_date)) \
        FROM revision r JOIN file_change f ON f.origin = r.origin AND f.revision = r.id \
        WHERE r.author_name REGEXP '^J.rg$' GROUP BY 1 ORDER BY 1";
    assert_eq!(run(joined), [["a", "8", "2023"], ["b", "8", "2023"]]);
    assert_eq!(run("SELECT sum(insertions) > 0 FROM file_change"), [["1"]]);
    assert_eq!(run("SELECT revisions, releases FROM mining WHERE origin = 'a'"), [["50", "1"]]);
    assert_eq!(run("SELECT name FROM ref_change WHERE origin = 'b' ORDER BY 1").len(), 2);
    assert_eq!(run("SELECT 1 + 1"), [["2"]]);
    let head = weir_testing::run_git(&dir.path().join("a"), &["rev-parse", "refs/heads/main"], b"");
    let found = run("SELECT id FROM revision WHERE origin = 'a' ORDER BY author_date DESC LIMIT 1");
    assert_eq!(found, [[String::from_utf8(head).unwrap().trim()]]);
    assert!(fs::read_dir(dir.path()).unwrap().count() == 2, "files of queries have no names");
}

#[test]
fn query_reads_the_columns_that_joins_only_name() {
    let dir = weir_testing::folder();
    let repo = repository(&dir.path().join("a"));
    let run = |sql: &str| {
        let rows = query(dir.path(), &[("a", &repo)], sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        texts(&rows)[0][0].clone()
    };
    let changes = run("SELECT count(*) FROM file_change");
    let pairs = run("SELECT count(*) FROM file_change a, file_change b WHERE a.revision = b.revision");
    assert!(pairs.parse::<u64>().unwrap() > changes.parse().unwrap());
    let joins = [
        ("file_change JOIN default_branch USING (origin, revision)", &changes),
        ("file_change JOIN default_branch USING (revision)", &changes),
        (
            "file_change LEFT JOIN default_branch USING (\"REVISION\") WHERE file_change.origin = 'a'",
            &changes,
        ),
        ("file_change NATURAL JOIN default_branch", &changes),
        ("default_branch RIGHT JOIN file_change USING (revision)", &changes),
        ("file_change a JOIN file_change b USING (origin, revision)", &pairs),
        ("(SELECT * FROM default_branch) NATURAL JOIN (SELECT revision, path FROM file_change)", &changes),
        ("file_change NATURAL JOIN (SELECT id AS revision FROM revision)", &changes),
        ("unique_file_change JOIN default_branch USING (revision)", &changes),
    ];
    for (from, count) in joins {
        assert_eq!(run(&format!("SELECT count(*) FROM {from}")), *count, "{from}");
        // The same columns, asked for by name, are read.
        let with = format!("WITH x AS (SELECT count(*) AS n FROM {from}) SELECT n FROM x");
        assert_eq!(run(&with), *count, "{from}");
    }
    assert!(query(dir.path(), &[("a", &repo)], "EXPLAIN SELECT path FROM file_change").is_ok());
}

#[test]
fn query_samples_of_the_book_read_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/queries.md");
    let page = fs::read_to_string(page).unwrap();
    let samples: Vec<&str> = page.split("```sql\n").skip(1).map(|s| s.split("```").next().unwrap()).collect();
    assert!(samples.len() > 8, "{}", samples.len());
    let dir = weir_testing::folder();
    let repo = repository(&dir.path().join("a"));
    for sample in samples {
        let answer = query(dir.path(), &[("a", &repo)], sample).unwrap_or_else(|e| panic!("{sample}: {e}"));
        // The names of the columns are those that the page shows.
        let shown = answer.columns.join("");
        let words = |line: &str| line.split_whitespace().collect::<String>();
        assert!(page.lines().any(|line| words(line) == shown) || sample.contains("moves"), "{sample}");
    }
}

#[test]
fn query_sees_what_refs_reach_now() {
    let dir = weir_testing::folder();
    let path = dir.path().join("a");
    drop(repository(&path));
    git(&path, &["branch", "gone", "main"], b"");
    git(&path, &["update-ref", "refs/heads/main", "main~20"], b"");
    git(&path, &["tag", "-d", "v50"], b"");
    git(&path, &["branch", "-D", "gone"], b"");
    let repo = open_directory(&path).unwrap();
    let answer = query(dir.path(), &[("a", &repo)], "SELECT count(*) FROM revision").unwrap();
    assert_eq!(texts(&answer), [["30"]]);
}

#[test]
fn query_database_mines_what_it_lacks() {
    let dir = weir_testing::folder();
    let repo = repository(&dir.path().join("a"));
    let mut database = QueryDatabase::new(dir.path(), FILE_BYTES_MAX).unwrap();
    let mut run = |sql: &str| {
        let wanted = database.reads(sql).unwrap();
        let other = QueryDatabase::new(dir.path(), FILE_BYTES_MAX).unwrap();
        let load = std::mem::replace(&mut database, other).load(&wanted).unwrap();
        load.mine(&present(&repo, "a"), 1, &Stop::default()).unwrap();
        database = load.finish().unwrap();
        texts(&database.run(sql, LIMITS, &Stop::default()).unwrap())
    };
    assert_eq!(run("SELECT count(*), count(DISTINCT author_name) FROM revision"), [["50", "2"]]);
    // The message was not there before, and the rest still is.
    let both = "SELECT count(message), count(author_name), count(signature), count(*) FROM revision";
    assert_eq!(run(both), [["50", "50", "0", "50"]]);
    assert_eq!(run("SELECT count(*), count(insertions) FROM file_change"), [["51", "51"]]);
    assert_eq!(run("SELECT count(*) FROM file_change"), [["51"]]);
}

#[test]
fn query_may_only_read() {
    let dir = weir_testing::folder();
    let repo = repository(&dir.path().join("a"));
    for sql in [
        "DELETE FROM revision",
        "INSERT INTO revision (origin) VALUES ('x')",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "ATTACH DATABASE 'nowhere/x.sqlite' AS x",
        "PRAGMA user_version = 1",
        "PRAGMA table_info(revision)",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('x')",
        "VACUUM INTO 'nowhere/x.sqlite'",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "SELECT * FROM nowhere",
        "SELECT nowhere FROM revision",
        "WITH x AS (SELECT 1) DELETE FROM revision",
        "",
        "-- nothing",
        "SELECT ?1",
        "SELECT 1\0 UNION SELECT 2",
        "\0",
    ] {
        let refused = query(dir.path(), &[("a", &repo)], sql).unwrap_err();
        assert!(matches!(refused, QueryError::Statement(_)), "{sql}: {refused:?}");
    }
    let words = |sql: &str| query(dir.path(), &[], sql).unwrap_err().to_string();
    assert_eq!(words("SELECT nowhere FROM revision"), "no such column: nowhere (at byte 7 of the statement)");
    assert_eq!(words("SELECT 1; SELECT 2"), "give one statement, not several");
    assert!(!Path::new("nowhere").exists());
}

#[test]
fn query_is_bounded() {
    let dir = weir_testing::folder();
    let run = |sql: &str, limits| {
        let stop = Stop::default().within(Duration::from_millis(300));
        QueryDatabase::new(dir.path(), FILE_BYTES_MAX).unwrap().run(sql, limits, &stop)
    };
    let numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";
    let endless = run(&format!("{numbers} SELECT max(x) FROM n"), LIMITS).unwrap_err();
    assert!(matches!(endless, QueryError::Stopped), "{endless:?}");
    let first = run(&format!("{numbers} SELECT x FROM n"), LIMITS).unwrap();
    assert_eq!((first.rows.len(), first.is_truncated), (1000, true));
    let exact = run(&format!("{numbers} SELECT x FROM n LIMIT 1000"), LIMITS).unwrap();
    assert_eq!((exact.rows.len(), exact.is_truncated), (1000, false));
    let few = QueryLimits { bytes_max: 100, ..LIMITS };
    let cut = run(&format!("{numbers} SELECT 'twelve bytes' FROM n"), few).unwrap();
    assert_eq!((cut.rows.len(), cut.is_truncated), (5, true));
    assert!(matches!(run("SELECT hex(zeroblob(1000))", few).unwrap_err(), QueryError::TooLarge(_)));
    // SQLite sorts in temporary files.
    let many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200000)";
    let mut small = QueryDatabase::new(dir.path(), 8 << 20).unwrap();
    for what in ["hex(randomblob(500)) AS r FROM n ORDER BY r", "count(DISTINCT hex(randomblob(500))) FROM n"]
    {
        let sql = format!("{many} SELECT {what}");
        let refused = small.run(&sql, LIMITS, &Stop::default()).map(drop).unwrap_err();
        assert!(matches!(refused, QueryError::TooLarge(_)), "{sql}");
        assert_eq!(small.run("SELECT 1", LIMITS, &Stop::default()).unwrap().rows.len(), 1);
    }
    // Rows that are printed meanwhile do not count.
    let (mut printed, file) = (0, std::fs::File::create(dir.path().join("printed")).unwrap());
    let mut print = |row: QueryRow<'_>| {
        printed += 1;
        let QueryRow::Values([QueryValue::Text(text)]) = row else { return Ok(()) };
        std::io::Write::write_all(&mut &file, text.as_bytes())
    };
    let sql = format!("{many} SELECT hex(zeroblob(50)) || x FROM n");
    small.each_row(&sql, &Stop::default(), &mut print).unwrap();
    assert_eq!(printed, 200_001);
    let none = QueryLimits { rows_max: 0, ..LIMITS };
    assert!(run("SELECT 1", none).unwrap().is_truncated);
    for sql in ["SELECT zeroblob(5000000)", "SELECT replace(hex(zeroblob(1000000)), '0', 'abc')"] {
        let refused = run(sql, LIMITS).unwrap_err();
        assert!(matches!(refused, QueryError::TooLarge(_)), "{sql}: {refused:?}");
    }
    // SQLite's own functions would take hours for these.
    let long = "hex(zeroblob(1000000))";
    for sql in [
        format!("SELECT instr({long}, substr({long}, 1, 1000000) || '1')"),
        format!("SELECT length(replace({long}, substr({long}, 1, 1000000) || '1', ''))"),
        format!("SELECT length(trim({long}, {long} || '1'))"),
        format!("SELECT {long} REGEXP '(0*)*1'"),
    ] {
        assert_eq!(run(&sql, LIMITS).unwrap().rows.len(), 1, "{sql}");
    }
}

#[test]
fn query_tables_have_a_largest_size() {
    let dir = weir_testing::folder();
    let repo = repository(&dir.path().join("a"));
    let mut database = QueryDatabase::new(dir.path(), 0).unwrap();
    let wanted = database.reads("SELECT * FROM revision JOIN file_change").unwrap();
    let load = database.load(&wanted).unwrap();
    let refused = (0..40).find_map(|_| load.mine(&present(&repo, "a"), 1, &Stop::default()).err()).unwrap();
    assert!(matches!(refused, QueryError::TooLarge(_)), "{refused:?}");
}

#[test]
fn query_answers_are_csv() {
    let dir = weir_testing::folder();
    let sql = "SELECT 'a,\"b\"' AS x, NULL AS y, 1.5, x'c3a4' UNION ALL SELECT 'line\nbreak', 7, '', NULL";
    let answer = query(dir.path(), &[], sql).unwrap();
    let wanted = "x,y,1.5,x'c3a4'\n\"a,\"\"b\"\"\",,1.5,c3a4\n\"line\nbreak\",7,,\n";
    assert_eq!(String::from_utf8(answer.to_csv()).unwrap(), wanted);
    let json = serde_json::to_string(&answer).unwrap();
    let wanted = r#"{"columns":["x","y","1.5","x'c3a4'"],"rows":[["a,\"b\"",null,1.5,"c3a4"],"#;
    assert!(json.starts_with(wanted) && json.ends_with(r#""is_truncated":false}"#), "{json}");
}

#[test]
fn query_functions_are_those_of_sqlite() {
    let dir = weir_testing::folder();
    let own = rusqlite::Connection::open_in_memory().unwrap();
    let values = ["NULL", "''", "'a'", "'äbä'", "'aXa'", "'X'", "x'6158'", "x'c3a4'", "12", "1.5", "'ä'"];
    let mut ours = QueryDatabase::new(dir.path(), FILE_BYTES_MAX).unwrap();
    for a in values {
        for b in values {
            for call in ["instr(A, B)", "replace(A, B, 'z')", "trim(A, B)", "ltrim(A, B)", "rtrim(A, B)"] {
                let sql = format!("SELECT {}", call.replace('A', a).replace('B', b));
                let wanted = own.query_row(&sql, [], |row| {
                    Ok(match row.get_ref(0)? {
                        ValueRef::Null => QueryValue::Null,
                        ValueRef::Integer(n) => QueryValue::Integer(n),
                        ValueRef::Real(n) => QueryValue::Real(n),
                        ValueRef::Text(text) => QueryValue::Text(String::from_utf8_lossy(text).into_owned()),
                        ValueRef::Blob(bytes) => QueryValue::Bytes(bytes.to_owned()),
                    })
                });
                let found = ours.run(&sql, LIMITS, &Stop::default()).unwrap().rows.remove(0).remove(0);
                assert_eq!(found, wanted.unwrap(), "{sql}");
            }
        }
    }
}

#[test]
fn kept_databases_are_found_by_their_repositories() {
    let dir = weir_testing::folder();
    let kept = KeptDatabases::new(FILE_BYTES_MAX);
    let key = |seq| vec![("a".to_owned(), [seq; 32])];
    assert!(kept.put(key(1), QueryDatabase::new(dir.path(), FILE_BYTES_MAX).unwrap()), "nobody sweeps yet");
    assert!(kept.take(&key(2)).is_none());
    assert!(kept.take(&key(1)).is_some());
    assert!(kept.take(&key(1)).is_none(), "one query uses it at a time");
    for seq in 0..20 {
        assert!(!kept.put(key(seq), QueryDatabase::new(dir.path(), FILE_BYTES_MAX).unwrap()));
    }
    assert!(kept.sweep(), "they are new");
    assert_eq!((0..20).filter(|seq| kept.take(&key(*seq)).is_some()).count(), 8);
    assert!(!kept.sweep(), "nothing is left");
}

/// Returns the rows in `bytes` as JSON lines.
fn rows_of(bytes: Vec<u8>, format: RowFormat, dir: &Path) -> String {
    let mut text = Vec::new();
    let mut print = |batch: &arrow_array::RecordBatch| {
        let mut writer = LineDelimitedWriter::new(&mut text);
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    };
    match format {
        RowFormat::JsonLines => return String::from_utf8(bytes).unwrap(),
        RowFormat::Json => {
            let rows: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
            return rows.iter().map(|row| format!("{row}\n")).collect();
        }
        RowFormat::Parquet => {
            let path = dir.join("rows.parquet");
            fs::write(&path, bytes).unwrap();
            let file = fs::File::open(path).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
            reader.for_each(|batch| print(&batch.unwrap()));
        }
        RowFormat::Arrow => {
            StreamReader::try_new(&bytes[..], None).unwrap().for_each(|batch| print(&batch.unwrap()));
        }
        RowFormat::Csv => unreachable!("it has no types"),
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn every_format_holds_the_rows_of_a_dataset() {
    let dir = weir_testing::folder();
    let repo = repository(&dir.path().join("a"));
    let dataset = dir.path().join("dataset");
    mined(&dataset, FileFormat::JsonLines, &[source("a", &dir.path().join("a"))]);
    let write = |table: TableKind, columns: &BTreeSet<&'static str>, format| {
        let mut out = Vec::new();
        write_table(&present(&repo, "a"), table, columns, format, &mut out, &Stop::default()).unwrap();
        out
    };
    let values = |text: &str| -> Vec<serde_json::Value> {
        let mut rows: Vec<_> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        rows.sort_by_key(serde_json::Value::to_string);
        rows
    };
    for &table in TableKind::ALL.iter().filter(|table| **table != TableKind::Mining) {
        let all: BTreeSet<&str> = table.column_names().collect();
        let wanted = values(&rows(&dataset, table).join("\n"));
        for format in RowFormat::ALL.into_iter().filter(|format| *format != RowFormat::Csv) {
            let found = values(&rows_of(write(table, &all, format), format, dir.path()));
            assert_eq!(found.len(), wanted.len(), "{table:?} {format:?}");
            if table != TableKind::OriginVisit {
                assert_eq!(found, wanted, "{table:?} {format:?}");
            }
        }
        let csv = String::from_utf8(write(table, &all, RowFormat::Csv)).unwrap();
        let names: Vec<&str> = table.column_names().collect();
        assert_eq!(csv.lines().next().unwrap(), names.join(","), "{table:?}");
    }
    let some = BTreeSet::from(["author_date", "id"]);
    let csv = String::from_utf8(write(TableKind::Revision, &some, RowFormat::Csv)).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (51, "id,author_date"));
    assert!(lines[1].ends_with(",2023-11-14T22:13:20Z") && lines[1].len() == 61, "{}", lines[1]);
}
