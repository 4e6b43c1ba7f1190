//! What can go wrong with an archive.

use std::io;

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
    /// A member name the format cannot hold.
    #[error("member name '{0}' is empty, longer than 100 bytes, or has a control character or space")]
    BadName(String),
    /// Another writer holds the archive.
    #[error("another process is writing to it")]
    Locked,
    /// A commit that would list more members than a record holds.
    #[error("{0} members are more than an archive can list; nothing was written")]
    TooManyMembers(usize),
    /// Not as many bytes were given for a reserved member as were announced, or more.
    #[error("a reserved member was finished with {given} bytes beyond what was written")]
    Reserved {
        /// Bytes given.
        given: u64,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn damaged<T>(offset: u64, what: impl Into<String>) -> Result<T> {
    Err(Error::Damaged { offset, what: what.into() })
}
