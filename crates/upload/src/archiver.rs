//! The one who makes archives of trees: above this crate.

use std::fmt::Debug;
use std::io::{self, Write};

use weir_repo::Repo;

/// Makes archives of trees for `git archive --remote`.
pub trait TreeArchiver: Debug + Send + Sync {
    /// Writes to `out` what `arguments`, those of git-archive(1), ask for.
    ///
    /// # Errors
    /// If the archive is refused, the repository cannot be read, or `out` fails.
    fn write(&self, repo: &Repo, arguments: &[Vec<u8>], out: &mut dyn Write) -> Result<(), ArchiverError>;
}

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiverError {
    /// It is refused for this reason, which the client is told.
    #[error("{0}")]
    Refused(String),
    /// The repository cannot be read.
    #[error(transparent)]
    Repo(weir_repo::Error),
    /// The output failed.
    #[error(transparent)]
    Output(io::Error),
}
