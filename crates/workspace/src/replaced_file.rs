//! Replaces files.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use weir_ground::thread::spawn;

use crate::error::{Error, Result};

/// Replaces the file `path`, if it is there, by one with the content `data`.
pub(crate) fn replace_file(path: &Path, data: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, data).and_then(|()| fs::rename(&new, path)).map_err(Error::on(path))
}

/// Files that the caller is about to replace or remove. When they are dropped, another thread frees their
/// blocks: a disk that hears of each at once (`discard` in mount(8)) takes as long for that as for a write.
#[derive(Default)]
pub(crate) struct LeftFiles(Vec<OwnedFd>);

impl LeftFiles {
    /// Keeps the file `path`, if it is there. The mount on which it is stays in use meanwhile.
    pub(crate) fn keep(&mut self, path: &Path) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.0.extend(openat(CWD, path, flags, Mode::empty()));
    }
}

impl Drop for LeftFiles {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.0);
        if !files.is_empty() {
            // If there is no other thread, this one has closed the files.
            let _ = spawn("free", move || drop(files));
        }
    }
}
