//! Why a spool cannot be used.

use std::path::PathBuf;

use weir_ground::FileError;

use crate::spool::segment::VERSION;

/// Why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process has it.
    #[error("the spool '{}' is in use by another process", .0.display())]
    InUse(PathBuf),
    /// It was written by a newer version.
    #[error("'{}' has version {version} of the format of spools, and this weir reads {VERSION}: use a newer \
        weir", .path.display())]
    Newer {
        /// The segment.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// It holds as much as it may.
    #[error("the spool '{}' is full: {bytes} bytes wait", .folder.display())]
    Full {
        /// The folder.
        folder: PathBuf,
        /// How many bytes it holds.
        bytes: u64,
    },
}
