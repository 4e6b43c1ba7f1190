//! SQL over tables that are mined of repositories.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_ground::{Stop, Timestamp};
use weir_serve::Effort;
use weir_tables::{QueryAnswer, QueryDatabase, QueryError, QueryKey, QueryLimits};

use crate::answer::{ApiResult, json, whole};
use crate::problem::{NotModified, Problem, ProblemCode, Problems};
use crate::request::ApiRequest;
use crate::state::{ApiState, OpenedRepository, QueryRoom};

/// Repositories of one query.
const REPOSITORIES_MAX: usize = 50;
/// Rows of an answer, and those of one that names no number.
const ROWS_MAX: u64 = 10_000;
const ROWS: u64 = 1000;
/// Bytes of the values of an answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How often databases are dropped that nobody uses.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The answer of a query.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes answers")]
pub(crate) struct QueryRows {
    /// The names of the columns.
    columns: Vec<String>,
    /// The rows. Ids and other bytes are hexadecimal.
    rows: Vec<Vec<serde_json::Value>>,
    /// Whether there are more rows.
    is_truncated: bool,
}

/// The query of a client.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct WantedQuery {
    /// A query in the SQL of SQLite.
    #[param(min_length = 1)]
    sql: String,
    /// The repositories whose rows the tables have: up to 50 names or numbers, with commas between them.
    #[param(min_length = 1)]
    repositories: String,
    /// The most rows.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: Option<u64>,
    /// `json` or `csv`.
    #[param(inline)]
    format: Option<QueryFormat>,
}

/// A format of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum QueryFormat {
    #[default]
    Json,
    Csv,
}

/// Runs a query over tables of repositories, which hold what the refs reach now. `listTables` names the
/// tables and their columns; `origin` is the name of the repository. Times are texts in UTC such as
/// 2024-05-01T12:00:00Z. Ids are blobs: compare them with x'83BA...'; the answer has them in hexadecimal.
/// `text REGEXP pattern` works. Only the columns that the query reads are mined: name those that you need.
#[utoipa::path(
    get, operation_id = "query", path = "/api/v1/query", tag = "tables", params(WantedQuery),
    responses(
        (status = 200, description = "The rows.", content(
            (QueryRows = "application/json"), (String = "text/csv")
        )),
        (status = 422, description = "The query or its answer takes too much.", body = Problem,
            content_type = "application/problem+json"),
        NotModified,
        Problems
    )
)]
pub(crate) async fn rows(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let room = state.queries.clone().ok_or_else(|| {
        let words = "queries are turned off here (serve.sql in weir.toml)";
        Problem::not_found(words)
    })?;
    let parameters = &mut request.parameters;
    let missing = |name| Problem::bad_request(format!("the parameter '{name}' is missing"));
    let sql = parameters.text("sql")?.ok_or_else(|| missing("sql"))?;
    let names = parameters.text("repositories")?.ok_or_else(|| missing("repositories"))?;
    let rows_max = parameters.number("limit", 1..=ROWS_MAX)?.unwrap_or(ROWS) as usize;
    let format = match parameters.text("format")?.as_deref() {
        None | Some("json") => QueryFormat::Json,
        Some("csv") => QueryFormat::Csv,
        Some(_) => return Err(Problem::bad_request("the parameter 'format' must be json or csv")),
    };
    parameters.end()?;
    let mut repositories = state.open_all(&request, &names, REPOSITORIES_MAX).await?;
    if repositories.is_empty() {
        return Err(missing("repositories"));
    }
    repositories.sort_by(|a, b| a.origin.cmp(&b.origin));
    repositories.dedup_by(|a, b| a.origin == b.origin);
    let limits = QueryLimits { rows_max, bytes_max: ANSWER_BYTES_MAX };
    let query = PlannedQuery { sql, repositories, limits, now: state.now() };
    let answer = request.client.compute(Effort::Open, move |stop| query.run(&room, stop)).await??;
    match format {
        QueryFormat::Json => json(&request.headers, &answer),
        QueryFormat::Csv if answer.is_truncated => {
            let words =
                format!("there are more than {} rows: set 'limit', or LIMIT in the query", answer.rows.len());
            Err(Problem::too_large(words))
        }
        QueryFormat::Csv => {
            whole(&request.headers, HeaderValue::from_static("text/csv; charset=utf-8"), answer.to_csv())
        }
    }
}

/// A query and what it is about.
struct PlannedQuery {
    sql: String,
    repositories: Vec<OpenedRepository>,
    limits: QueryLimits,
    now: Timestamp,
}

/// Keeps a database for the next queries, and drops it when nobody has asked for it in a while.
fn keep(room: &Arc<QueryRoom>, key: QueryKey, database: QueryDatabase) {
    if !room.kept.put(key, database) {
        return;
    }
    let room = room.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            if !room.kept.sweep() {
                return;
            }
        }
    });
}

impl PlannedQuery {
    fn run(&self, room: &Arc<QueryRoom>, stop: &Stop) -> Result<QueryAnswer, Problem> {
        let stop = stop.within(room.timeout);
        let problem = |e| problem(e, room);
        let key: QueryKey =
            self.repositories.iter().map(|opened| (opened.origin.clone(), opened.sum())).collect();
        let mut database = match room.kept.take(&key) {
            Some(database) => database,
            None => QueryDatabase::new(&room.folder, room.bytes_max).map_err(problem)?,
        };
        let wanted = match database.reads(&self.sql) {
            Ok(wanted) => wanted,
            Err(e) => {
                keep(room, key, database);
                return Err(problem(e));
            }
        };
        let load = database.load(&wanted).map_err(problem)?;
        let mut mine = self.repositories.iter().map(|opened| load.mine(&opened.present(self.now), 1, &stop));
        mine.try_for_each(|mined| mined.map_err(problem))?;
        let mut database = load.finish().map_err(problem)?;
        let answer = database.run(&self.sql, self.limits, &stop);
        keep(room, key, database);
        answer.map_err(problem)
    }
}

fn problem(e: QueryError, room: &QueryRoom) -> Problem {
    let timed_out = |what: &str, remedy: &str| {
        let seconds = room.timeout.as_secs();
        let words = format!("{what} longer than {seconds} s (serve.sql_timeout){remedy}");
        Problem::too_large(words).of(ProblemCode::TimedOut)
    };
    match e {
        QueryError::Statement(words) => Problem::bad_request(words),
        QueryError::TooLarge(words) => Problem::too_large(words),
        QueryError::Stopped => timed_out("the query took", ""),
        QueryError::StoppedMining => {
            timed_out("to mine its tables took", "; name fewer repositories or columns")
        }
        QueryError::Unread { .. } | QueryError::Mine { .. } | QueryError::File(_) | QueryError::Output(_) => {
            Problem::failed(&e)
        }
    }
}
