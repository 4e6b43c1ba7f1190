//! Finds and opens the repositories that clients ask for, a limited number at a time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use weir_upload::{DaemonRequest, UNREADABLE};

use crate::access::cache::{OpenError, RepoCache};
use crate::access::locate::{BUSY, Client, Found, INTERNAL_ERROR, Locator, Refusal};
use crate::access::opened::Opened;
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
}

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
        }
    }

    /// Finds what `request` asks for; on a thread of its own if that may take long.
    pub(crate) async fn find(
        self: &Arc<Self>,
        request: &DaemonRequest,
        client: Client,
    ) -> Result<Found, Refusal> {
        if !self.locator.may_block() {
            return self.locator.find(request, &client);
        }
        let turn = tokio::time::timeout(self.queue_timeout, self.lookups.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(Refusal::Busy(BUSY.to_owned())) };
        let (repositories, request) = (self.clone(), request.clone());
        let finding = tokio::task::spawn_blocking(move || {
            let found = repositories.locator.find(&request, &client);
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
