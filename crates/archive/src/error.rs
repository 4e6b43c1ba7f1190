//! What can go wrong with an archive.

use std::io;

use weir_ground::Epoch;

use crate::tail::{Tail, tail_is};

/// A failure of this crate. Callers that know the path add it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no committed group: the file is not an archive of weir, or its first write was cut off.
    #[error("no valid commit record: not a weir archive, or its very first write was cut off")]
    NoCommit,
    /// The archive has a commit of a later version of the format.
    #[error("its format is version {0}, written by a newer weir; upgrade weir")]
    Newer(u32),
    /// Something committed is not as it was written.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The bytes behind the last valid commit may be a damaged commit.
    #[error("{}", tail_is(.0))]
    Tail(Tail),
    /// A later lease has already written.
    #[error(
        "another visit has taken the lease and has already written (lease {epoch}, the archive has {highest})"
    )]
    Fenced {
        /// The number of the lease that was refused.
        epoch: Epoch,
        /// The highest number of a lease that has written.
        highest: Epoch,
    },
    /// The file for a new archive is not empty.
    #[error("the file for a new archive is not empty")]
    NotEmpty,
    /// A group has two members with one name, or a member with the name of records.
    #[error("a commit cannot have two members called '{0}'")]
    NameTwice(String),
    /// An attribute that a record cannot hold.
    #[error("attribute '{0}' has a space in its name, or a line break")]
    BadAttribute(String),
    /// Another file is already where a new archive should go.
    #[error("another archive was made there meanwhile")]
    Exists,
    /// A member name the format cannot hold.
    #[error("member name '{0}' is empty, longer than 100 bytes, or has a control character or space")]
    BadName(String),
    /// Another writer holds the archive.
    #[error("another process is writing to it")]
    Locked,
    /// A commit that would list more members than a record can hold.
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
    /// A member was given fewer or more bytes than were announced.
    #[error("member '{name}' was announced with {len} bytes, and given {given}")]
    Length {
        /// Its name.
        name: String,
        /// Bytes announced.
        len: u64,
        /// Bytes given.
        given: u64,
    },
    /// A reserved member was finished with more bytes than were written.
    #[error("a reserved member was finished with {given} bytes beyond what was written")]
    Reserved {
        /// How many bytes are missing.
        given: u64,
    },
}

impl Error {
    /// Returns whether the disk cannot read what it has stored, or the file ends too early.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Error::Io(e) if is_unreadable(e))
    }
}

/// Returns whether `e` means that a disk cannot read what it has stored (EIO), that a file is no longer where
/// it was (ESTALE), or that it ends too early.
pub fn is_unreadable(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::UnexpectedEof || matches!(e.raw_os_error(), Some(libc::EIO | libc::ESTALE))
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn damaged<T>(offset: u64, what: impl Into<String>) -> Result<T> {
    Err(Error::Damaged { offset, what: what.into() })
}
