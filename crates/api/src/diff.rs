//! The difference of two revisions: the files, or a patch.

use std::ops::Range;
use std::sync::Arc;

use hyper::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_browse::{PatchWriter, clean_path, commit_of, entry_at, merge_base, tree_of_revision};
use weir_git::Oid;
use weir_mine::{
    DifferenceSide, FileDifference, Lines, RenameOptions, TreeComparison, TreeDifference, compare_trees,
};
use weir_repo::Repo;
use weir_serve::Effort;

use crate::answer::{ApiResult, FileBytes, PathText, json, whole};
use crate::page::{EntryPage, WantedPage, not_a_cursor};
use crate::parameters::Parameters;
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Files that may differ at most.
const FILES_MAX: usize = 10_000;
/// The longest patch, in bytes. One file can make it longer by as much as it has.
const PATCH_BYTES_MAX: usize = 16 << 20;
/// Lines around those that differ, if a client says nothing, and at most.
const CONTEXT: u32 = 3;
const CONTEXT_MAX: u64 = 1000;
const PATCH: HeaderValue = HeaderValue::from_static("text/x-diff");

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
    #[serde(flatten)]
    path: PathText,
    /// The mode, in octal digits.
    mode: String,
    /// The id.
    oid: String,
}

impl From<DifferenceSide> for DiffSide {
    fn from(side: DifferenceSide) -> DiffSide {
        DiffSide {
            path: PathText::of(&side.path),
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

/// Two revisions, and the paths that count.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct TwoRevisions {
    /// The revision before; the first parent of `head`, if it is not there.
    base: Option<String>,
    /// The revision after; HEAD, if it is not there.
    head: Option<String>,
    /// Whether to begin at the best common ancestor of both, in place of `base` itself: what a branch has
    /// changed since it began (`git diff BASE...HEAD`).
    merge_base: Option<bool>,
    /// The path of the file or the folder that is compared; all, if it is not there.
    path: Option<String>,
}

/// A comparison that a client wants.
struct WantedDiff {
    base: Option<String>,
    head: String,
    has_merge_base: bool,
    path: Vec<u8>,
}

/// A tree, and its commit, if it has one.
type NamedTree = (Oid, Option<Oid>);

impl WantedDiff {
    fn take(parameters: &mut Parameters) -> Result<WantedDiff, Problem> {
        let wanted = WantedDiff {
            base: parameters.text("base")?.filter(|base| !base.is_empty()),
            head: parameters.text("head")?.unwrap_or_else(|| "HEAD".to_owned()),
            has_merge_base: parameters.flag("merge_base")?,
            path: clean_path(&parameters.bytes("path").unwrap_or_default()),
        };
        if wanted.has_merge_base && wanted.base.is_none() {
            return Err(Problem::bad_request("'merge_base' needs the parameter 'base'"));
        }
        Ok(wanted)
    }

    /// Returns the tree before and the tree after.
    fn trees(&self, repo: &Repo) -> Result<(Option<NamedTree>, NamedTree), Problem> {
        let (new, commit) = tree_of_revision(repo, &self.head)?;
        let before = match (&self.base, commit) {
            (Some(base), _) if self.has_merge_base => {
                let (base_commit, head_commit) = (commit_of(repo, base)?, commit_of(repo, &self.head)?);
                let common = merge_base(repo, &base_commit, &head_commit)?.ok_or_else(|| {
                    let head = &self.head;
                    Problem::not_found(format!("'{base}' and '{head}' have no common ancestor"))
                })?;
                Some(tree_of_revision(repo, &common.to_string())?)
            }
            (Some(base), _) => Some(tree_of_revision(repo, base)?),
            (None, Some(commit)) => {
                let parents = repo.history().parents(&commit).map_err(weir_browse::Error::from)?;
                parents.first().map(|parent| tree_of_revision(repo, &parent.to_string())).transpose()?
            }
            (None, None) => None,
        };
        Ok((before, (new, commit)))
    }

    /// Checks that the path is that of something in one of the trees: nobody takes a wrong path for one at
    /// which nothing differs.
    fn check_path(&self, repo: &Repo, old: Option<&Oid>, new: &Oid) -> Result<(), Problem> {
        let mut found = [old, Some(new)].into_iter().flatten().map(|tree| entry_at(repo, tree, &self.path));
        if found.any(|found| !matches!(found, Err(weir_browse::Error::NotFound(_)))) {
            return Ok(());
        }
        let path = String::from_utf8_lossy(&self.path);
        Err(Problem::not_found(format!("there is no '{path}' in either revision")))
    }

    /// Returns the files of a range, by number, that differ between two trees.
    fn compare(
        &self,
        repo: &Repo,
        old: Option<NamedTree>,
        new: NamedTree,
        wanted: Range<usize>,
        counts_lines: bool,
    ) -> Result<TreeDifference, Problem> {
        let old = old.map(|(tree, _)| tree);
        self.check_path(repo, old.as_ref(), &new.0)?;
        let options = TreeComparison {
            path: &self.path,
            renames: RenameOptions::default(),
            count_max: FILES_MAX,
            wanted,
            counts_lines,
        };
        let found = compare_trees(repo, old.as_ref(), Some(&new.0), &options);
        let found = found.map_err(weir_browse::Error::from)?;
        if found.is_too_large {
            let words = format!("more than {FILES_MAX} files differ; ask for one path, or use 'git diff'");
            return Err(Problem::too_large(words));
        }
        Ok(found)
    }
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
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let mut wanted = WantedDiff::take(parameters)?;
    parameters.end()?;
    let mut passed: usize = 0;
    // The next page is of the same revisions, even if a branch has moved.
    if let Some(cursor) = page.cursor_text()? {
        let mut parts = cursor.split(':');
        let mut next = || parts.next().ok_or_else(not_a_cursor);
        wanted.base = Some(next()?.to_owned()).filter(|base| !base.is_empty());
        next()?.clone_into(&mut wanted.head);
        passed = next()?.parse().map_err(|_| not_a_cursor())?;
        wanted.has_merge_base = false;
    }
    let (_, repo) = state.open(&request).await?;
    let compared = move || -> Result<EntryPage<DiffEntry>, Problem> {
        let (before, after) = wanted.trees(&repo)?;
        let end = passed.saturating_add(page.limit);
        let found = wanted.compare(&repo, before, after, passed..end, true)?;
        let next = (end < found.count).then(|| {
            let base = before.map(|(tree, commit)| commit.unwrap_or(tree).to_string()).unwrap_or_default();
            page.list.cursor_at(format!("{base}:{}:{end}", after.1.unwrap_or(after.0)))
        });
        let items = found.files.into_iter().map(DiffEntry::from).collect();
        Ok(EntryPage { items, next })
    };
    json(&request.headers, &request.client.compute(Effort::Bounded, move |_| compared()).await??)
}

/// Lines around those that differ.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct PatchContext {
    /// Lines that are shown around those that differ.
    #[param(minimum = 0, maximum = 1000, default = 3)]
    context: Option<u64>,
}

/// Sends the difference of two revisions as a patch, as `git diff --full-index -M BASE HEAD` prints it.
/// Attributes change nothing in it.
#[utoipa::path(
    get, operation_id = "getPatch",
    path = "/api/v1/repositories/{repository}/patch", tag = "history",
    params(NamedRepository, TwoRevisions, PatchContext),
    responses(
        (status = 200, description = "The patch.", content((FileBytes = "text/x-diff"))),
        (status = 422, description = "The patch has more than 16 MiB, or more than 10,000 files differ.",
            body = Problem, content_type = "application/problem+json"),
        NotModified,
        Problems
    )
)]
pub(crate) async fn patch(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let parameters = &mut request.parameters;
    let wanted = WantedDiff::take(parameters)?;
    let context = parameters.number("context", 0..=CONTEXT_MAX)?.map_or(CONTEXT, |lines| lines as u32);
    parameters.end()?;
    let (_, repo) = state.open(&request).await?;
    let written = move || -> Result<Vec<u8>, Problem> {
        let (before, after) = wanted.trees(&repo)?;
        let found = wanted.compare(&repo, before, after, 0..FILES_MAX, false)?;
        let (mut writer, mut patch) = (PatchWriter::new(&repo, context), Vec::new());
        for file in &found.files {
            writer.write(file, &mut patch)?;
            if patch.len() > PATCH_BYTES_MAX {
                let words = format!(
                    "the patch has more than {PATCH_BYTES_MAX} bytes; ask for one path, or use 'git diff'"
                );
                return Err(Problem::too_large(words));
            }
        }
        Ok(patch)
    };
    let mut response =
        whole(&request.headers, PATCH, request.client.compute(Effort::Bounded, move |_| written()).await??)?;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
