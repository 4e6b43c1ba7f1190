//! The files that differ between two revisions.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_browse::{commit_of, tree_of_revision};
use weir_mine::{DifferenceSide, FileDifference, Lines, RenameOptions, compare_trees};

use crate::answer::{ApiResult, json};
use crate::page::{EntryPage, WantedPage, cursor_at, not_a_cursor};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Files that may differ at most.
const FILES_MAX: usize = 10_000;

/// A file that differs.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DiffEntry {
    /// `A` for added, `D` for deleted, `M` for modified, `R` for renamed, `T` for another type, as git has
    /// it.
    status: char,
    /// The similarity in percent, of a file that was renamed.
    similarity: Option<u8>,
    /// The file before; null, if it is new.
    old: Option<DiffSide>,
    /// The file after; null, if it is gone.
    new: Option<DiffSide>,
    /// Lines that were added; null for a binary file.
    insertions: Option<u64>,
    /// Lines that were removed; null for a binary file.
    deletions: Option<u64>,
}

/// One side of a difference.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DiffSide {
    /// The path. U+FFFD replaces what is not UTF-8.
    path: String,
    /// The mode, in octal digits.
    mode: String,
    /// The id.
    oid: String,
}

impl From<DifferenceSide> for DiffSide {
    fn from(side: DifferenceSide) -> DiffSide {
        DiffSide {
            path: String::from_utf8_lossy(&side.path).into_owned(),
            mode: format!("{:06o}", side.mode.bits()),
            oid: side.oid.to_string(),
        }
    }
}

impl From<FileDifference> for DiffEntry {
    fn from(file: FileDifference) -> DiffEntry {
        let (insertions, deletions) = match file.lines {
            Lines::Text { insertions, deletions } => (Some(insertions), Some(deletions)),
            Lines::Binary | Lines::Unavailable => (None, None),
        };
        DiffEntry {
            status: file.status.letter(),
            similarity: (file.similarity > 0).then_some(file.similarity),
            old: file.old.map(DiffSide::from),
            new: file.new.map(DiffSide::from),
            insertions,
            deletions,
        }
    }
}

/// Two revisions.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct TwoRevisions {
    /// The revision before; the first parent of `head`, if it is not there.
    base: Option<String>,
    /// The revision after; HEAD, if it is not there.
    head: Option<String>,
}

/// Lists the files that differ between two revisions, with renames and the numbers of lines, as
/// `git diff --raw --numstat -M BASE HEAD` does.
#[utoipa::path(
    get, operation_id = "listDiff",
    path = "/api/v1/repositories/{repository}/diff", tag = "history",
    params(NamedRepository, TwoRevisions, WantedPage),
    responses(
        (status = 200, description = "A page of files.", body = EntryPage<DiffEntry>),
        (status = 422, description = "More than 10,000 files differ.", body = Problem,
            content_type = "application/problem+json"),
        NotModified,
        Problems
    )
)]
pub(crate) async fn files(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let parameters = &mut request.parameters;
    let page = WantedPage::take(parameters)?;
    let mut base = parameters.text("base")?.filter(|base| !base.is_empty());
    let mut head = parameters.text("head")?.unwrap_or_else(|| "HEAD".to_owned());
    parameters.end()?;
    let mut passed: usize = 0;
    // The next page is of the same revisions, even if a branch has moved.
    if let Some(cursor) = page.cursor_text()? {
        let mut parts = cursor.split(':');
        let mut next = || parts.next().ok_or_else(not_a_cursor);
        base = Some(next()?.to_owned()).filter(|base| !base.is_empty());
        next()?.clone_into(&mut head);
        passed = next()?.parse().map_err(|_| not_a_cursor())?;
    }
    let (_, repo) = state.open(&request).await?;
    let compared = move || -> Result<EntryPage<DiffEntry>, Problem> {
        let (new, commit) = tree_of_revision(&repo, &head)?;
        let before = match (base, commit) {
            (Some(base), _) => Some(tree_of_revision(&repo, &base)?),
            (None, Some(_)) => {
                let parents =
                    repo.history().parents(&commit_of(&repo, &head)?).map_err(weir_browse::Error::from)?;
                parents.first().map(|parent| tree_of_revision(&repo, &parent.to_string())).transpose()?
            }
            (None, None) => None,
        };
        let old = before.map(|(tree, _)| tree);
        let options = RenameOptions::default();
        let end = passed.saturating_add(page.limit);
        let found = compare_trees(&repo, old.as_ref(), Some(&new), &options, FILES_MAX, passed..end)
            .map_err(weir_browse::Error::from)?;
        if found.is_too_large {
            let words = format!("more than {FILES_MAX} files differ; use 'git diff' in a clone");
            return Err(Problem::new(hyper::StatusCode::UNPROCESSABLE_ENTITY, words));
        }
        let next = (end < found.count).then(|| {
            let base = before.map(|(tree, commit)| commit.unwrap_or(tree).to_string()).unwrap_or_default();
            cursor_at(format!("{base}:{}:{end}", commit.unwrap_or(new)))
        });
        let items = found.files.into_iter().map(DiffEntry::from).collect();
        Ok(EntryPage { items, next })
    };
    json(&request.headers, &request.client.run(compared).await??)
}
