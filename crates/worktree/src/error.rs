//! What can go wrong with a working tree.

use std::io;
use std::path::{Path, PathBuf};

use weir_git::Oid;

/// Why a working tree or its index cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository cannot be read.
    #[error(transparent)]
    Repo(#[from] weir_repo::Error),
    /// A file or folder cannot be read or written.
    #[error("cannot access '{path}': {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The index is not one that git writes.
    #[error("the index is damaged: {0}; 'git reset' writes it anew")]
    DamagedIndex(&'static str),
    /// The index has its entries elsewhere, or stands for folders.
    #[error("the index is split or sparse; switch with git, which knows how")]
    SplitIndex,
    /// git would not check the tree out.
    #[error("git checks out no tree in which '{path}' {what}")]
    Unusable {
        /// The path.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An object is of another kind than the tree says.
    #[error("{0} is of another kind than the tree says")]
    OtherKind(Oid),
    /// There are more files than an index can have.
    #[error("there are more files than an index can have")]
    Full,
}

impl Error {
    /// Returns an error about a tree in which `what` is true of `path`.
    pub fn unusable(path: &[u8], what: &'static str) -> Error {
        Error::Unusable { path: String::from_utf8_lossy(path).into_owned(), what }
    }

    /// Returns a function that makes an error about `path` of a system's error.
    pub fn on(path: &Path) -> impl Fn(io::Error) -> Error {
        move |source| Error::File { path: path.to_owned(), source }
    }
}

/// The result of a fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
