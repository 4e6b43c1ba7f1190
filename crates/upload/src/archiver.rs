//! The one who makes archives of trees: above this crate.

use std::fmt::Debug;
use std::io::Write;

use weir_repo::Repo;

/// Makes archives of trees for `git archive --remote`.
pub trait TreeArchiver: Debug + Send + Sync {
    /// Writes to `out` what `arguments`, those of git-archive(1), ask for.
    ///
    /// # Errors
    /// The words for the client.
    fn write(&self, repo: &Repo, arguments: &[Vec<u8>], out: &mut dyn Write) -> Result<(), String>;
}
