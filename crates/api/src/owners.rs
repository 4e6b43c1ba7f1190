//! Owners: the folders that the names of repositories have.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_catalog::{Catalog, FoundRepositories, RepositorySearch};
use weir_pool::KnownRepository;

use crate::answer::{ApiResult, json};
use crate::page::{EntryPage, WantedPage};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::ApiRequest;
use crate::state::ApiState;

/// Repositories that are read at a time.
const BATCH: usize = 64;
/// How often the catalog is asked for one page.
const BATCHES_MAX: usize = 500;
/// Comes after all characters of names.
const LAST: char = '\u{10ffff}';

/// An owner of repositories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct OwnerEntry {
    /// The name: the first parts of the names of its repositories, such as `github.com/git`.
    name: String,
}

/// The owners that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct OwnerFilter {
    /// A name whose owners are listed: `github.com` lists `github.com/git`. Without it, the first parts of
    /// all names are listed, which mostly are hosts.
    parent: Option<String>,
}

/// Lists the owners of repositories that the client may read, by name: hosts, and below a host its owners and
/// groups.
#[utoipa::path(
    get, operation_id = "listOwners",
    path = "/api/v1/owners", tag = "repositories", params(OwnerFilter, WantedPage),
    responses(
        (status = 200, description = "A page.", body = EntryPage<OwnerEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn list(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let parent = parameters.text("parent")?.unwrap_or_default();
    parameters.end()?;
    let prefix = match parent.trim_end_matches('/') {
        "" => String::new(),
        parent => format!("{parent}/"),
    };
    let after = match page.cursor.as_deref() {
        Some(cursor) => state.seal.open(cursor)?,
        None => prefix.clone(),
    };
    let (host, client) = (request.client.host.clone(), request.client.client.clone());
    let shared = state.clone();
    let found = state.with_pool(&request, move |pool| {
        let may_read = |known: &KnownRepository| shared.locator.may_read(known, host.as_deref(), &client);
        let mut walk = OwnerWalk { prefix, after, limit: page.limit, found: Vec::new() };
        let has_more = walk.run(&pool.catalog, &may_read)?;
        let next = if has_more { shared.seal.seal(page.list, &walk.after) } else { None };
        Ok(EntryPage { items: walk.found.into_iter().map(|name| OwnerEntry { name }).collect(), next })
    });
    json(&request.headers, &found.await?)
}

/// A walk over names that leaves out what lies below an owner that is known.
struct OwnerWalk {
    /// The beginning of all names that count.
    prefix: String,
    /// The name after which it goes on.
    after: String,
    limit: usize,
    found: Vec<String>,
}

impl OwnerWalk {
    /// Finds owners of repositories that `may_read` lets through. Returns whether there may be more.
    fn run(
        &mut self,
        catalog: &Catalog,
        may_read: &dyn Fn(&KnownRepository) -> bool,
    ) -> Result<bool, Problem> {
        for _ in 0..BATCHES_MAX {
            let search = RepositorySearch {
                after: self.after.clone(),
                window: BATCH,
                max: BATCH,
                ..RepositorySearch::default()
            };
            let FoundRepositories { list, passed } = catalog.search(&search)?;
            let mut exposures = catalog.exposures(&list.iter().map(|r| r.id).collect::<Vec<_>>())?;
            for r in list {
                if r.name <= self.after {
                    continue;
                }
                let Some(rest) = r.name.strip_prefix(&self.prefix) else { return Ok(false) };
                let Some((part, _)) = rest.split_once('/') else {
                    self.after.clone_from(&r.name);
                    continue;
                };
                let owner = format!("{}{part}", self.prefix);
                let exposure = exposures.remove(&r.id).unwrap_or_default();
                let known = KnownRepository::new(r, exposure);
                if !may_read(&known) {
                    self.after = known.repository.name;
                    continue;
                }
                if self.found.len() == self.limit {
                    return Ok(true);
                }
                self.after = format!("{owner}/{LAST}");
                self.found.push(owner);
            }
            if passed.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
