//! Repositories: the list, one of them, its visits, and the states of its refs.

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_catalog::{ForgeMetadata, FoundRepositories, Repository, RepositorySearch, StateFilter};
use weir_ground::{FailureClass, Timestamp};
use weir_pool::{
    KnownRepository, Pool, RefLogEntry, RepositoryState, RepositoryView, VisitEntry, ref_log, visit_log,
};
use weir_repo::Head;
use weir_transport::{Scheme, Url};

use crate::answer::{ApiResult, json};
use crate::page::{EntryPage, WantedPage};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Repositories whose names, or whose states, are looked at for one page.
const NAMES_LOOKED_AT_MAX: usize = 50_000;
const STATES_LOOKED_AT_MAX: usize = 5_000;
/// How often the catalog is asked for one page, if the client may not read what was found.
const BATCHES_MAX: usize = 100;
/// Refs that are told of one state.
const CHANGES_MAX: usize = 100;

/// A repository.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RepositoryEntry {
    /// Its number, which stays when it is renamed.
    pub(crate) id: i64,
    /// Its name.
    name: String,
    /// The URL of the upstream, without a password; null, if it is a path of the server's machine, which only
    /// managers see.
    url: Option<String>,
    /// Its state, in one word.
    state: RepositoryState,
    /// Whether it is not visited until somebody resumes it.
    paused: bool,
    /// Whether it was set back to an older state, and is not visited.
    pinned: bool,
    /// The size of the archive.
    archive_bytes: Option<u64>,
    /// The number of refs.
    refs: Option<i64>,
    /// The number of the last state of the refs.
    seq: Option<i64>,
    /// When it was added, in seconds since 1970, as all times.
    #[schema(value_type = i64)]
    added_at: Timestamp,
    /// When it was visited last.
    #[schema(value_type = Option<i64>)]
    last_attempt: Option<Timestamp>,
    /// When a visit succeeded last.
    #[schema(value_type = Option<i64>)]
    last_success: Option<Timestamp>,
    /// When a visit found a change last; null, if there was none since the first.
    #[schema(value_type = Option<i64>)]
    last_change: Option<Timestamp>,
    /// When it is due next; null, if it is paused or pinned.
    #[schema(value_type = Option<i64>)]
    next_due: Option<Timestamp>,
    /// How many visits have failed in a row.
    failures: i64,
    /// The class of the last failure.
    #[schema(value_type = Option<String>)]
    error_class: Option<FailureClass>,
    /// The last failure, for managers.
    error: Option<String>,
}

/// A repository with the metadata that its forge reports.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RepositoryWithForge {
    #[serde(flatten)]
    entry: RepositoryEntry,
    /// The branch that HEAD names, whether it exists or not; null, if HEAD is a commit or nothing is
    /// mirrored yet.
    default_branch: Option<String>,
    /// The metadata that its forge reports.
    #[schema(value_type = Option<Object>)]
    forge_metadata: Option<ForgeMetadata>,
}

impl RepositoryEntry {
    /// Returns the entry of a repository of `pool`.
    pub(crate) fn of(pool: &Pool, r: &Repository, is_manager: bool) -> RepositoryEntry {
        let view = RepositoryView::of(pool, r);
        RepositoryEntry {
            id: r.id,
            name: view.name,
            url: Some(view.url).filter(|_| is_manager || !is_local(r)),
            state: view.state,
            paused: view.is_paused,
            pinned: view.is_pinned,
            archive_bytes: view.archive_bytes,
            refs: view.refs,
            seq: view.seq,
            added_at: view.added_at,
            last_attempt: view.last_attempt,
            last_success: view.last_success,
            last_change: view.last_change,
            next_due: view.next_due,
            failures: view.failures,
            error_class: view.error_class,
            // It may name files and hosts of this machine's network.
            error: view.error.filter(|_| is_manager),
        }
    }
}

/// Returns whether the upstream of `r` is on this machine.
fn is_local(r: &Repository) -> bool {
    Url::parse(&r.url).is_ok_and(|url| url.scheme == Scheme::Local)
}

/// Repositories that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct RepositoryFilter {
    /// Text in the name, in any case.
    search: Option<String>,
    /// A state: `ok`, `stale`, `failed`, `new`, `paused`, `pinned`, `missing` or `incomplete`.
    #[param(inline)]
    state: Option<RepositoryState>,
}

/// Returns a filter of the catalog that repositories in `state` pass. Some states depend on files, too.
fn state_filter(state: RepositoryState) -> Option<StateFilter> {
    match state {
        RepositoryState::Stale | RepositoryState::Failed => Some(StateFilter::Failing),
        RepositoryState::New => Some(StateFilter::New),
        RepositoryState::Paused => Some(StateFilter::Paused),
        RepositoryState::Pinned => Some(StateFilter::Pinned),
        RepositoryState::Incomplete => Some(StateFilter::Incomplete),
        RepositoryState::Ok | RepositoryState::Missing => None,
    }
}

/// Lists the repositories that the client may read, by name.
#[utoipa::path(
    get, operation_id = "listRepositories",
    path = "/api/v1/repositories", tag = "repositories", params(RepositoryFilter, WantedPage),
    responses(
        (status = 200, description = "A page.", body = EntryPage<RepositoryEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn list(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let text = parameters.text("search")?.filter(|text| !text.is_empty());
    let wanted = match parameters.text("state")? {
        None => None,
        Some(word) => {
            let known = RepositoryState::ALL.into_iter().find(|state| state.name() == word);
            Some(known.ok_or_else(|| Problem::bad_request(format!("there is no state '{word}'")))?)
        }
    };
    parameters.end()?;
    let mut search = RepositorySearch {
        after: page.cursor.as_deref().map_or(Ok(String::new()), |cursor| state.seal.open(cursor))?,
        window: if wanted.is_some() { STATES_LOOKED_AT_MAX } else { NAMES_LOOKED_AT_MAX },
        text,
        state: wanted.and_then(state_filter),
        // One more than fits tells whether there is a next page.
        max: page.limit + 1,
    };
    let (is_manager, host, client) =
        (state.may_manage(&request), request.client.host.clone(), request.client.client.clone());
    let shared = state.clone();
    let found = state.with_pool(&request, move |pool| {
        let mut items: Vec<RepositoryEntry> = Vec::new();
        for _ in 0..BATCHES_MAX {
            let FoundRepositories { list, passed } = pool.catalog.search(&search)?;
            let is_cut = list.len() >= search.max;
            let mut exposures = pool.catalog.exposures(&list.iter().map(|r| r.id).collect::<Vec<_>>())?;
            for r in list {
                let exposure = exposures.remove(&r.id).unwrap_or_default();
                let known = KnownRepository::new(r, exposure);
                if !shared.locator.may_read(&known, host.as_deref(), &client) {
                    continue;
                }
                let entry = RepositoryEntry::of(pool, &known.repository, is_manager);
                if wanted.is_some_and(|state| state != entry.state) {
                    continue;
                }
                if items.len() == page.limit {
                    let next = items.last().and_then(|entry| shared.seal.seal(page.list, &entry.name));
                    return Ok(EntryPage { items, next });
                }
                items.push(entry);
            }
            let Some(passed) = passed else { return Ok(EntryPage { items, next: None }) };
            search.after = passed;
            // The names of a whole window take long enough. Those that were found may be hidden.
            if !is_cut {
                break;
            }
        }
        let next = shared.seal.seal(page.list, &search.after);
        Ok(EntryPage { items, next })
    });
    json(&request.headers, &found.await?)
}

/// Shows a repository, with the metadata that its forge reports.
#[utoipa::path(
    get, operation_id = "getRepository",
    path = "/api/v1/repositories/{repository}", tag = "repositories",
    params(NamedRepository),
    responses(
        (status = 200, description = "The repository.", body = RepositoryWithForge),
        NotModified, Problems
    )
)]
pub(crate) async fn show(state: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    request.client.fetch(request.part(0)?).await?;
    let known = state.repository(&request).await?;
    let is_manager = state.may_manage(&request);
    // The state of the repository tells of an archive that cannot be opened.
    let opened = match state.open_known(&request, &known.repository).await {
        Err(problem) if problem.status == StatusCode::SERVICE_UNAVAILABLE => return Err(problem),
        opened => opened.ok(),
    };
    let default_branch = opened.and_then(|repo| match &repo.refs().head {
        Head::Symbolic(name) => Some(name.strip_prefix(b"refs/heads/").unwrap_or(name).to_vec()),
        Head::Detached(_) => None,
    });
    let default_branch = default_branch.map(|name| String::from_utf8_lossy(&name).into_owned());
    let shown = state.with_pool(&request, move |pool| {
        let id = known.repository.id;
        let forge_metadata = pool.catalog.metadata().of_forge(&[id])?.remove(&id);
        Ok(RepositoryWithForge {
            entry: RepositoryEntry::of(pool, &known.repository, is_manager),
            default_branch,
            forge_metadata,
        })
    });
    json(&request.headers, &shown.await?)
}

/// How many entries a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct WantedCount {
    /// The most entries.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u64>,
}

/// Lists the visits to a repository that had another result than the ones before, the last one first.
#[utoipa::path(
    get, operation_id = "listVisits",
    path = "/api/v1/repositories/{repository}/visits", tag = "repositories",
    params(NamedRepository, WantedCount),
    responses(
        (status = 200, description = "The visits.", body = EntryPage<VisitEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn visits(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let count = WantedPage::take_count(&mut request.parameters)?;
    request.parameters.end()?;
    let known = state.repository(&request).await?;
    let is_manager = state.may_manage(&request);
    let visits = state.with_pool(&request, move |pool| {
        let mut visits = visit_log(pool, &known.repository, count)?;
        for visit in visits.iter_mut().filter(|_| !is_manager) {
            visit.error = None;
        }
        Ok(EntryPage { items: visits, next: None })
    });
    json(&request.headers, &visits.await?)
}

/// Lists the states that the refs of a repository had, the last one first, each with at most 100 of the
/// refs that differ from the state before.
#[utoipa::path(
    get, operation_id = "listRefStates",
    path = "/api/v1/repositories/{repository}/states", tag = "repositories",
    params(NamedRepository, WantedCount),
    responses(
        (status = 200, description = "The states.", body = EntryPage<RefLogEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn states(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let count = WantedPage::take_count(&mut request.parameters)?;
    request.parameters.end()?;
    let known = state.repository(&request).await?;
    let states = state.with_pool(&request, move |pool| {
        Ok(EntryPage {
            items: ref_log(pool, &known.repository, Some(count), CHANGES_MAX)?.into(),
            next: None,
        })
    });
    json(&request.headers, &states.await?)
}
