//! Writing a new file beside an old one, and taking its place only when durable (section 6).

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;

/// What the names of files being written end in. Such a file counts for nothing and may be removed when nobody locks it.
pub const TEMPORARY_SUFFIX: &str = ".weir-tmp";

/// What the names of folders begin with in which something is prepared: no archives are in them yet.
pub const WORK_PREFIX: &str = ".weir-work-";

/// A file being written that will stand at `path` once it is complete; removed if dropped before.
pub struct Replacement {
    temporary: PathBuf,
    path: PathBuf,
    file: Option<File>,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl Replacement {
    /// Creates a locked file beside `path`, and the folders above it.
    ///
    /// # Errors
    /// Of the system.
    pub fn create(path: &Path) -> Result<Replacement> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{}{TEMPORARY_SUFFIX}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let temporary = folder.join(name);
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&temporary);
        let file = match open() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder)?;
                open()?
            }
            other => other?,
        };
        file.lock()?;
        Ok(Replacement { temporary, path: path.to_owned(), file: Some(file) })
    }

    /// The file.
    ///
    /// # Errors
    /// Of the system.
    pub fn file(&self) -> io::Result<File> {
        self.file.as_ref().expect("present until persisted").try_clone()
    }

    /// Gives the file its name, in place of what stood there, and makes that durable. Its content must be durable. It stays
    /// locked by whoever has a handle on it.
    ///
    /// # Errors
    /// Of the system; then what stood there stands.
    pub fn persist(self) -> Result<()> {
        let path = self.path.clone();
        self.persist_unsynced()?;
        sync_folder_of(&path)?;
        Ok(())
    }

    /// The same, but the name is durable only after [`sync_folder_of`]: for those who make many and sync once.
    ///
    /// # Errors
    /// Of the system; then what stood there stands.
    pub fn persist_unsynced(mut self) -> Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        self.file = None;
        Ok(())
    }
}

/// Makes the names in the folder of `path` durable.
///
/// # Errors
/// Of the system.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Removes files below `folder` that killed processes left half-written. Returns how many.
///
/// # Errors
/// If a folder cannot be read.
pub fn remove_stale(folder: &Path) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(WORK_PREFIX.as_bytes()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            removed += remove_stale(&entry.path())?;
        } else if entry.file_name().as_encoded_bytes().ends_with(TEMPORARY_SUFFIX.as_bytes())
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
            && fs::remove_file(entry.path()).is_ok()
        {
            removed += 1;
        }
    }
    Ok(removed)
}
