//! `mine`: writes commits, tags, changed files and refs as tables.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use weir_arguments::{DiffMerges, Global, MineArgs, MineFormat, MineWhat};
use weir_catalog::{EventKind, PoolEvent};
use weir_ground::{Stop, name_matches};
use weir_mine::{Detect, MergeMode, MineOptions, MineProgress, RenameOptions};
use weir_pool::Pool;
use weir_process::stop_on_signal;
use weir_tables::{
    DatabaseStore, Dataset, FileFormat, JsonStream, MineEvent, MineRun, MineSettings, MineSource, MineTotals,
    mine_all,
};
use weir_terminal::output;

use crate::error::{Error, Result, SOME_FAILED};
use crate::mined_sources::{NamedSources, cores, sources};
use crate::pool::open_pool;

/// The buffer of rows that are printed.
const STREAM_BYTES: usize = 128 << 10;
/// Time between redraws of the progress bar.
const TICK: Duration = Duration::from_millis(200);

/// Removes the rows of what `args` name.
fn forget(global: &Global, args: &MineArgs) -> Result<ExitCode> {
    let pool = if args.output.is_none() { Some(open_pool(global)?) } else { None };
    let whole = |text: &String| Path::new(text).canonicalize().ok();
    let paths: Vec<String> = args
        .repos
        .iter()
        .filter_map(whole)
        .map(|path| output::printable(path.as_os_str().as_encoded_bytes()))
        .collect();
    let is_meant = |name: &str| {
        paths.iter().any(|path| path == name) || args.repos.iter().any(|pattern| name_matches(pattern, name))
    };
    check_place(args, pool.as_ref())?;
    let forgotten = match open_output(args, pool.as_ref())? {
        OpenOutput::Dataset(mut dataset) => weir_tables::forget(&mut dataset, &is_meant)?,
        OpenOutput::Database(mut database) => weir_tables::forget(&mut database, &is_meant)?,
        OpenOutput::Stream(_) => Vec::new(),
    };
    if forgotten.is_empty() {
        return Err(Error::Message(format!("no rows of '{}' are there", args.repos.join("', '"))));
    }
    if global.json {
        output::json(&json!({ "forgotten": forgotten }))?;
    } else if !global.quiet {
        for name in &forgotten {
            writeln!(output::stdout(), "forgotten {name}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn mine(global: &Global, args: &MineArgs) -> Result<ExitCode> {
    if args.forget {
        return forget(global, args);
    }
    let NamedSources { paths, patterns } = NamedSources::of(&args.repos);
    let pool = match args.repos.is_empty() || !patterns.is_empty() {
        true => Some(open_pool(global)?),
        false => None,
    };
    let options = options(args);
    let has_refs = args.what.contains(&MineWhat::Refs);
    let sources = sources(pool.as_ref(), &patterns, &paths)?;
    let is_stream =
        args.to == MineFormat::Jsonl && args.output.as_deref().is_none_or(|o| o == Path::new("-"));
    let rows = match is_stream {
        true => {
            let out = BufWriter::with_capacity(STREAM_BYTES, std::io::stdout());
            OpenOutput::Stream(JsonStream::new(Box::new(output::PlainJson(out))))
        }
        false => open_output(args, pool.as_ref())?,
    };
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let screen = MineScreen::new(global, &sources, is_stream);
    let clock = weir_catalog::clock::clock();
    let run = MineRun {
        options: &options,
        has_refs,
        threads: args.jobs.map_or_else(cores, usize::from),
        clock: &clock,
        progress: &screen.progress,
        tell: &|source, event| screen.tell(source, event),
        time_max: args.timeout,
        stop: &stop,
    };
    let totals = std::thread::scope(|scope| {
        let drawing = weir_ground::thread::spawn_scoped("progress", scope, || screen.draw());
        let totals = match rows {
            OpenOutput::Dataset(dataset) => mine_all(&sources, dataset, &run),
            OpenOutput::Database(database) => mine_all(&sources, database, &run),
            OpenOutput::Stream(stream) => mine_all(&sources, stream, &run),
        };
        screen.end.stop();
        drop(drawing);
        totals
    });
    let totals = totals?;
    if let Some(pool) = &pool {
        let MineTotals { mined, unchanged, failed, .. } = totals;
        let kind = EventKind::Mined { mined, unchanged, failed };
        pool.catalog.events().log(&PoolEvent { time: clock.now(), subject: None, kind })?;
    }
    screen.finish(&totals)
}

fn options(args: &MineArgs) -> MineOptions {
    let has = |what| args.what.contains(&what);
    MineOptions {
        has_revisions: has(MineWhat::Commits),
        has_changes: has(MineWhat::Changes) || has(MineWhat::Numstat),
        has_lines: has(MineWhat::Numstat),
        merges: match args.diff_merges {
            DiffMerges::Off => MergeMode::Off,
            DiffMerges::FirstParent => MergeMode::FirstParent,
            DiffMerges::Separate => MergeMode::Separate,
        },
        renames: RenameOptions {
            detect: match (args.no_renames, args.find_copies) {
                (true, _) => Detect::Nothing,
                (_, true) => Detect::Copies,
                _ => Detect::Renames,
            },
            similarity: args.find_renames,
            limit: args.rename_limit,
            counts_last_line: !args.old_similarity,
        },
        changes_max: args.max_changes,
    }
}

/// Checks that a folder or file of tables is there: none is made only to forget what it does not have.
fn check_place(args: &MineArgs, pool: Option<&Pool>) -> Result<()> {
    let name = match args.to {
        MineFormat::Parquet | MineFormat::Jsonl => "mined",
        MineFormat::Sqlite => "mined.sqlite",
        MineFormat::Postgres => return Ok(()),
    };
    let path = place(args, pool, name)?;
    if path.exists() {
        return Ok(());
    }
    Err(Error::Message(format!("there are no tables at '{}'", path.display())))
}

/// The place to which rows go.
enum OpenOutput {
    Dataset(Dataset),
    Database(DatabaseStore),
    Stream(JsonStream<Box<dyn Write + Send>>),
}

/// Opens the dataset or the database that the rows go to.
fn open_output(args: &MineArgs, pool: Option<&Pool>) -> Result<OpenOutput> {
    let settings = MineSettings { options: options(args), has_refs: args.what.contains(&MineWhat::Refs) };
    let dataset = |format| {
        let folder = place(args, pool, "mined")?;
        Ok(OpenOutput::Dataset(Dataset::open(&folder, format, &settings)?))
    };
    let url = args.output.as_deref().and_then(Path::to_str).filter(|text| text.contains("://"));
    if let (Some(url), true) = (url, args.to != MineFormat::Postgres) {
        let url = weir_sql::redacted(url);
        return Err(Error::Message(format!(
            "'{url}' is a database, and no folder or file: add --to postgres"
        )));
    }
    match args.to {
        MineFormat::Parquet => dataset(FileFormat::Parquet),
        MineFormat::Jsonl => dataset(FileFormat::JsonLines),
        MineFormat::Sqlite => {
            let file = place(args, pool, "mined.sqlite")?;
            Ok(OpenOutput::Database(DatabaseStore::sqlite(&file, &settings)?))
        }
        MineFormat::Postgres => {
            let url = args.output.as_deref().and_then(Path::to_str).ok_or_else(|| {
                Error::Message("give the database with --output postgres://USER@HOST/DATABASE".to_owned())
            })?;
            let (client, place) = (weir_sql::connect_postgres(url)?, weir_sql::redacted(url));
            Ok(OpenOutput::Database(DatabaseStore::postgres(client, &place, &settings)?))
        }
    }
}

/// Returns the path of the dataset or of the database file, which is `name` in a pool.
fn place(args: &MineArgs, pool: Option<&Pool>, name: &str) -> Result<PathBuf> {
    match (&args.output, pool) {
        (Some(path), _) if path == Path::new("-") => {
            Err(Error::Message("only jsonl can be printed; give a place with --output".to_owned()))
        }
        (Some(path), _) => Ok(path.clone()),
        (None, Some(pool)) => Ok(pool.path.join(name)),
        (None, None) => Err(Error::Message(
            "say where the tables go with --output, or print rows with --to jsonl".to_owned(),
        )),
    }
}

/// Shows what is done.
struct MineScreen<'g> {
    global: &'g Global,
    progress: MineProgress,
    bar: Option<ProgressBar>,
    /// What was told, as JSON, if it is wanted.
    told: Option<Mutex<Vec<serde_json::Value>>>,
    /// Rows go to standard output, so that lines for the user go to standard error.
    is_stream: bool,
    end: Stop,
}

/// Returns what mining does now, with a number that moves. Only numbers that are known have a total: commits
/// and files are found as mining goes on.
fn phase(progress: &MineProgress) -> String {
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    let (commits, written, changes) =
        (count(&progress.commits), count(&progress.written), count(&progress.changes));
    let (compared, pairs, counted) =
        (count(&progress.compared), count(&progress.pairs), count(&progress.counted));
    let found = format!("{commits} commits, {changes} file changes");
    match () {
        () if counted < pairs => format!("{found}; counting lines, {} files left", pairs - counted),
        () if compared > 0 && compared < commits => {
            format!("{found}; comparing trees, {} commits left", commits - compared)
        }
        () if written < commits => format!("{found}; writing, {} commits left", commits - written),
        () => format!("{found}; writing"),
    }
}

impl MineScreen<'_> {
    fn new<'g>(global: &'g Global, sources: &[MineSource<'_>], is_stream: bool) -> MineScreen<'g> {
        let shows_bar = std::io::stderr().is_terminal() && !global.quiet && !global.json;
        let style = "{bar:30} {pos}/{len} repositories; {msg}; {elapsed}";
        let bar = shows_bar.then(|| {
            ProgressBar::new(sources.len() as u64)
                .with_message("starting")
                .with_style(ProgressStyle::with_template(style).expect("a valid template"))
        });
        let told = (global.json && !is_stream).then(Mutex::default);
        MineScreen { global, progress: MineProgress::default(), bar, told, is_stream, end: Stop::default() }
    }

    /// Draws the bar until mining ends.
    fn draw(&self) {
        let Some(bar) = &self.bar else { return };
        while self.end.sleep(TICK) {
            bar.set_position(self.progress.repositories.load(Ordering::Relaxed));
            bar.set_message(phase(&self.progress));
        }
    }

    fn tell(&self, source: &MineSource<'_>, event: &MineEvent) {
        if let Some(told) = &self.told {
            let value = match event {
                MineEvent::Mined { report, took } => json!({
                    "name": source.origin, "result": "mined", "revisions": report.revisions,
                    "releases": report.releases, "file_changes": report.changes, "errors": report.faults,
                    "seconds": took.as_secs_f64(),
                }),
                MineEvent::Unchanged => json!({ "name": source.origin, "result": "unchanged" }),
                MineEvent::Failed(text) => {
                    json!({ "name": source.origin, "result": "failed", "error": text })
                }
            };
            told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(value);
            return;
        }
        let name = output::printable(source.origin.as_bytes());
        let line = match event {
            MineEvent::Mined { report, took } => {
                let errors = match report.faults {
                    0 => String::new(),
                    n => format!(", {n} errors (see mining_error)"),
                };
                format!(
                    "mined {name}: {} commits, {} tags, {} file changes{errors} in {:.1} s",
                    report.revisions,
                    report.releases,
                    report.changes,
                    took.as_secs_f64()
                )
            }
            MineEvent::Unchanged if self.global.verbose > 0 => format!("unchanged {name}"),
            MineEvent::Unchanged => return,
            MineEvent::Failed(text) => {
                let text = output::printable(text.as_bytes());
                return self.print(&format!("failed {name}: {text}"), true);
            }
        };
        if !self.global.quiet {
            self.print(&line, self.is_stream);
        }
    }

    fn print(&self, line: &str, is_error: bool) {
        let print = || {
            let _ = match is_error {
                true => writeln!(output::stderr(), "{line}"),
                false => writeln!(output::stdout(), "{line}"),
            };
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn finish(self, totals: &MineTotals) -> Result<ExitCode> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(told) = self.told {
            output::json(&told.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))?;
        } else if !self.global.quiet && !self.is_stream {
            let stopped = if totals.is_stopped { "; stopped, run again to go on" } else { "" };
            let MineTotals { mined, unchanged, failed, .. } = totals;
            writeln!(output::stdout(), "{mined} mined, {unchanged} unchanged, {failed} failed{stopped}")?;
        }
        Ok(match (totals.is_stopped, totals.failed) {
            (true, _) => ExitCode::from(130),
            (false, 0) => ExitCode::SUCCESS,
            (false, _) => ExitCode::from(SOME_FAILED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mine_progress_names_what_runs() {
        let progress = MineProgress::default();
        let add = |n: &AtomicU64, count| {
            n.fetch_add(count, Ordering::Relaxed);
        };
        add(&progress.commits, 10);
        assert_eq!(phase(&progress), "10 commits, 0 file changes; writing, 10 commits left");
        add(&progress.written, 10);
        add(&progress.compared, 4);
        assert_eq!(phase(&progress), "10 commits, 0 file changes; comparing trees, 6 commits left");
        add(&progress.compared, 6);
        add(&progress.pairs, 30);
        add(&progress.counted, 12);
        assert_eq!(phase(&progress), "10 commits, 0 file changes; counting lines, 18 files left");
        add(&progress.counted, 18);
        add(&progress.changes, 7);
        assert_eq!(phase(&progress), "10 commits, 7 file changes; writing");
    }
}
