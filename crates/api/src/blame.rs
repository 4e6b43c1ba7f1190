//! The commits that the lines of a file come from.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_browse::{BlameQuery, BlameRange, ToldCommits, blame, commit_of};
use weir_git::OidSet;
use weir_serve::Effort;

use crate::answer::{ApiResult, PathText, json};
use crate::commits::CommitSummary;
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Commits that one answer goes through at most.
const WALKED_MAX: usize = 1_000_000;
/// Ranges of one answer.
const RANGES_MAX: usize = 50_000;

/// Lines that follow each other, in the file and in the commit that they come from.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct BlameEntry {
    /// The number of the first line, from 1 on.
    line: u64,
    /// The number of lines.
    count: u64,
    /// The id of the commit.
    commit: String,
    #[serde(flatten)]
    path: PathText,
    /// The number of the first line in that file of that commit.
    original_line: u64,
    /// Whether that commit has no parents here, as `git blame` marks it with `^`: the lines may be older.
    is_boundary: bool,
}

/// The commits that the lines of a file come from.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct BlameAnswer {
    /// The id of the commit whose file it is.
    commit: String,
    /// The number of lines of the file.
    line_count: u64,
    /// The lines that were asked for, in order.
    ranges: Vec<BlameEntry>,
    /// The commits that they come from.
    commits: Vec<CommitSummary>,
}

impl From<&BlameRange> for BlameEntry {
    fn from(range: &BlameRange) -> BlameEntry {
        BlameEntry {
            line: range.line,
            count: range.count,
            commit: range.commit.to_string(),
            path: PathText::of(&range.path),
            original_line: range.original_line,
            is_boundary: range.is_boundary,
        }
    }
}

/// The lines that a client names.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct NamedLines {
    /// A branch, a tag or an id; HEAD, if it is not there.
    revision: Option<String>,
    /// The path of the file.
    #[param(min_length = 1)]
    path: String,
    /// The number of the first line, from 1 on; 1, if it is not there.
    #[param(minimum = 1, maximum = 4294967295u32)]
    first_line: Option<u64>,
    /// The number of the last line; that of the file, if it is not there.
    #[param(minimum = 1, maximum = 4294967295u32)]
    last_line: Option<u64>,
}

/// Shows the commit that each line of a file comes from, as `git blame` does: a file that was moved is
/// followed.
#[utoipa::path(
    get, operation_id = "blame",
    path = "/api/v1/repositories/{repository}/blame", tag = "history",
    params(NamedRepository, NamedLines),
    responses(
        (status = 200, description = "The lines and their commits.", body = BlameAnswer),
        (status = 422, description = "The answer would take too much.", body = Problem,
            content_type = "application/problem+json"),
        NotModified,
        Problems
    )
)]
pub(crate) async fn lines(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let parameters = &mut request.parameters;
    let revision = parameters.text("revision")?.unwrap_or_else(|| "HEAD".to_owned());
    let path = parameters.bytes("path").filter(|path| !path.is_empty());
    let numbers = 1..=u64::from(u32::MAX);
    let query = BlameQuery {
        path: path.ok_or_else(|| Problem::bad_request("the parameter 'path' is missing"))?,
        first: parameters.number("first_line", numbers.clone())?.unwrap_or(1),
        last: parameters.number("last_line", numbers)?,
        walked_max: WALKED_MAX,
    };
    parameters.end()?;
    let (_, repo) = state.open(&request).await?;
    let kept = state.blames.clone();
    let found = move || -> Result<BlameAnswer, Problem> {
        let from = commit_of(&repo, &revision)?;
        let found = blame(&repo, &from, &query, &kept)?;
        if found.ranges.len() > RANGES_MAX {
            let words = format!("the lines have more than {RANGES_MAX} ranges; ask for fewer lines");
            return Err(Problem::too_large(words));
        }
        let (mut told, mut met, mut commits) = (ToldCommits::new(&repo), OidSet::default(), Vec::new());
        for range in found.ranges.iter().filter(|range| met.insert(range.commit)) {
            commits.push(told.read(&range.commit)?.into());
        }
        Ok(BlameAnswer {
            commit: from.to_string(),
            line_count: found.line_count,
            ranges: found.ranges.iter().map(BlameEntry::from).collect(),
            commits,
        })
    };
    json(&request.headers, &request.client.compute(Effort::Bounded, move |_| found()).await??)
}
