//! Folders below the store for what is on its way: gone when they are dropped, or when the next one is made
//! after a kill.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Held by whoever uses the folder.
const LOCK: &str = "in-use";

/// A folder that nobody takes for a folder of archives.
pub struct WorkFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl WorkFolder {
    /// Makes one below `store`, and removes those that nobody uses any more.
    ///
    /// # Errors
    /// If `store` cannot be read or written to; the error names what it is about.
    pub fn new(store: &Path) -> io::Result<WorkFolder> {
        let about = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| io::Error::new(e.kind(), format!("cannot {what} '{}': {e}", path.display()))
        };
        for entry in fs::read_dir(store).map_err(about("read", store))? {
            let path = entry.map_err(about("read", store))?.path();
            let is_ours = path
                .file_name()
                .is_some_and(|n| n.as_encoded_bytes().starts_with(weir_repo::WORK_PREFIX.as_bytes()));
            if is_ours
                && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
                && let Err(e) = fs::remove_dir_all(&path)
            {
                tracing::warn!("cannot delete '{}', which nobody uses: {e}", path.display());
            }
        }
        let folder = tempfile::Builder::new()
            .prefix(weir_repo::WORK_PREFIX)
            .tempdir_in(store)
            .map_err(about("make a folder in", store))?;
        let lock = folder.path().join(LOCK);
        let lock =
            File::create(&lock).and_then(|lock| lock.lock().map(|()| lock)).map_err(about("lock", &lock))?;
        Ok(WorkFolder { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}
