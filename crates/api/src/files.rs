//! Folders and files of a revision.

use std::sync::Arc;

use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_browse::{
    FolderEntry, FolderList, ToldCommits, entry_at, last_commits, list_folder, tree_of_revision,
};
use weir_git::{Kind, Oid};
use weir_repo::Repo;
use weir_serve::Effort;

use crate::answer::{ApiResult, FileBytes, PathText, file, json};
use crate::commits::CommitSummary;
use crate::page::{EntryPage, WantedPage, not_a_cursor};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Commits that are gone through at most for the last commits of a folder.
const WALKED_MAX: usize = 200_000;
/// The mode of a submodule in a tree.
const SUBMODULE: u32 = 0o160_000;
/// The largest file that is sent. The server has it in memory meanwhile.
const FILE_BYTES_MAX: u64 = 32 << 20;
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// A page that somebody has committed does nothing in the name of this server.
const SANDBOX: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// An entry of a folder.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FileEntry {
    #[serde(flatten)]
    path: PathText,
    /// `blob` for a file or a symbolic link, `tree` for a folder, `commit` for a submodule.
    kind: &'static str,
    /// The mode, in octal digits.
    mode: String,
    /// Its id.
    oid: String,
    /// The bytes of a file.
    size: Option<u64>,
    /// The last commit that changed it, if `last_commits` asks for it and it is not too far back.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_commit: Option<CommitSummary>,
}

impl From<FolderEntry> for FileEntry {
    fn from(entry: FolderEntry) -> FileEntry {
        FileEntry {
            path: PathText::of(&entry.path),
            kind: entry.kind,
            mode: format!("{:06o}", entry.mode),
            oid: entry.oid.to_string(),
            size: entry.size,
            last_commit: None,
        }
    }
}

/// The revision and the path that a client names.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct NamedPath {
    /// A branch, a tag or an id; HEAD, if it is not there.
    revision: Option<String>,
    /// The path from the top.
    path: Option<String>,
}

/// The revision and the file that a client names.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct NamedFile {
    /// A branch, a tag or an id; HEAD, if it is not there.
    revision: Option<String>,
    /// The path from the top.
    #[param(min_length = 1)]
    path: String,
}

/// Wishes of a client about a folder.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct FolderWishes {
    /// Whether to list the files in the folder and in all folders below, in place of its entries.
    recursive: Option<bool>,
    /// Whether to tell the last commit that changed each entry (`git log -1 -- PATH`). Not with `recursive`.
    last_commits: Option<bool>,
}

/// Lists the entries of a folder in the order of git, with the sizes of files.
#[utoipa::path(
    get, operation_id = "listFiles",
    path = "/api/v1/repositories/{repository}/tree", tag = "files",
    params(
        NamedRepository,
        NamedPath, FolderWishes, WantedPage
    ),
    responses(
        (status = 200, description = "A page of entries.", body = EntryPage<FileEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn tree(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let revision = parameters.text("revision")?;
    // An empty repository has an empty folder.
    let is_default = revision.is_none() && page.cursor.is_none();
    let mut revision = revision.unwrap_or_else(|| "HEAD".to_owned());
    let mut list = FolderList {
        path: parameters.bytes("path").unwrap_or_default(),
        is_recursive: parameters.flag("recursive")?,
        after: None,
        count_max: page.limit,
    };
    let has_commits = parameters.flag("last_commits")?;
    parameters.end()?;
    if has_commits && list.is_recursive {
        return Err(Problem::bad_request("'last_commits' is for one folder, not with 'recursive'"));
    }
    // The next page is of the same revision, even if the branch has moved.
    if let Some(cursor) = &page.cursor {
        let colon = cursor.iter().position(|byte| *byte == b':').ok_or_else(not_a_cursor)?;
        revision = String::from_utf8(cursor[..colon].to_vec()).map_err(|_| not_a_cursor())?;
        list.after = Some(cursor[colon + 1..].to_vec());
    }
    let (_, repo) = state.open(&request).await?;
    if is_default && list.path.is_empty() && repo.refs().head_oid().is_none() {
        return json(&request.headers, &EntryPage::<FileEntry>::empty());
    }
    let listed = move || -> Result<EntryPage<FileEntry>, Problem> {
        let (top, commit) = tree_of_revision(&repo, &revision)?;
        let (entries, has_more) = list_folder(&repo, &top, &list)?;
        let place = entries.last().filter(|_| has_more).map(FolderEntry::place);
        let next = place.map(|place| {
            let revision = commit.unwrap_or(top).to_string();
            page.list.cursor_at([revision.as_bytes(), b":", &place].concat())
        });
        let commits = match commit.filter(|_| has_commits) {
            Some(commit) => last_commits_of(&repo, &commit, &list.path, &entries)?,
            None => Vec::new(),
        };
        let mut items: Vec<FileEntry> = entries.into_iter().map(FileEntry::from).collect();
        items.iter_mut().zip(commits).for_each(|(item, commit)| item.last_commit = commit);
        Ok(EntryPage { items, next })
    };
    let client = &request.client;
    let page = if has_commits {
        client.compute(Effort::Bounded, move |_| listed()).await
    } else {
        client.run(listed).await
    };
    json(&request.headers, &page??)
}

/// Returns the last commit that changed each entry of a folder.
fn last_commits_of(
    repo: &Repo,
    from: &Oid,
    path: &[u8],
    entries: &[FolderEntry],
) -> Result<Vec<Option<CommitSummary>>, Problem> {
    let names: Vec<&[u8]> = entries.iter().map(FolderEntry::name).collect();
    let mut told = ToldCommits::new(repo);
    let found = last_commits(repo, from, path, &names, WALKED_MAX)?;
    let summaries = found.iter().map(|oid| oid.map(|oid| Ok(told.read(&oid)?.into())).transpose());
    summaries.collect()
}

/// Sends a file as it is stored. The target of a symbolic link is its content. Ranges and conditional
/// requests are understood.
#[utoipa::path(
    get, operation_id = "getFile",
    path = "/api/v1/repositories/{repository}/file", tag = "files",
    params(NamedRepository, NamedFile),
    responses(
        (status = 200, description = "The file.", content(
            (String = "text/plain; charset=utf-8"), (FileBytes = "application/octet-stream")
        )),
        (status = 206, description = "The part of it that the header `Range` asks for."),
        (status = 304, description = "The client has it, by the header `If-None-Match`."),
        (status = 416, description = "The file is shorter."),
        Problems
    )
)]
pub(crate) async fn raw(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let revision = request.parameters.text("revision")?.unwrap_or_else(|| "HEAD".to_owned());
    let path = request.parameters.bytes("path");
    request.parameters.end()?;
    let path = path.ok_or_else(|| Problem::bad_request("the parameter 'path' is missing"))?;
    let (_, repo) = state.open(&request).await?;
    let headers = request.headers.clone();
    let answer = move || -> ApiResult {
        let (top, _) = tree_of_revision(&repo, &revision)?;
        let (mode, oid) = entry_at(&repo, &top, &path)?;
        let shown = String::from_utf8_lossy(&path);
        if mode == SUBMODULE {
            let words = format!("'{shown}' is a submodule: its files are in another repository");
            return Err(Problem::bad_request(words));
        }
        let mut reader = repo.reader();
        match reader.kind_and_size(&oid).map_err(weir_browse::Error::from)? {
            Some((Kind::Blob, bytes)) if bytes <= FILE_BYTES_MAX => {}
            Some((Kind::Blob, bytes)) => {
                let words =
                    format!("'{shown}' has {bytes} bytes, more than the API sends; clone the repository");
                return Err(Problem::too_large(words));
            }
            _ => return Err(Problem::bad_request(format!("'{shown}' is no file"))),
        }
        let data = reader.require(&oid).map_err(weir_browse::Error::from)?.data;
        let is_text = std::str::from_utf8(&data).is_ok_and(|text| !text.contains('\0'));
        let mut response = file(&headers, &oid.to_string(), if is_text { TEXT } else { BYTES }, &data)?;
        let head = response.headers_mut();
        if head.contains_key(CONTENT_TYPE) {
            head.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            head.insert(CONTENT_SECURITY_POLICY, SANDBOX);
        }
        Ok(response)
    };
    request.client.run(answer).await?
}
