//! The errors of this crate.

use std::io;

use weir_git::{CollisionError, ObjectError, Oid};

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The archive that holds the repository cannot be read.
    #[error(transparent)]
    Archive(#[from] weir_archive::Error),
    /// A git file does not follow its format.
    #[error("{file} is corrupt: {what}")]
    Corrupt {
        /// The file or member.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// The pack that was received cannot be accepted.
    #[error("the pack sent is invalid: {0}")]
    BadPack(String),
    /// The pack that was received is over a limit.
    #[error(
        "the pack sent is over a limit: {what} (limit {limit}); raise '{option}' in the configuration to \
        take it"
    )]
    Limit {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
        /// The configuration key.
        option: &'static str,
    },
    /// The base of the archive cannot be used.
    #[error("its base '{}' cannot be used: {source}", path.display())]
    Base {
        /// The path of the base.
        path: std::path::PathBuf,
        /// The error of the base.
        source: Box<Error>,
    },
    /// Objects are missing that others need.
    #[error("not connected: {referrer} needs {missing}, which is neither in the pack nor in the \
        repository{}", more(*.count))]
    NotConnected {
        /// The object or ref that names the missing object.
        referrer: String,
        /// The first id that is missing.
        missing: Oid,
        /// The number of missing ids.
        count: usize,
    },
    /// An object that should be here is missing.
    #[error("object {0} is missing")]
    Missing(Oid),
    /// An object is larger than its reader allows.
    #[error("object {oid} has {size} bytes (limit {limit})")]
    TooLarge {
        /// The id of the object.
        oid: Oid,
        /// The size of the object in bytes.
        size: u64,
        /// The largest size that is allowed.
        limit: u64,
    },
    /// Something that was asked for does not exist.
    #[error("{0}")]
    NotFound(String),
    /// An object cannot be parsed.
    #[error("object {oid}: {source}")]
    Object {
        /// The id of the object.
        oid: Oid,
        /// The reason.
        source: ObjectError,
    },
    /// SHA-1's collision detection fired.
    #[error(transparent)]
    Collision(#[from] CollisionError),
    /// weir does not support this.
    #[error("{0}")]
    Unsupported(String),
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more such objects)", count - 1) } else { String::new() }
}

impl Error {
    /// Returns whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Error::Io(e) | Error::Archive(weir_archive::Error::Io(e)) if matches!(e.kind(),
        StorageFull | QuotaExceeded))
    }

    /// Returns whether a later lease has written already.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Error::Archive(weir_archive::Error::Fenced { .. }))
    }

    /// Returns whether the stored data differs from what was written.
    pub fn is_damage(&self) -> bool {
        use weir_archive::Error::{Damaged, NoCommit, Tail};
        let is_unreadable = |e: &io::Error| e.raw_os_error().is_some() && weir_archive::is_unreadable(e);
        match self {
            Error::Archive(Damaged { .. } | NoCommit | Tail(_))
            | Error::Corrupt { .. }
            | Error::Missing(_) => true,
            // A block that the disk cannot read is the most common damage.
            Error::Archive(weir_archive::Error::Io(e)) | Error::Io(e) => is_unreadable(e),
            _ => false,
        }
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn corrupt<T>(file: impl Into<String>, what: impl Into<String>) -> Result<T> {
    Err(Error::Corrupt { file: file.into(), what: what.into() })
}

pub(crate) fn bad_pack<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::BadPack(what.into()))
}
