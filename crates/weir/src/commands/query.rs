//! `query`: runs SQL over tables that are mined for it.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_ground::Stop;
use weir_tables::{
    MineSource, PresentRepository, QueryAnswer, QueryDatabase, QueryError, QueryLimits, QueryValue,
};

use crate::cli::{Global, QueryArgs};
use crate::error::{Error, Result};
use crate::mined_sources::{NamedSources, cores, sources};
use crate::output;
use crate::pool::open_pool;
use crate::signals::stop_on_signal;

/// The longest query.
const SQL_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the values of an answer, which is held in memory.
const ANSWER_BYTES_MAX: usize = 1 << 30;

pub(crate) fn query(global: &Global, args: &QueryArgs) -> Result<ExitCode> {
    let mut sql = args.sql.clone();
    if sql == "-" {
        sql.clear();
        io::stdin().lock().take(SQL_BYTES_MAX).read_to_string(&mut sql)?;
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
    let answer = match run(args, &sql, &sources, &folder, &stop) {
        Ok(answer) => answer,
        Err(QueryError::Stopped | QueryError::StoppedMining) if signal.is_stopped() => {
            return Ok(ExitCode::from(130));
        }
        Err(QueryError::Stopped | QueryError::StoppedMining) => {
            let seconds = args.timeout.unwrap_or_default().as_secs();
            return Err(Error::Message(format!("the query took longer than --timeout ({seconds} s)")));
        }
        Err(e) => return Err(Error::Message(e.to_string())),
    };
    print(global, args, &answer)?;
    Ok(ExitCode::SUCCESS)
}

fn run(
    args: &QueryArgs,
    sql: &str,
    sources: &[MineSource<'_>],
    folder: &Path,
    stop: &Stop,
) -> std::result::Result<QueryAnswer, QueryError> {
    let mut database = QueryDatabase::new(folder, args.max_size)?;
    let wanted = database.reads(sql)?;
    let load = database.load(&wanted)?;
    let now = weir_catalog::clock::clock().now();
    for MineSource { origin, url, open, .. } in sources {
        let repo = open().map_err(|words| QueryError::Unread { origin: origin.clone(), words })?;
        let present = PresentRepository { repo: &repo, origin, url: url.as_deref(), now };
        load.mine(&present, args.jobs.map_or_else(cores, usize::from), stop)?;
    }
    let limits = QueryLimits { rows_max: args.limit.unwrap_or(usize::MAX), bytes_max: ANSWER_BYTES_MAX };
    load.finish()?.run(sql, limits, stop)
}

fn print(global: &Global, args: &QueryArgs, answer: &QueryAnswer) -> Result<()> {
    if global.json {
        return output::json(answer);
    }
    if args.csv {
        let mut out = io::stdout().lock();
        out.write_all(&answer.to_csv())?;
        return Ok(out.flush()?);
    }
    let is_number =
        |value: &QueryValue| matches!(value, QueryValue::Null | QueryValue::Integer(_) | QueryValue::Real(_));
    let of_numbers = |column: &usize| answer.rows.iter().all(|row| is_number(&row[*column]));
    let right: Vec<usize> = (0..answer.columns.len()).filter(of_numbers).collect();
    // A row is a line.
    let one_line = |value: &QueryValue| value.to_text().trim_end().replace('\n', " ");
    let rows = answer.rows.iter().map(|row| row.iter().map(one_line).collect());
    let all: Vec<Vec<String>> = std::iter::once(answer.columns.clone()).chain(rows).collect();
    output::table(&all, &right)
}
