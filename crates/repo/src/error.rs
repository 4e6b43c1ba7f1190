//! What can go wrong with a repository.

use std::io;

use weir_git::{CollisionError, ObjectError, Oid};

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The archive below is not readable.
    #[error(transparent)]
    Archive(#[from] weir_archive::Error),
    /// A file of git's is not as its format says.
    #[error("{file} is corrupt: {what}")]
    Corrupt {
        /// Which file or member.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// The pack that came in cannot be accepted.
    #[error("the pack sent is invalid: {0}")]
    BadPack(String),
    /// The pack that came in is over a limit.
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
    /// The archive that one builds on cannot be used.
    #[error("its base '{}' cannot be used: {source}", path.display())]
    Base {
        /// Where it is.
        path: std::path::PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// Objects are missing: a hole.
    #[error("not connected: {referrer} needs {missing}, which is neither in the pack nor in the \
        repository{}", more(*.count))]
    NotConnected {
        /// The object or ref that names what is missing.
        referrer: String,
        /// The first id that is missing.
        missing: Oid,
        /// How many ids are missing in all.
        count: usize,
    },
    /// An object that should be here is not.
    #[error("object {0} is missing")]
    Missing(Oid),
    /// An object is larger than what its reader takes.
    #[error("object {oid} has {size} bytes (limit {limit})")]
    TooLarge {
        /// Which.
        oid: Oid,
        /// Its bytes.
        size: u64,
        /// The most that are taken.
        limit: u64,
    },
    /// Something asked for does not exist.
    #[error("{0}")]
    NotFound(String),
    /// An object cannot be parsed.
    #[error("object {oid}: {source}")]
    Object {
        /// Which.
        oid: Oid,
        /// Why.
        source: ObjectError,
    },
    /// SHA-1's collision detection fired.
    #[error(transparent)]
    Collision(#[from] CollisionError),
    /// Something weir does not do.
    #[error("{0}")]
    Unsupported(String),
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more such objects)", count - 1) } else { String::new() }
}

impl Error {
    /// Whether there is no room left on the disk.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Error::Io(e) | Error::Archive(weir_archive::Error::Io(e)) if matches!(e.kind(),
        StorageFull | QuotaExceeded))
    }

    /// Whether a later lease has written already.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Error::Archive(weir_archive::Error::Fenced { .. }))
    }

    /// Whether what is stored here is not as it was written.
    pub fn is_damage(&self) -> bool {
        use weir_archive::Error::{Damaged, NoCommit, Tail};
        let is_unreadable = |e: &io::Error| e.raw_os_error().is_some() && weir_archive::is_unreadable(e);
        match self {
            Error::Archive(Damaged { .. } | NoCommit | Tail(_))
            | Error::Corrupt { .. }
            | Error::Missing(_) => true,
            // A block that the disk cannot read is the commonest damage of all.
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
