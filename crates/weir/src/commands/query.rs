//! `query`: runs SQL over tables that are mined for it.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use weir_arguments::{Global, QueryArgs};
use weir_ground::Stop;
use weir_process::stop_on_signal;
use weir_tables::{
    CsvRows, MineSource, PresentRepository, QueryAnswer, QueryDatabase, QueryError, QueryLimits, QueryRow,
    QueryValue,
};
use weir_terminal::output;

use crate::error::{Error, Result};
use crate::mined_sources::{NamedSources, cores, sources};
use crate::pool::open_pool;

/// The bytes that are read of standard input. SQLite refuses shorter queries than that for their length.
const STDIN_BYTES_MAX: u64 = 1 << 20;
/// Rows of an answer that is held in memory, and the bytes of their values.
const ROWS_MAX: usize = 10_000_000;
const ANSWER_BYTES_MAX: usize = 1 << 30;

pub(crate) fn query(global: &Global, args: &QueryArgs) -> Result<ExitCode> {
    if args.csv && global.json {
        return Err(Error::Message("give either --csv or --json".to_owned()));
    }
    let mut sql = args.sql.clone();
    if sql == "-" {
        sql.clear();
        io::stdin().lock().take(STDIN_BYTES_MAX).read_to_string(&mut sql)?;
    }
    let NamedSources { paths, patterns } = NamedSources::of(&args.repos);
    let pool = if patterns.is_empty() { None } else { Some(open_pool(global)?) };
    let sources = sources(pool.as_ref(), &patterns, &paths)?;
    if sources.is_empty() {
        let words = format!("nothing of '{}' has been mirrored yet", args.repos.join("', '"));
        return Err(Error::Message(words));
    }
    let signal = Stop::default();
    stop_on_signal(&signal)?;
    let stop = args.timeout.map_or_else(|| signal.clone(), |time| signal.within(time));
    let folder = pool.as_ref().map_or_else(std::env::temp_dir, |pool| pool.path.clone());
    let printed = run(args, &sql, &sources, &folder, &stop).and_then(|mut database| match args.csv {
        true => print_csv(&mut database, args, &sql, &stop),
        false => {
            let rows_max = args.limit.unwrap_or(ROWS_MAX);
            let answer = database.run(&sql, QueryLimits { rows_max, bytes_max: ANSWER_BYTES_MAX }, &stop)?;
            if answer.is_truncated && args.limit != Some(answer.rows.len()) {
                let words = "the answer is too large to be held; print it with --csv, or set a --limit";
                return Err(QueryError::TooLarge(words.to_owned()));
            }
            print(global, &answer).map_err(QueryError::Output)
        }
    });
    match printed {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(QueryError::Output(e)) => Err(e.into()),
        Err(QueryError::Stopped | QueryError::StoppedMining) if signal.is_stopped() => {
            Ok(ExitCode::from(130))
        }
        Err(QueryError::Stopped | QueryError::StoppedMining) => {
            let seconds = args.timeout.unwrap_or_default().as_secs();
            Err(Error::Message(format!("the query took longer than --timeout ({seconds} s)")))
        }
        Err(e) => Err(Error::Message(e.to_string())),
    }
}

/// Returns a database with what the query reads of `sources`.
fn run(
    args: &QueryArgs,
    sql: &str,
    sources: &[MineSource<'_>],
    folder: &Path,
    stop: &Stop,
) -> std::result::Result<QueryDatabase, QueryError> {
    let mut database = QueryDatabase::new(folder, args.max_size)?;
    let wanted = database.reads(sql)?;
    let load = database.load(&wanted)?;
    let now = weir_catalog::clock::clock().now();
    for MineSource { origin, url, open, .. } in sources {
        let repo = open().map_err(|cause| QueryError::Unread { origin: origin.clone(), cause })?;
        let present = PresentRepository { repo: &repo, origin, url: url.as_deref(), now };
        load.mine(&present, args.jobs.map_or_else(cores, usize::from), stop)?;
    }
    load.finish()
}

/// Prints rows as they come.
fn print_csv(
    database: &mut QueryDatabase,
    args: &QueryArgs,
    sql: &str,
    stop: &Stop,
) -> std::result::Result<(), QueryError> {
    let mut rows = CsvRows::new(io::stdout().lock());
    let (mut left, mut has_enough) = (args.limit.unwrap_or(usize::MAX), false);
    let printed = database.each_row(sql, stop, &mut |row| {
        if let QueryRow::Values(_) = row {
            has_enough = left == 0;
            left = left.checked_sub(1).ok_or(io::Error::other("enough"))?;
        }
        rows.write(row)
    });
    if !has_enough {
        printed?;
    }
    rows.flush().map_err(QueryError::Output)
}

fn print(global: &Global, answer: &QueryAnswer) -> io::Result<()> {
    if global.json {
        return output::json(answer).map_err(io::Error::other);
    }
    let is_number =
        |value: &QueryValue| matches!(value, QueryValue::Null | QueryValue::Integer(_) | QueryValue::Real(_));
    let of_numbers = |column: &usize| answer.rows.iter().all(|row| is_number(&row[*column]));
    let right: Vec<usize> = (0..answer.columns.len()).filter(of_numbers).collect();
    // A row is a line.
    let one_line = |value: &QueryValue| value.to_text().trim_end().replace('\n', " ");
    let rows = answer.rows.iter().map(|row| row.iter().map(one_line).collect());
    let all: Vec<Vec<String>> = std::iter::once(answer.columns.clone()).chain(rows).collect();
    output::table(&all, &right).map_err(io::Error::other)
}
