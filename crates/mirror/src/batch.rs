//! Records visits in the catalog, many at a time.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_catalog::{Catalog, Visit};

/// Visits are recorded when this many are waiting, or when the oldest has waited this long.
const BATCH_MAX: usize = 500;
const BATCH_AGE_MAX: Duration = Duration::from_secs(2);

/// Visits to be recorded, and the archives whose names must be durable before.
pub(crate) struct VisitBatch {
    waiting: Vec<(Visit, Option<PathBuf>)>,
    began: Instant,
}

impl VisitBatch {
    pub(crate) fn new() -> VisitBatch {
        VisitBatch { waiting: Vec::new(), began: Instant::now() }
    }

    /// Adds a visit, and the archive it made if its name may not be durable yet.
    pub(crate) fn put(&mut self, visit: Visit, named: Option<PathBuf>) {
        if self.waiting.is_empty() {
            self.began = Instant::now();
        }
        self.waiting.push((visit, named));
    }

    /// Returns whether it is time to record them.
    pub(crate) fn is_due(&self) -> bool {
        self.waiting.len() >= BATCH_MAX || !self.waiting.is_empty() && self.began.elapsed() >= BATCH_AGE_MAX
    }

    /// Records all visits except those whose archives below `store` may not be durable. Their repositories
    /// stay due, and the next visit finds the archives.
    ///
    /// # Errors
    /// If the catalog fails.
    pub(crate) fn write(&mut self, store: &Path, catalog: &Catalog) -> weir_catalog::Result<()> {
        let mut folders = Folders { store, synced: HashMap::new() };
        let mut visits = Vec::with_capacity(self.waiting.len());
        for (visit, named) in self.waiting.drain(..) {
            match named.as_deref().map_or(Ok(()), |path| folders.sync_above(path)) {
                Ok(()) => visits.push(visit),
                Err(e) => {
                    let path = named.unwrap_or_default();
                    tracing::error!(path = %path.display(), "cannot sync the folder of the new archive, its \
                        visit is not recorded: {e}");
                }
            }
        }
        if visits.is_empty() {
            return Ok(());
        }
        let written = catalog.visits().record(&visits)?;
        if written < visits.len() {
            let lost = visits.len() - written;
            tracing::warn!("{lost} visits took longer than their leases, or their repositories were removed");
        }
        Ok(())
    }
}

/// The folders that have been synced.
struct Folders<'s> {
    store: &'s Path,
    synced: HashMap<PathBuf, Result<(), io::ErrorKind>>,
}

impl Folders<'_> {
    /// Makes the name of the archive at `path` durable, and the names of its folders up to the store.
    fn sync_above(&mut self, path: &Path) -> io::Result<()> {
        for folder in path.ancestors().skip(1) {
            let sync = || weir_repo::sync_folder(folder).map_err(|e| e.kind());
            (*self.synced.entry(folder.to_owned()).or_insert_with(sync))?;
            if folder == self.store {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_up_to_the_store_is_synced_once_and_fails_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        std::fs::create_dir_all(store.join("host/owner")).unwrap();
        let mut folders = Folders { store: &store, synced: HashMap::new() };
        folders.sync_above(&store.join("host/owner/a.tar")).unwrap();
        assert!(folders.sync_above(&store.join("host/nobody/a.tar")).is_err());
        folders.sync_above(&store.join("host/owner/b.tar")).unwrap();
        folders.sync_above(&store.join("c.tar")).unwrap();
        let mut looked_at: Vec<_> =
            folders.synced.keys().map(|f| f.strip_prefix(dir.path()).unwrap().to_owned()).collect();
        looked_at.sort();
        assert_eq!(
            looked_at,
            ["store", "store/host", "store/host/nobody", "store/host/owner"].map(PathBuf::from)
        );
    }
}
