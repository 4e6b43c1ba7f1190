//! Errors of mining.

use std::io;

/// Why a repository could not be mined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository cannot be read at all. Damage in parts of it becomes rows.
    #[error(transparent)]
    Repo(#[from] weir_repo::Error),
    /// The rows cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// An older archive stands where a newer one was mined.
    #[error("the archive ends with commit {found}, but commit {mined} was mined before")]
    Older {
        /// The number of the last commit that was mined.
        mined: u64,
        /// The number of the last commit of the archive.
        found: u64,
    },
    /// A stop was requested.
    #[error("mining was stopped")]
    Stopped,
}

/// The result of mining.
pub type Result<T> = std::result::Result<T, Error>;
