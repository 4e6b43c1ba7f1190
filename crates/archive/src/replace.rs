//! Writing a new file beside an old one, which it replaces only when it is durable (section 6).

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::lock::{LockedFile, is_still_at};

/// Suffix of temporary files. A writer locks its temporary file and renames it when it is complete. An
/// unlocked one was left by a crash and may be removed.
pub const TEMPORARY_SUFFIX: &str = ".weir-tmp";

/// Prefix of temporary folders. A search for archives skips them.
pub const WORK_PREFIX: &str = ".weir-work-";

/// The file that a new one may replace.
#[derive(Clone, Copy, Debug)]
pub enum Takes<'a> {
    /// No file. If another process has made one there meanwhile, it stays.
    FreePlace,
    /// This open and locked file. If another file has taken its place since, that file stays.
    PlaceOf(&'a LockedFile),
}

/// A file that is being written, and that will stand at `path` once it is complete. It is removed if dropped
/// before.
pub struct Replacement {
    temporary: PathBuf,
    path: PathBuf,
    file: Option<File>,
}

/// How many random names are tried.
const NAMES_MAX: usize = 16;

impl Replacement {
    /// Creates a locked file beside `path`, and the folders above it.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn create(path: &Path) -> Result<Replacement> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut name = OsString::from(".");
            name.push(path.file_name().unwrap_or_default());
            // Processes on other machines and in other containers may have the same number.
            name.push(format!(".{:016x}{TEMPORARY_SUFFIX}", RandomState::new().hash_one(std::process::id())));
            let temporary = folder.join(name);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    file.lock()?;
                    // Another process may have removed the file before this one locked it: until then it
                    // looks like a leftover of a killed process (`remove_stale`).
                    if is_still_at(&file, &temporary)? {
                        return Ok(Replacement { temporary, path: path.to_owned(), file: Some(file) });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < NAMES_MAX => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Returns a handle of the file.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn file(&self) -> io::Result<File> {
        self.file.as_ref().expect("present until persisted").try_clone()
    }

    /// Renames the file into place, if `takes` allows it, and makes the name durable. The content must
    /// already be durable. The file stays locked as long as a handle of it is open.
    ///
    /// # Errors
    /// [`Error::Exists`] if something else is there; or if a system call fails. Then nothing was replaced.
    pub fn persist(self, takes: Takes<'_>) -> Result<()> {
        let path = self.path.clone();
        self.persist_unsynced(takes)?;
        sync_folder_of(&path)?;
        Ok(())
    }

    /// Renames the file into place without syncing its folder. A power failure may undo the rename until the
    /// caller has called [`sync_folder_of`]; a caller that writes many files syncs the folder once.
    ///
    /// # Errors
    /// As [`Replacement::persist`].
    pub fn persist_unsynced(mut self, takes: Takes<'_>) -> Result<()> {
        match takes {
            Takes::FreePlace => rename_to_free_place(&self.temporary, &self.path)?,
            Takes::PlaceOf(locked) if locked.is_still_at(&self.path)? => {
                fs::rename(&self.temporary, &self.path)?
            }
            Takes::PlaceOf(_) => return Err(Error::Exists),
        }
        self.file = None;
        Ok(())
    }
}

/// Renames `from` to `to`, if nothing is called `to`.
fn rename_to_free_place(from: &Path, to: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(Error::Exists),
        // Network file systems may not support the flag. A hard link does not replace another file either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::hard_link(from, to) {
            Ok(()) => Ok(fs::remove_file(from)?),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists),
            Err(e) => Err(e.into()),
        },
        Err(e) => Err(io::Error::from(e).into()),
    }
}

/// Makes the names in the folder of `path` durable.
///
/// # Errors
/// If a system call fails.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}

/// Makes the names in `folder` durable.
///
/// # Errors
/// If a system call fails.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Removes files below `folder` that killed processes left half-written. Returns how many it removed, and the
/// folders that cannot be read, which it skips.
///
/// # Errors
/// If `folder` itself cannot be read.
pub fn remove_stale(folder: &Path) -> io::Result<(usize, Vec<(PathBuf, io::Error)>)> {
    let (mut removed, mut unread) = (0, Vec::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        let entries = match fs::read_dir(&at) {
            Err(e) if at == folder => return Err(e),
            Err(e) => {
                unread.push((at, e));
                continue;
            }
            Ok(entries) => entries,
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    unread.push((at.clone(), e));
                    break;
                }
            };
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(WORK_PREFIX.as_bytes()) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if name.as_encoded_bytes().ends_with(TEMPORARY_SUFFIX.as_bytes())
                && let Ok(file) = File::open(entry.path())
                && file.try_lock().is_ok()
                && fs::remove_file(entry.path()).is_ok()
            {
                removed += 1;
            }
        }
    }
    Ok((removed, unread))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_file_that_was_just_made_is_not_taken_for_one_that_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        remove_stale(folder.path()).unwrap();
                    }
                });
            }
            for n in 0..3000 {
                let path = folder.path().join(n.to_string());
                let made =
                    Replacement::create(&path).and_then(|made| made.persist_unsynced(Takes::FreePlace));
                is_done.store(made.is_err(), Ordering::Relaxed);
                made.unwrap();
                fs::remove_file(&path).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        File::create(folder.path().join(format!("left{TEMPORARY_SUFFIX}"))).unwrap();
        assert_eq!(remove_stale(folder.path()).unwrap().0, 1);
    }
}
