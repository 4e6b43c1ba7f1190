//! Search in the files of a revision.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_browse::{GrepLine, GrepPlace, GrepQuery, grep, grep_pattern, tree_of_revision};
use weir_serve::Effort;

use crate::answer::{ApiResult, PathText, json};
use crate::page::{EntryPage, WantedPage, not_a_cursor};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Bytes of files that are searched for one page.
const SEARCHED_BYTES_MAX: u64 = 64 << 20;

/// A line that matches.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LineEntry {
    #[serde(flatten)]
    path: PathText,
    /// The number of the line, from 1 on.
    line: u64,
    /// The line, or its first 1024 bytes. U+FFFD replaces what is not UTF-8.
    text: String,
}

impl From<GrepLine> for LineEntry {
    fn from(line: GrepLine) -> LineEntry {
        let text = String::from_utf8_lossy(&line.text).into_owned();
        LineEntry { path: PathText::of(&line.path), line: line.number, text }
    }
}

/// A search.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct Search {
    /// A regular expression, as Rust's `regex` has them; it is matched against bytes, line by line.
    #[param(min_length = 1, format = Regex)]
    pattern: String,
    /// Whether the pattern is plain text (`git grep -F`).
    literal: Option<bool>,
    /// Whether upper and lower case are the same (`git grep -i`).
    ignore_case: Option<bool>,
    /// A branch, a tag or an id; HEAD, if it is not there.
    revision: Option<String>,
    /// The path of the file or the folder that is searched; all, if it is not there.
    path: Option<String>,
}

/// Lists the lines in files of a revision that match a pattern, as `git grep` finds them. Binary files and
/// files of more than 64 MiB are left out.
#[utoipa::path(
    get, operation_id = "grep",
    path = "/api/v1/repositories/{repository}/grep", tag = "files",
    params(
        NamedRepository, Search, WantedPage
    ),
    responses(
        (status = 200, description = "A page of lines.", body = EntryPage<LineEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn lines(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let pattern = parameters.text("pattern")?.filter(|pattern| !pattern.is_empty());
    let pattern = pattern.ok_or_else(|| Problem::bad_request("the parameter 'pattern' is missing"))?;
    let (is_literal, ignores_case) = (parameters.flag("literal")?, parameters.flag("ignore_case")?);
    let mut revision = parameters.text("revision")?.unwrap_or_else(|| "HEAD".to_owned());
    let path = parameters.bytes("path").unwrap_or_default();
    parameters.end()?;
    let pattern = grep_pattern(&pattern, is_literal, ignores_case)
        .map_err(|why| Problem::bad_request(format!("the parameter 'pattern': {why}")))?;
    let mut after = None;
    // The next page is of the same revision, even if the branch has moved.
    if let Some(cursor) = &page.cursor {
        let mut parts = cursor.splitn(3, |byte| *byte == b':');
        let mut text = || std::str::from_utf8(parts.next()?).ok();
        let (of, line) = text().zip(text()).ok_or_else(not_a_cursor)?;
        of.clone_into(&mut revision);
        let line = line.parse().map_err(|_| not_a_cursor())?;
        after = Some(GrepPlace { path: parts.next().ok_or_else(not_a_cursor)?.to_vec(), line });
    }
    let (_, repo) = state.open(&request).await?;
    let found = move || -> Result<EntryPage<LineEntry>, Problem> {
        let (top, commit) = tree_of_revision(&repo, &revision)?;
        let query = GrepQuery { pattern, path, after, count_max: page.limit, bytes_max: SEARCHED_BYTES_MAX };
        let found = grep(&repo, &top, &query)?;
        let next = found.next.map(|place| {
            let start = format!("{}:{}:", commit.unwrap_or(top), place.line);
            page.list.cursor_at([start.as_bytes(), &place.path].concat())
        });
        Ok(EntryPage { items: found.lines.into_iter().map(LineEntry::from).collect(), next })
    };
    json(&request.headers, &request.client.compute(Effort::Bounded, move |_| found()).await??)
}
