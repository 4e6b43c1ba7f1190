//! Finds and opens the repositories that clients ask for, a limited number at a time.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use weir_repo::Repo;
use weir_upload::{DaemonRequest, UNREADABLE};

use crate::access::cache::{OpenError, RepoCache};
use crate::access::locate::{AwaitedFor, BUSY, Client, Found, INTERNAL_ERROR, Locator, Refusal};
use crate::access::opened::{HttpFeatures, Opened};
use crate::limits::admission::{Party, TurnLimits, Turns};

/// Lookups that may take long, access hooks above all, that run at once.
const LOOKUPS_MAX: usize = 64;

/// The repositories that a server serves.
pub(crate) struct ServedRepositories {
    pub(crate) locator: Arc<dyn Locator>,
    cache: RepoCache,
    /// Turns for opening archives: one request at a time opens an archive, and a request that waited finds it
    /// open.
    archive_opens: Arc<Turns>,
    directory_opens: Arc<Turns>,
    /// Turns for lookups that run programs.
    lookups: Arc<Semaphore>,
    /// How long a lookup may wait.
    queue_timeout: Duration,
    /// The paths of copies whose upstream could not be visited when a client began to read them, and when
    /// that was.
    stale: Mutex<HashMap<String, Instant>>,
}

/// A repository that was found.
pub(crate) enum FoundRepository {
    There(Found),
    Arriving(Arc<Repo>),
}

/// How long clients are told that the upstream could not be visited, and of how many repositories.
const STALE_TOLD: Duration = Duration::from_secs(600);
const STALE_MAX: usize = 10_000;
/// The line for clients that read such a copy.
const STALE_NOTICE: &str = "weir: the upstream could not be visited; this is the copy that is here";

impl ServedRepositories {
    /// Returns the repositories that `locator` finds and `cache` keeps open. `opens` limits how many are
    /// opened at once.
    pub(crate) fn new(locator: Arc<dyn Locator>, cache: RepoCache, opens: TurnLimits) -> ServedRepositories {
        ServedRepositories {
            locator,
            cache,
            queue_timeout: opens.wait,
            archive_opens: Turns::new(TurnLimits { per_repository: 1, ..opens.clone() }),
            directory_opens: Turns::new(TurnLimits { per_repository: usize::MAX, ..opens }),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            stale: Mutex::default(),
        }
    }

    /// Finds what `request` asks for. If `why` is given, the client begins to read: it waits for a visit to
    /// the upstream, if it is to. If it `takes_arriving`, a repository that arrives meanwhile is found, too.
    pub(crate) async fn find_fresh(
        self: &Arc<Self>,
        request: &DaemonRequest,
        client: Client,
        why: Option<AwaitedFor>,
        takes_arriving: bool,
    ) -> Result<FoundRepository, Refusal> {
        if let Some(why) = why {
            self.wait(request, &client, why).await?;
        }
        if takes_arriving && self.locator.has_arrivals() {
            let asks = client.clone();
            let arriving = self.look_up(request, move |locator, request| locator.arriving(request, &asks));
            if let Some(repo) = arriving.await? {
                return Ok(FoundRepository::Arriving(repo));
            }
        }
        let mut found = self.find(request, client.clone()).await;
        // The first visit may have failed since the client began, or another may be under way.
        if takes_arriving && why.is_none() && matches!(found, Err(Refusal::NotFound(_))) {
            self.wait(request, &client, AwaitedFor::First).await?;
            found = self.find(request, client).await;
        }
        found.map(FoundRepository::There)
    }

    /// Finds what `request` asks for after a visit to the upstream, because the copy lacks what the client
    /// wants, or `was_arriving`. Returns `None` if there is no such visit.
    pub(crate) async fn find_missing(
        self: &Arc<Self>,
        request: &DaemonRequest,
        client: Client,
        was_arriving: bool,
    ) -> Result<Option<Found>, Refusal> {
        let is_new = self.wait(request, &client, AwaitedFor::Missing).await?;
        // The first visit may have ended well since the client began: then the archive is here.
        if !is_new && !was_arriving {
            return Ok(None);
        }
        self.find(request, client).await.map(Some)
    }

    /// Waits for a visit to the upstream, if the client is to wait; returns whether there was one.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        request: &DaemonRequest,
        client: &Client,
        why: AwaitedFor,
    ) -> Result<bool, Refusal> {
        let asks = client.clone();
        let looked_up = self.look_up(request, move |locator, request| locator.awaited(request, &asks, why));
        let Some(awaited) = looked_up.await? else { return Ok(false) };
        let outcome = awaited.await?;
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        match &outcome {
            None => drop(stale.remove(&request.path)),
            Some(why) => {
                tracing::info!(
                    path = request.path.escape_default().to_string(),
                    "serving an older copy: its upstream could not be visited: {}",
                    why.escape_default()
                );
                if stale.len() >= STALE_MAX {
                    stale.clear();
                }
                stale.insert(request.path.clone(), Instant::now());
            }
        }
        Ok(outcome.is_none())
    }

    /// Returns the line for clients that read a copy whose upstream could not be visited.
    pub(crate) fn notice(&self, path: &str) -> Option<String> {
        let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.get(path).filter(|since| since.elapsed() < STALE_TOLD).map(|_| STALE_NOTICE.to_owned())
    }

    /// Finds what `request` asks for.
    pub(crate) async fn find(
        self: &Arc<Self>,
        request: &DaemonRequest,
        client: Client,
    ) -> Result<Found, Refusal> {
        self.look_up(request, move |locator, request| locator.find(request, &client)).await
    }

    /// Has the locator look something up; on a thread of its own if that may take long.
    async fn look_up<T: Send + 'static>(
        self: &Arc<Self>,
        request: &DaemonRequest,
        look_up: impl FnOnce(&dyn Locator, &DaemonRequest) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        if !self.locator.may_block() {
            return look_up(&*self.locator, request);
        }
        let turn = tokio::time::timeout(self.queue_timeout, self.lookups.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(Refusal::Busy(BUSY.to_owned())) };
        let (repositories, request) = (self.clone(), request.clone());
        let finding = tokio::task::spawn_blocking(move || {
            let found = look_up(&*repositories.locator, &request);
            // Given back when the program has ended, even if the client left long before.
            drop(turn);
            found
        })
        .await;
        finding.unwrap_or_else(|_| Err(Refusal::Failed(format!("weir: {INTERNAL_ERROR}"))))
    }

    /// Returns the repository at `found`. If it is not open, opens it on a thread that may block.
    async fn opened(self: &Arc<Self>, found: Found, peer: Option<SocketAddr>) -> Result<Opened, OpenError> {
        if let Some(opened) = self.cache.get(&found) {
            return Ok(opened);
        }
        let turns = match &found {
            Found::Archive(_) | Found::OlderState(..) => &self.archive_opens,
            Found::Directory(_) => &self.directory_opens,
        };
        let Ok(turn) = turns.take(Party::new(peer, found.path())).await else {
            return Err(OpenError::Busy);
        };
        let repositories = self.clone();
        let opening = tokio::task::spawn_blocking(move || {
            // Already open if another request opened it in the meantime.
            let opened = repositories.cache.open(&found);
            drop(turn);
            opened
        })
        .await;
        opening.unwrap_or_else(|_| Err(OpenError::Broken(io::Error::other(INTERNAL_ERROR).into())))
    }

    /// Opens `found`, which a client at `peer` calls `name`, or returns it if it is arriving.
    ///
    /// # Errors
    /// If it is not there, cannot be opened, or too many are being opened.
    pub(crate) async fn open_found(
        self: &Arc<Self>,
        found: FoundRepository,
        name: &str,
        peer: Option<SocketAddr>,
    ) -> Result<Opened, Refusal> {
        match found {
            FoundRepository::There(found) => self.open(found, name, peer).await,
            FoundRepository::Arriving(repo) => {
                let http = HttpFeatures { files: false, upload_pack: true };
                Ok(Opened { repo, features: None, http })
            }
        }
    }

    /// Opens the repository at `found`, which a client at `peer` calls `name`.
    ///
    /// # Errors
    /// If it is not there, cannot be opened, or too many are being opened.
    pub(crate) async fn open(
        self: &Arc<Self>,
        found: Found,
        name: &str,
        peer: Option<SocketAddr>,
    ) -> Result<Opened, Refusal> {
        let kind = if matches!(found, Found::OlderState(..)) { "state" } else { "repository" };
        self.opened(found, peer).await.map_err(|e| match e {
            OpenError::NotFound => Refusal::NotFound(format!("no such {kind}: {name}")),
            OpenError::Busy => Refusal::Busy(BUSY.to_owned()),
            OpenError::Broken(e) => {
                tracing::error!(path = name, "cannot open: {e}");
                Refusal::Failed(UNREADABLE.to_owned())
            }
        })
    }
}
