//! Keeps repositories open as long as their files do not change.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use weir_repo::Repo;

use crate::access::locate::Found;
use crate::access::opened::{HttpFeatures, Opened};
use crate::access::presentation::Presentation;

/// Why a repository cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no repository of that name.
    NotFound,
    /// It cannot be read.
    Broken(weir_repo::Error),
    /// Too many repositories are being opened.
    Busy,
}

/// The state of an archive's file: which file it is, its length (an archive grows, is replaced, or is cut
/// where it is damaged), and the time of its last modification.
type Stamp = (u64, u64, u64, (i64, i64));

/// Returns which file the base of a repository is, if it has one. It does not matter if the base grows.
fn base_file(repo: &Repo) -> Option<(u64, u64)> {
    let m = std::fs::metadata(repo.base()?.path()).ok()?;
    Some((m.dev(), m.ino()))
}

struct OpenSlot {
    stamp: Stamp,
    base: Option<(u64, u64)>,
    repo: Arc<Repo>,
    used: u64,
}

/// The part of the open archives that may be older states: clients choose these, and there are many of them.
const OLDER_STATES_PART: usize = 4;

/// Open archives. If there are too many, the one that was unused longest is dropped.
pub struct RepoCache {
    slots: Mutex<(HashMap<Found, OpenSlot>, u64)>,
    /// Git directories from which clients are being served.
    directories: Mutex<HashMap<PathBuf, Weak<Repo>>>,
    open_max: usize,
    presentation: Presentation,
}

impl RepoCache {
    /// Returns a cache of at most `open_max` repositories; `presentation` says how git directories are shown.
    pub fn new(open_max: usize, presentation: Presentation) -> RepoCache {
        RepoCache {
            slots: Mutex::default(),
            directories: Mutex::default(),
            open_max: open_max.max(1),
            presentation,
        }
    }

    fn stamp(path: &Path) -> Option<Stamp> {
        let m = std::fs::metadata(path).ok()?;
        Some((m.dev(), m.ino(), m.len(), (m.mtime(), m.mtime_nsec())))
    }

    /// Returns the repository at `found` if it is open and has not changed.
    pub fn get(&self, found: &Found) -> Option<Opened> {
        if matches!(found, Found::Directory(_)) {
            return None;
        }
        let stamp = Self::stamp(found.path())?;
        let mut slots = self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slots.1 += 1;
        let now = slots.1;
        let slot = slots.0.get_mut(found).filter(|s| s.stamp == stamp && s.base == base_file(&s.repo))?;
        if slot.repo.check_reads().is_err() {
            slots.0.remove(found);
            return None;
        }
        slot.used = now;
        Some(self.archived(found, slot.repo.clone()))
    }

    /// Opens the repository at `found`, or returns it if it is open. Reads from disk.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self, found: &Found) -> Result<Opened, OpenError> {
        if let Some(repo) = self.get(found) {
            return Ok(repo);
        }
        // Directories change in place in many ways, so they are opened each time.
        if let Found::Directory(path) = found {
            let opened = self.presentation.open(path).map_err(OpenError::Broken)?;
            return Ok(Opened { repo: self.shared(path, opened.repo), ..opened });
        }
        // The stamp is taken before the archive is read: if the archive grows meanwhile, the next request
        // sees another stamp and opens it again.
        let stamp = Self::stamp(found.path()).ok_or(OpenError::NotFound)?;
        let repo = match found {
            Found::OlderState(path, state) => {
                let now = self.open(&Found::Archive(path.clone()))?.repo;
                now.at_state(*state).map_err(OpenError::Broken)?.ok_or(OpenError::NotFound)?
            }
            found => Repo::open_archive(found.path()).map_err(OpenError::Broken)?,
        };
        let repo = Arc::new(repo);
        self.keep(found, &repo, stamp);
        Ok(self.archived(found, repo))
    }

    /// Keeps the open repository at `found`, in place of another if there are too many.
    fn keep(&self, found: &Found, repo: &Arc<Repo>, stamp: Stamp) {
        let is_older = |found: &Found| matches!(found, Found::OlderState(..));
        let mut slot = OpenSlot { stamp, base: base_file(repo), repo: repo.clone(), used: 0 };
        let mut slots = self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let older_max = (self.open_max / OLDER_STATES_PART).max(1);
        let older_are_full =
            is_older(found) && slots.0.keys().filter(|kept| is_older(kept)).count() >= older_max;
        if (slots.0.len() >= self.open_max || older_are_full) && !slots.0.contains_key(found) {
            let candidates = slots.0.iter().filter(|(kept, _)| is_older(kept) || !older_are_full);
            if let Some(oldest) = candidates.min_by_key(|(_, slot)| slot.used).map(|(kept, _)| kept.clone()) {
                slots.0.remove(&oldest);
            }
        }
        slots.1 += 1;
        slot.used = slots.1;
        slots.0.insert(found.clone(), slot);
    }

    /// Returns the directory at `path` as it is open for other clients, if it is the same as `repo`, so that
    /// its refs are in memory once; otherwise `repo`.
    fn shared(&self, path: &Path, repo: Arc<Repo>) -> Arc<Repo> {
        let mut directories = self.directories.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(open) =
            directories.get(path).and_then(Weak::upgrade).filter(|open| open.is_same_directory(&repo))
        {
            return open;
        }
        if directories.len() >= self.open_max {
            directories.retain(|_, open| open.strong_count() > 0);
        }
        directories.insert(path.to_owned(), Arc::downgrade(&repo));
        repo
    }

    fn archived(&self, found: &Found, repo: Arc<Repo>) -> Opened {
        // The files of an archive may be of another state than its refs.
        let files = self.presentation.files && matches!(found, Found::Archive(_));
        Opened { repo, features: None, http: HttpFeatures { files, upload_pack: true } }
    }
}
