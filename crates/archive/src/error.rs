//! What can go wrong with an archive.

use std::io;

use weir_ground::Epoch;

use crate::tail::{Tail, tail_is};

/// A failure of this crate. Paths are added by whoever knows them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no committed group: not an archive of weir's, or its first write was cut off.
    #[error("no valid commit record: not a weir archive, or its very first write was cut off")]
    NoCommit,
    /// Something committed is not as it was written.
    #[error("damaged at byte {offset}: {what}; run 'weir fsck' on it")]
    Damaged {
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The bytes behind the last commit that holds may be a damaged commit.
    #[error("{}; run 'weir fsck --repair' on it", tail_is(.0))]
    Tail(Tail),
    /// A later lease has written already.
    #[error(
        "another visit has taken the lease and has already written (lease {epoch}, the archive has {highest})"
    )]
    Fenced {
        /// The number of the lease that was to write.
        epoch: Epoch,
        /// The highest that has written.
        highest: Epoch,
    },
    /// A file for a new archive that has something in it.
    #[error("the file for a new archive is not empty")]
    NotEmpty,
    /// A group with two members of one name, or one called as records are.
    #[error("a commit cannot have two members called '{0}'")]
    NameTwice(String),
    /// An attribute that a record cannot hold.
    #[error("attribute '{0}' has a space in its name, or a line break")]
    BadAttribute(String),
    /// Something stands already where a new archive was to be.
    #[error("another archive was made there meanwhile")]
    Exists,
    /// A member name the format cannot hold.
    #[error("member name '{0}' is empty, longer than 100 bytes, or has a control character or space")]
    BadName(String),
    /// Another writer holds the archive.
    #[error("another process is writing to it")]
    Locked,
    /// A commit that would list more members than a record holds.
    #[error("{0} members are more than an archive can list; nothing was written")]
    TooManyMembers(usize),
    /// The writer refused to commit a state that breaks an invariant. It wrote nothing; this is a bug in
    /// weir.
    #[error("commit {seq} would not be whole: {what}; nothing was written (a bug in weir)")]
    Invariant {
        /// Number of the commit.
        seq: u64,
        /// The invariant that it breaks.
        what: String,
    },
    /// Not as many bytes were given for a member as were announced, or more.
    #[error("member '{name}' was announced with {len} bytes, and given {given}")]
    Length {
        /// Its name.
        name: String,
        /// Bytes announced.
        len: u64,
        /// Bytes given.
        given: u64,
    },
    /// Not as many bytes were given for a reserved member as were announced, or more.
    #[error("a reserved member was finished with {given} bytes beyond what was written")]
    Reserved {
        /// Bytes given.
        given: u64,
    },
}

impl Error {
    /// Whether the disk cannot read what it has stored, or the file ends before.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Error::Io(e) if is_unreadable(e))
    }
}

/// Whether `e` says that a disk cannot read what it has stored (EIO), that a file is no more where it was
/// (ESTALE), or that it ends before what was to be read.
pub fn is_unreadable(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::UnexpectedEof || matches!(e.raw_os_error(), Some(libc::EIO | libc::ESTALE))
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn damaged<T>(offset: u64, what: impl Into<String>) -> Result<T> {
    Err(Error::Damaged { offset, what: what.into() })
}
