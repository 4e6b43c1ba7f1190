//! The state that all endpoints share: the catalog, and the repositories that a client may read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_browse::{KeptBlames, LogPositions};
use weir_catalog::Repository;
use weir_catalog::clock::clock;
use weir_ground::{Clock, OtherError, Timestamp};
use weir_pool::{CatalogLocator, KnownRepository, Pool};
use weir_repo::{NamedState, Repo};
use weir_serve::{Found, HandlerClient, Locator, Refusal};
use weir_tables::{KeptDatabases, PresentRepository};
use weir_transport::{Scheme, Url};

use crate::page::CursorSeal;
use crate::problem::{Problem, ProblemCode};
use crate::request::ApiRequest;

/// A function that returns whether a workspace on this machine stands on the archive at a path.
pub type IsNeeded = Box<dyn Fn(&Path) -> Result<bool, OtherError> + Send + Sync>;

/// Handles of the pool that are kept for the next requests.
const KEPT_MAX: usize = 8;

/// The state that all endpoints share.
pub(crate) struct ApiState {
    pub(crate) locator: CatalogLocator,
    first: Mutex<Pool>,
    /// Handles that no request uses.
    free: Mutex<Vec<Pool>>,
    pub(crate) seal: CursorSeal,
    /// The places where pages of logs ended.
    pub(crate) logs: Arc<LogPositions>,
    pub(crate) blames: Arc<KeptBlames>,
    /// The place where queries run, if clients may.
    pub(crate) queries: Option<Arc<QueryRoom>>,
    clock: Clock,
    /// Finds out whether an archive must stay that a client wants to delete.
    pub(crate) is_needed: IsNeeded,
    /// The origins of pages that may read answers.
    pub(crate) cors: Vec<String>,
}

/// A repository that a client named.
pub(crate) struct OpenedRepository {
    /// Its name, with `@STATE` if it is in an older state.
    pub(crate) origin: String,
    /// The URL of its upstream, without a password, unless that is on this machine.
    url: Option<String>,
    pub(crate) repository: Repository,
    pub(crate) repo: Arc<Repo>,
}

impl OpenedRepository {
    /// Returns a sum that no other state of any archive has.
    pub(crate) fn sum(&self) -> [u8; 32] {
        self.repo.archive().map_or([0; 32], |archive| archive.state().sum())
    }

    /// Returns what its tables are made of.
    pub(crate) fn present(&self, now: Timestamp) -> PresentRepository<'_> {
        PresentRepository { repo: &self.repo, origin: &self.origin, url: self.url.as_deref(), now }
    }
}

/// The place where queries run, and their limits.
pub(crate) struct QueryRoom {
    /// The folder of their files.
    pub(crate) folder: PathBuf,
    /// The most bytes of a file.
    pub(crate) bytes_max: u64,
    /// The time for a query.
    pub(crate) timeout: Duration,
    pub(crate) kept: KeptDatabases,
}

impl ApiState {
    /// Returns the state of an API of `pool`.
    ///
    /// # Errors
    /// If its settings are wrong, or the catalog cannot be opened again.
    pub(crate) fn new(pool: &Pool, is_needed: IsNeeded) -> weir_pool::Result<ApiState> {
        Ok(ApiState {
            locator: CatalogLocator::new(pool)?,
            first: Mutex::new(pool.again()?),
            free: Mutex::default(),
            seal: CursorSeal::new(pool.store_id()),
            logs: Arc::default(),
            blames: Arc::default(),
            queries: pool.config.serve.sql.then(|| {
                let (bytes_max, timeout) =
                    (pool.config.serve.sql_bytes_max.0, pool.config.serve.sql_timeout.0);
                let kept = KeptDatabases::new(bytes_max);
                Arc::new(QueryRoom { folder: pool.path.clone(), bytes_max, timeout, kept })
            }),
            clock: clock(),
            is_needed,
            cors: pool.config.serve.cors.clone(),
        })
    }

    /// Returns the time now.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs `work` with the pool, on a thread that may block, when it is the client's turn.
    pub(crate) async fn with_pool<T: Send + 'static>(
        self: &Arc<Self>,
        request: &ApiRequest,
        work: impl FnOnce(&mut Pool) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let state = self.clone();
        request.client.run(move || state.with_handle(work)).await?
    }

    fn with_handle<T>(&self, work: impl FnOnce(&mut Pool) -> Result<T, Problem>) -> Result<T, Problem> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut pool = match free {
            Some(pool) => pool,
            None => self.first.lock().unwrap_or_else(PoisonError::into_inner).again()?,
        };
        let done = work(&mut pool);
        // A handle whose connection broke is not used again.
        let is_sound = done.as_ref().err().is_none_or(|problem| !problem.status.is_server_error());
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if is_sound && free.len() < KEPT_MAX {
            free.push(pool);
        }
        done
    }

    /// Returns the repository that the first part of the path names, by its name or its number.
    pub(crate) async fn repository(
        self: &Arc<Self>,
        request: &ApiRequest,
    ) -> Result<KnownRepository, Problem> {
        let name = request.part(0)?.to_owned();
        if let Some((repository, _)) = NamedState::split(&name) {
            let words =
                format!("'{name}' names an older state, and this request knows none: ask for '{repository}'");
            return Err(Problem::bad_request(words));
        }
        self.find(request, move |state, client| state.named(&name, client)).await
    }

    /// Runs `find` with the client of a request; on a thread that may block, if that may take long.
    async fn find<T: Send + 'static>(
        self: &Arc<Self>,
        request: &ApiRequest,
        find: impl FnOnce(&ApiState, &HandlerClient) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        if !self.locator.may_block() {
            return find(self, &request.client);
        }
        let (state, client) = (self.clone(), request.client.clone());
        request.client.run(move || find(&state, &client)).await?
    }

    /// Returns the repository called `name`, or whose number it is.
    fn named(&self, name: &str, client: &HandlerClient) -> Result<KnownRepository, Problem> {
        let readable = |name: &str| self.locator.readable(name, client.host.as_deref(), &client.client);
        let number = Some(name).filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(id) = number.and_then(|digits| digits.parse().ok()) else {
            return readable(name).map_err(Problem::from);
        };
        if let Some(numbered) = self.with_handle(|pool| Ok(pool.catalog.get_by_id(id)?))? {
            match readable(&numbered.name) {
                Err(Refusal::NotFound(_) | Refusal::Unauthorized(_)) => {}
                other => return other.map_err(Problem::from),
            }
        }
        // A name may look like a number that no repository has. The name of a hidden one is not told.
        readable(name).map_err(|refusal| match refusal {
            Refusal::NotFound(_) => Problem::not_found(format!("no such repository: {name}")),
            refusal => refusal.into(),
        })
    }

    /// Opens the repository that the first part of the path names, in an older state if it is `REPO@STATE`.
    pub(crate) async fn open(
        self: &Arc<Self>,
        request: &ApiRequest,
    ) -> Result<(Repository, Arc<Repo>), Problem> {
        let opened = self.open_origin(request).await?;
        Ok((opened.repository, opened.repo))
    }

    /// Does the same as [`ApiState::open`], and tells the name with the state.
    pub(crate) async fn open_origin(
        self: &Arc<Self>,
        request: &ApiRequest,
    ) -> Result<OpenedRepository, Problem> {
        self.open_named(request, request.part(0)?.to_owned()).await
    }

    /// Opens the repositories that `names` lists, with commas between them.
    pub(crate) async fn open_all(
        self: &Arc<Self>,
        request: &ApiRequest,
        names: &str,
        count_max: usize,
    ) -> Result<Vec<OpenedRepository>, Problem> {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.len() > count_max {
            return Err(Problem::bad_request(format!("name at most {count_max} repositories")));
        }
        let mut opened = Vec::with_capacity(names.len());
        for name in names {
            opened.push(self.open_named(request, name).await?);
        }
        Ok(opened)
    }

    async fn open_named(
        self: &Arc<Self>,
        request: &ApiRequest,
        name: String,
    ) -> Result<OpenedRepository, Problem> {
        let plain = NamedState::split(&name).map_or(name.as_str(), |(repository, _)| repository);
        request.client.fetch(plain).await?;
        let found = self.find(request, move |state, client| {
            let Some((repository, older)) = NamedState::split(&name) else {
                return state.named(&name, client).map(|known| (known.repository, None));
            };
            let known = state.named(repository, client)?;
            state.locator.check_older_states(&client.client)?;
            Ok((known.repository, Some(older)))
        });
        let (repository, older) = found.await?;
        let repo = self.open_in_state(request, &repository, older).await?;
        let origin =
            older.map_or_else(|| repository.name.clone(), |state| format!("{}@{state}", repository.name));
        let url = Url::parse(&repository.url).ok().filter(|url| url.scheme != Scheme::Local);
        Ok(OpenedRepository { origin, url: url.map(|url| url.to_string()), repository, repo })
    }

    /// Opens a repository that the client of `request` may read.
    pub(crate) async fn open_known(
        &self,
        request: &ApiRequest,
        repository: &Repository,
    ) -> Result<Arc<Repo>, Problem> {
        self.open_in_state(request, repository, None).await
    }

    async fn open_in_state(
        &self,
        request: &ApiRequest,
        repository: &Repository,
        older: Option<NamedState>,
    ) -> Result<Arc<Repo>, Problem> {
        let path = self.first.lock().unwrap_or_else(PoisonError::into_inner).archive_path(repository);
        if !path.exists() {
            let words = format!("'{}' has not been mirrored yet", repository.name);
            return Err(Problem::not_found(words).of(ProblemCode::NotMirrored));
        }
        let name = &repository.name;
        let opened = match older {
            None => request.client.open(Found::Archive(path), name).await?,
            Some(state) => {
                request.client.open(Found::OlderState(path, state), &format!("{name}@{state}")).await?
            }
        };
        Ok(opened)
    }

    /// Returns whether the client of `request` may manage the pool.
    pub(crate) fn may_manage(&self, request: &ApiRequest) -> bool {
        self.locator.may_manage(&request.client.client)
    }
}
