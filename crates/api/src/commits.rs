//! Commits: the log of a revision, and one of them.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_browse::{LogQuery, Person, ToldCommit, ToldCommits, commit_of, log};
use weir_serve::Effort;

use crate::answer::{ApiResult, json};
use crate::page::{EntryPage, WantedPage, not_a_cursor};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Commits that one page of a log goes through at most.
const WALKED_MAX: usize = 20_000;

/// Bytes of the first line of a message.
const SUMMARY_BYTES: usize = 1 << 10;
/// Bytes of each message in a list.
const LISTED_MESSAGE_BYTES: usize = 8 << 10;

/// A commit.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CommitEntry {
    /// Its id.
    oid: String,
    /// The id of its tree.
    tree: String,
    /// The ids of its parents.
    parents: Vec<String>,
    /// Who wrote the change.
    author: PersonEntry,
    /// Who made the commit.
    committer: PersonEntry,
    /// The message; in a list, its first 8 KiB.
    message: String,
    /// The kind of its signature, if it has one: `openpgp`, `ssh`, `x509` or `other`. Nobody has checked it.
    signature: Option<&'static str>,
}

/// A person at a time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PersonEntry {
    /// The name.
    name: String,
    /// The email address.
    email: String,
    /// The time, in seconds since 1970.
    time: Option<i64>,
    /// The offset of the time zone, in minutes.
    offset_minutes: Option<i16>,
}

impl From<Person> for PersonEntry {
    fn from(person: Person) -> PersonEntry {
        let Person { name, email, seconds, offset_minutes } = person;
        PersonEntry { name, email, time: seconds, offset_minutes }
    }
}

impl CommitEntry {
    /// Returns the commit with as much of its message as a list has.
    fn shortened(mut self) -> CommitEntry {
        self.message.truncate(self.message.floor_char_boundary(LISTED_MESSAGE_BYTES));
        self
    }
}

impl From<ToldCommit> for CommitEntry {
    fn from(told: ToldCommit) -> CommitEntry {
        CommitEntry {
            oid: told.oid.to_string(),
            tree: told.tree.to_string(),
            parents: told.parents.iter().map(ToString::to_string).collect(),
            author: told.author.into(),
            committer: told.committer.into(),
            message: told.message,
            signature: told.signature,
        }
    }
}

/// A commit in few words.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CommitSummary {
    /// Its id.
    oid: String,
    /// Who wrote the change.
    author: PersonEntry,
    /// Who made the commit.
    committer: PersonEntry,
    /// The first line of the message.
    summary: String,
}

impl From<ToldCommit> for CommitSummary {
    fn from(told: ToldCommit) -> CommitSummary {
        let summary = told.message.lines().next().unwrap_or_default();
        CommitSummary {
            oid: told.oid.to_string(),
            summary: summary[..summary.floor_char_boundary(SUMMARY_BYTES)].to_owned(),
            author: told.author.into(),
            committer: told.committer.into(),
        }
    }
}

/// Commits that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct CommitFilter {
    /// The first commit of the log: a branch, a tag or an id, as `git log` takes it; HEAD, if it is not
    /// there.
    revision: Option<String>,
    /// The path of a file or a folder that the commits change.
    path: Option<String>,
    /// No commits before this time, in seconds since 1970, nor what lies behind them (`git log --since`).
    since: Option<u64>,
    /// No commits after this time (`git log --until`).
    until: Option<u64>,
}

/// Lists commits in the order of `git log`, all or those that change a path.
#[utoipa::path(
    get, operation_id = "listCommits",
    path = "/api/v1/repositories/{repository}/commits", tag = "history",
    params(
        NamedRepository,
        CommitFilter, WantedPage
    ),
    responses(
        (status = 200, description = "A page of commits.", body = EntryPage<CommitEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn list(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let revision = parameters.text("revision")?;
    // An empty repository has an empty log.
    let is_default = revision.is_none() && page.cursor.is_none();
    let mut revision = revision.unwrap_or_else(|| "HEAD".to_owned());
    let times = 0..=i64::MAX as u64;
    let mut query = LogQuery {
        path: parameters.bytes("path").unwrap_or_default(),
        since: parameters.number("since", times.clone())?,
        until: parameters.number("until", times)?,
        passed: 0,
        count_max: page.limit,
        walked_max: WALKED_MAX,
    };
    parameters.end()?;
    // The next page goes on where this one ended, even if the branch has moved.
    if let Some(cursor) = page.cursor_text()? {
        let (from, passed) = cursor.split_once(':').ok_or_else(not_a_cursor)?;
        query.passed = passed.parse().map_err(|_| not_a_cursor())?;
        from.clone_into(&mut revision);
    }
    let (_, repo) = state.open(&request).await?;
    if is_default && repo.refs().head_oid().is_none() {
        return json(&request.headers, &EntryPage::<CommitEntry>::empty());
    }
    let (logs, is_of_path) = (state.logs.clone(), !query.path.is_empty());
    let listed = move || -> Result<EntryPage<CommitEntry>, Problem> {
        let from = commit_of(&repo, &revision)?;
        let found = log(&repo, &from, &query, &logs)?;
        let mut commits = ToldCommits::new(&repo);
        let told: Result<Vec<ToldCommit>, _> = found.commits.iter().map(|oid| commits.read(oid)).collect();
        let items = told?.into_iter().map(|told| CommitEntry::from(told).shortened()).collect();
        Ok(EntryPage {
            items,
            next: found.next.map(|passed| page.list.cursor_at(format!("{from}:{passed}"))),
        })
    };
    let client = &request.client;
    let page = if is_of_path {
        client.compute(Effort::Bounded, move |_| listed()).await
    } else {
        client.run(listed).await
    };
    json(&request.headers, &page??)
}

/// Shows a commit.
#[utoipa::path(
    get, operation_id = "getCommit",
    path = "/api/v1/repositories/{repository}/commits/{revision}", tag = "history",
    params(
        NamedRepository,
        ("revision" = String, Path, description = "A branch, a tag or an id, percent-encoded."),
    ),
    responses((status = 200, description = "The commit.", body = CommitEntry), NotModified, Problems)
)]
pub(crate) async fn show(state: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    let revision = request.part(1)?.to_owned();
    let (_, repo) = state.open(&request).await?;
    let shown = move || -> Result<CommitEntry, Problem> {
        let oid = commit_of(&repo, &revision)?;
        Ok(ToldCommits::new(&repo).read(&oid)?.into())
    };
    json(&request.headers, &request.client.run(shown).await??)
}
