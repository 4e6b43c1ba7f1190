//! One writer at a time: an advisory lock on the archive itself, which ends with the process that holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{Error, Result};

/// A file that is open for writing and locked. It is unlocked when dropped, even while readers still use
/// copies of the handle.
#[derive(Debug)]
pub struct LockedFile(pub File);

impl LockedFile {
    /// Returns whether `path` still leads to this file.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn is_still_at(&self, path: &Path) -> io::Result<bool> {
        is_still_at(&self.0, path)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing would unlock the file only once every duplicate of the handle is closed, and open
        // repositories hold duplicates.
        let _ = self.0.unlock();
    }
}

/// Locks the archive at `path` for writing, and waits while another writer has it.
///
/// # Errors
/// If a system call fails.
pub fn lock_existing(path: &Path) -> Result<LockedFile> {
    loop {
        let file = open(path)?;
        file.lock()?;
        if is_still_at(&file, path)? {
            return Ok(LockedFile(file));
        }
        // Compaction renamed a new file over this one while we waited.
    }
}

/// Locks the archive at `path` for writing, and fails if another writer has it.
///
/// # Errors
/// [`Error::Locked`] if another writer has it; or if a system call fails.
pub fn try_lock_existing(path: &Path) -> Result<LockedFile> {
    loop {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) if is_still_at(&file, path)? => return Ok(LockedFile(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Locked),
            Err(TryLockError::Error(e)) => return Err(e.into()),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    open_file(OpenOptions::new().read(true).write(true), path)
}

/// Opens the file at `path` for reading.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    open_file(OpenOptions::new().read(true), path)
}

/// Opens a file, and fails if it is not an ordinary one. It does not wait for the other end of a pipe.
fn open_file(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = how.custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no ordinary file"));
    }
    Ok(file)
}

/// Returns whether `path` leads to `file`. It opens `path` for that: on a network file system, only opening
/// asks the server what is there. A lookup of the name may be answered with what was there a minute ago.
pub(crate) fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match File::open(path).and_then(|file| file.metadata()) {
        Ok(theirs) => Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

impl crate::Storage for LockedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        crate::Storage::read_exact_at(&self.0, buf, offset)
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        crate::Storage::write_all_at(&self.0, data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        crate::Storage::sync(&self.0)
    }
    fn len(&self) -> io::Result<u64> {
        crate::Storage::len(&self.0)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        crate::Storage::set_len(&self.0, len)
    }
    fn end_mark(&self) -> io::Result<Option<crate::EndMark>> {
        crate::Storage::end_mark(&self.0)
    }
    fn set_end_mark(&self, mark: crate::EndMark) {
        crate::Storage::set_end_mark(&self.0, mark);
    }
}
