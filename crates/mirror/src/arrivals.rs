//! Repositories that are being mirrored for the first time, for those who serve them meanwhile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_repo::{ArrivingPack, Repo};

/// The repositories of which this process is making the first copy, by the paths where their archives will
/// be.
#[derive(Clone, Default)]
pub struct Arrivals(Arc<ArrivalList>);

#[derive(Default)]
struct ArrivalList {
    /// Whether somebody serves them.
    is_watched: AtomicBool,
    by_path: Mutex<HashMap<PathBuf, Arc<Repo>>>,
}

impl Arrivals {
    /// Has first copies listed from now on.
    pub fn watch(&self) {
        self.0.is_watched.store(true, Ordering::Relaxed);
    }

    /// Returns whether first copies are listed.
    pub(crate) fn is_watched(&self) -> bool {
        self.0.is_watched.load(Ordering::Relaxed)
    }

    /// Returns whether nothing is arriving.
    pub fn is_empty(&self) -> bool {
        self.0.by_path.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the repository whose archive will be at `path`, if it is arriving.
    pub fn get(&self, path: &Path) -> Option<Arc<Repo>> {
        self.0.by_path.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// Lists `repo`, whose pack begins to arrive, until the result is dropped.
    pub(crate) fn begin(&self, repo: Arc<Repo>) -> ListedArrival {
        let mut by_path = self.0.by_path.lock().unwrap_or_else(PoisonError::into_inner);
        by_path.insert(repo.path().to_owned(), repo.clone());
        ListedArrival { arrivals: self.clone(), repo }
    }
}

/// An entry of the list. When it is dropped, whoever waits for more of the pack learns that none will come,
/// unless all of it has.
pub(crate) struct ListedArrival {
    arrivals: Arrivals,
    repo: Arc<Repo>,
}

impl ListedArrival {
    /// Returns the pack that arrives.
    pub(crate) fn pack(&self) -> Option<&ArrivingPack> {
        self.repo.arriving_pack().map(|pack| &**pack)
    }
}

impl Drop for ListedArrival {
    fn drop(&mut self) {
        if let Some(pack) = self.pack() {
            pack.end(false);
        }
        let mut by_path = self.arrivals.0.by_path.lock().unwrap_or_else(PoisonError::into_inner);
        by_path.remove(self.repo.path());
    }
}
