//! Paths of sockets, which have at most 108 bytes (unix(7)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// An open folder, through which the paths of its entries are short.
pub(crate) struct ShortPath(File);

impl ShortPath {
    pub(crate) fn open(folder: &Path) -> io::Result<ShortPath> {
        File::open(folder).map(ShortPath)
    }

    /// Returns a path of `name` in the folder, which leads there while this value lives.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}
