//! Repositories that are mined in tests, and the rows of datasets.
#![allow(dead_code)] // Each test file uses its own part.

pub mod databases;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use weir_ground::{Clock, Stop, Timestamp};
use weir_mine::{MineOptions, MineProgress, RenameOptions};
use weir_tables::{
    Dataset, Error, FileFormat, MineEvent, MineOutput, MineRun, MineSettings, MineSource, MineTotals,
    TableKind, mine_all,
};
use weir_testing::run_git;

pub fn git(dir: &Path, args: &[&str], input: &[u8]) {
    run_git(dir, args, input);
}

/// Makes a repository of odd commits on top of each other, or adds some.
pub fn add_commits(dir: &Path, from: usize, to: usize) {
    if from == 0 {
        git(dir, &["init", "-q", "--bare", "-b", "main", "."], b"");
    }
    let mut stream = Vec::new();
    for n in from..to {
        let odd: &[u8] = if n % 3 == 0 { b"J\xf6rg" } else { "J\u{f6}rg".as_bytes() };
        writeln!(stream, "commit refs/heads/main\nmark :{}", n + 1).unwrap();
        for who in ["author", "committer"] {
            stream.extend_from_slice(&[who.as_bytes(), b" ", odd, b" <j@example.org> "].concat());
            writeln!(stream, "{} +0100", 1_700_000_000 + n * 60).unwrap();
        }
        if n % 6 == 0 {
            stream.extend_from_slice(b"encoding ISO-8859-1\n");
        }
        stream.extend_from_slice(&[b"data 7\n", odd, &b"\xff\n\n\n"[..7 - odd.len()], b"\n"].concat());
        if n == from && n > 0 {
            stream.extend_from_slice(b"from refs/heads/main^0\n");
        }
        writeln!(stream, "M 644 inline f{}\ndata 3\n{:02}\n", n % 7, n % 100).unwrap();
        stream.extend_from_slice(b"M 644 inline \"n\\377\\303\\274\"\ndata 1\nx\n\n");
    }
    writeln!(stream, "tag v{to}\nfrom refs/heads/main\ntagger T <t@x> 1 +0000\ndata 1\nx").unwrap();
    git(dir, &["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"], &stream);
}

pub fn source<'p>(origin: &str, path: &'p Path) -> MineSource<'p> {
    MineSource {
        origin: origin.to_owned(),
        former: Vec::new(),
        url: None,
        bytes: 0,
        seq: None,
        open: Box::new(move || weir_repo::open_directory(path).map_err(Into::into)),
    }
}

/// Returns settings for commits alone.
pub fn of_commits() -> MineSettings {
    let options = MineOptions { has_revisions: true, ..MineOptions::default() };
    MineSettings { options, has_refs: false }
}

/// Returns settings for refs alone.
pub fn of_refs() -> MineSettings {
    MineSettings { has_refs: true, ..MineSettings::default() }
}

/// What became of all repositories of a run, and of each.
pub type Told = (Result<MineTotals, Error>, Vec<MineEvent>);

/// Mines `sources` into `output`. Returns also what was told of each.
pub fn mined_into(output: impl MineOutput, sources: &[MineSource<'_>]) -> Told {
    mined_on(2, output, sources)
}

/// Mines `sources` into `output` with `threads` threads. Returns also what was told of each.
pub fn mined_on(threads: usize, output: impl MineOutput, sources: &[MineSource<'_>]) -> Told {
    let told = std::sync::Mutex::new(Vec::new());
    let options = MineOptions {
        has_revisions: true,
        has_changes: true,
        has_lines: true,
        renames: RenameOptions::default(),
        ..MineOptions::default()
    };
    let run = MineRun {
        options: &options,
        has_refs: true,
        threads,
        clock: &Clock::set_to(Timestamp(1_750_000_000)),
        progress: &MineProgress::default(),
        tell: &|_, event| told.lock().unwrap().push(event.clone()),
        time_max: None,
        stop: &Stop::default(),
    };
    let totals = mine_all(sources, output, &run);
    (totals, told.into_inner().unwrap())
}

/// Mines `sources` into the dataset `folder`. Returns also what was told of each.
pub fn mined(folder: &Path, format: FileFormat, sources: &[MineSource<'_>]) -> (MineTotals, Vec<MineEvent>) {
    let dataset = Dataset::open(folder, format, &MineSettings::default()).unwrap();
    let (totals, told) = mined_into(dataset, sources);
    (totals.unwrap(), told)
}

/// Returns the files of a table, without hidden ones.
pub fn files(folder: &Path, table: TableKind) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(folder.join(table.name())).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e != "tmp")).collect()
}

/// Returns the rows of a table as JSON lines, sorted.
pub fn rows(folder: &Path, table: TableKind) -> Vec<String> {
    let mut text = Vec::new();
    for file in files(folder, table) {
        if file.extension().is_some_and(|e| e == "jsonl") {
            text.extend(fs::read(file).unwrap());
            continue;
        }
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
        assert_eq!(reader.schema().fields(), table.schema().fields());
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        let mut writer = arrow_json::LineDelimitedWriter::new(&mut text);
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    }
    let text = String::from_utf8(text).unwrap();
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// The tables that do not tell when something was mined.
pub const CONTENT: &[TableKind] = &[
    TableKind::Revision,
    TableKind::RevisionHistory,
    TableKind::RevisionExtraHeader,
    TableKind::Release,
    TableKind::FileChange,
];
