//! Folders below the store for what is on its way: gone when they are dropped, or when the next one is made after a kill.

use std::fs::{self, File};
use std::path::Path;

use crate::error::{Error, Result};

/// Held by whoever uses the folder.
const LOCK: &str = "in-use";

pub(crate) struct WorkFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl WorkFolder {
    /// Makes one below `store`, and removes those that nobody uses any more.
    pub(crate) fn new(store: &Path) -> Result<WorkFolder> {
        let file = |what, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { what, path, source }
        };
        for entry in fs::read_dir(store).map_err(file("read", store))? {
            let path = entry.map_err(file("read", store))?.path();
            let is_ours = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(weir_archive::WORK_PREFIX.as_bytes()));
            if is_ours
                && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
                && let Err(e) = fs::remove_dir_all(&path)
            {
                tracing::warn!("cannot delete '{}', which nobody uses: {e}", path.display());
            }
        }
        let folder =
            tempfile::Builder::new().prefix(weir_archive::WORK_PREFIX).tempdir_in(store).map_err(file("make a folder in", store))?;
        let lock = folder.path().join(LOCK);
        let lock = File::create(&lock).and_then(|lock| lock.lock().map(|()| lock)).map_err(file("lock", &lock))?;
        Ok(WorkFolder { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}
