//! The lock on the index of a git directory, as git takes it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file_times::FileTime;

/// A lock on the index; what was written so far is dropped, unless it is committed. It has no file open, so
/// that the working tree can be mounted again.
pub(crate) struct IndexLock {
    path: PathBuf,
    /// Another name of the same file, by which weir knows a lock that one of its processes left.
    mark: PathBuf,
    index: PathBuf,
    /// When it was taken, as the file system has it.
    pub(crate) time: FileTime,
    is_committed: bool,
}

impl IndexLock {
    /// Takes the lock, also if a process of this program was killed that had it.
    ///
    /// # Errors
    /// If another program has it.
    pub(crate) fn take(git_dir: &Path) -> Result<IndexLock> {
        let (path, mark) = (git_dir.join("index.lock"), git_dir.join("switch.lock"));
        if is_one_file(&path, &mark) {
            let _ = fs::remove_file(&path);
        }
        let _ = fs::remove_file(&mark);
        let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let file = create(&mark).map_err(Error::on(&mark))?;
        let file = match fs::hard_link(&mark, &path) {
            Ok(()) => Ok(file),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
            // Without links a lock that is left has to be removed by hand.
            Err(_) => create(&path),
        };
        let file = file.map_err(|e| {
            let _ = fs::remove_file(&mark);
            if e.kind() == io::ErrorKind::AlreadyExists { in_use(&path) } else { Error::on(&path)(e) }
        })?;
        let time = FileTime::modified(&file.metadata().map_err(Error::on(&path))?);
        Ok(IndexLock { path, mark, index: git_dir.join("index"), time, is_committed: false })
    }

    /// Writes what is to be the index.
    pub(crate) fn write(&self, data: &[u8]) -> Result<()> {
        let file = OpenOptions::new().write(true).truncate(true).open(&self.path);
        file.and_then(|mut file| file.write_all(data)).map_err(Error::on(&self.path))
    }

    /// Makes what was written the index.
    pub(crate) fn commit(mut self) -> Result<()> {
        fs::rename(&self.path, &self.index).map_err(Error::on(&self.index))?;
        self.is_committed = true;
        let _ = fs::remove_file(&self.mark);
        Ok(())
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        if !self.is_committed {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(&self.mark);
        }
    }
}

/// Returns the error that the lock `path` is there.
pub(crate) fn in_use(path: &Path) -> Error {
    let path = path.display();
    Error::Odd(format!("'{path}' is there: another git works here, or has crashed; then remove the file"))
}

fn is_one_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::symlink_metadata(path).map(|about| (about.dev(), about.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_taken_again_only_from_a_switch_that_ended() {
        let dir = weir_testing::folder();
        let at = dir.path();
        let there = || ["index", "index.lock", "switch.lock"].map(|name| at.join(name).exists());
        let lock = IndexLock::take(at).unwrap();
        assert_eq!(there(), [false, true, true]);
        lock.write(b"longer").unwrap();
        lock.write(b"new").unwrap();
        lock.commit().unwrap();
        assert_eq!(there(), [true, false, false]);
        assert_eq!(fs::read(at.join("index")).unwrap(), b"new");
        // One that is killed leaves both names.
        std::mem::forget(IndexLock::take(at).unwrap());
        drop(IndexLock::take(at).unwrap());
        assert_eq!(there(), [true, false, false]);
        assert_eq!(fs::read(at.join("index")).unwrap(), b"new");
        fs::write(at.join("index.lock"), "").unwrap();
        assert!(matches!(IndexLock::take(at), Err(Error::Odd(_))), "another program has it");
        assert_eq!(there(), [true, true, false]);
        fs::remove_file(at.join("index.lock")).unwrap();
        assert!(matches!(IndexLock::take(&at.join("none")), Err(Error::File { .. })));
    }
}
