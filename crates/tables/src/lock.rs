//! The lock of an output: one process at a time writes to it.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::{Error, Result};

/// A locked file. It is unlocked when dropped, and not only when it is closed: a program that another thread
/// is just starting holds a duplicate of the handle for a moment.
pub(crate) struct OutputLock(File);

impl OutputLock {
    /// Locks the file `path`, which is created if it is not there, for the output `named`.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has locked it; also if the file cannot be opened.
    pub(crate) fn take(path: &Path, named: &Path) -> Result<OutputLock> {
        let file = File::options().create(true).truncate(false).write(true).read(true).open(path);
        let file = file.map_err(Error::on(path))?;
        match file.try_lock() {
            Ok(()) => Ok(OutputLock(file)),
            Err(TryLockError::WouldBlock) => Err(Error::InUse(named.to_owned())),
            Err(TryLockError::Error(e)) => Err(Error::on(path)(e)),
        }
    }
}

impl Drop for OutputLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
