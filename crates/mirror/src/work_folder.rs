//! Temporary folders below the store. They are removed when dropped; after a kill, when the next one is made.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The file that the process using the folder holds a lock on.
const LOCK: &str = "in-use";

/// A folder that is never taken for a folder of archives.
pub struct WorkFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl WorkFolder {
    /// Creates a folder below `store`, and removes those that no process uses any more.
    ///
    /// # Errors
    /// If `store` cannot be read or written to; the error names the path.
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
            // Keeps the lock until the folder is removed: the process that created it may be waiting for it.
            if is_ours
                && let Ok(lock) = File::open(path.join(LOCK))
                && lock.try_lock().is_ok()
                && let Err(e) = fs::remove_dir_all(&path)
            {
                tracing::warn!("cannot delete '{}', which nobody uses: {e}", path.display());
            }
        }
        loop {
            let folder = tempfile::Builder::new()
                .prefix(weir_repo::WORK_PREFIX)
                .tempdir_in(store)
                .map_err(about("make a folder in", store))?;
            let path = folder.path().join(LOCK);
            match File::create(&path).and_then(|lock| lock.lock().map(|()| lock)) {
                Ok(lock) if File::open(&path).is_ok() => return Ok(WorkFolder { folder, _lock: lock }),
                // Another process removed the folder before this one locked it: until then it looks unused.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound && store.exists() => {}
                Err(e) => return Err(about("lock", &path)(e)),
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_just_made_is_not_taken_for_one_that_was_left() {
        let store = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..300 {
                        let folder = WorkFolder::new(store.path()).unwrap();
                        fs::write(folder.path().join("a"), n.to_string()).unwrap();
                        assert_eq!(fs::read(folder.path().join("a")).unwrap(), n.to_string().as_bytes());
                    }
                });
            }
        });
        let left = store.path().join(format!("{}left", weir_repo::WORK_PREFIX));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        drop(WorkFolder::new(store.path()).unwrap());
        assert!(!left.exists());
    }
}
