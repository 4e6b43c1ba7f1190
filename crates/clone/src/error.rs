//! Why a repository cannot be cloned.

use std::path::PathBuf;

use weir_git::Oid;

/// Why a repository cannot be cloned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory is not empty.
    #[error("'{}' already exists and is not empty; choose another folder", .0.display())]
    NotEmpty(PathBuf),
    /// The server cannot be reached, or does not answer as it should.
    #[error("cannot fetch from {url}: {source}")]
    Upstream {
        /// The URL, without credentials.
        url: String,
        /// The reason.
        source: weir_transport::Error,
    },
    /// A file of the clone cannot be read or written.
    #[error(transparent)]
    File(#[from] weir_ground::FileError),
    /// The archive or the new repository cannot be read.
    #[error("cannot read '{name}': {source}")]
    Repo {
        /// The archive, or "the clone".
        name: String,
        /// The reason.
        source: weir_repo::Error,
    },
    /// The working tree cannot be written.
    #[error(transparent)]
    WorkTree(#[from] weir_worktree::Error),
    /// The server's pack has changed since the last request.
    #[error("the repository has changed meanwhile; clone it again")]
    Changed,
    /// A download broke off too often. The downloaded part stays.
    #[error(
        "{file}: download interrupted at byte {at} of {bytes}: {why}; run the same command again to resume"
    )]
    Interrupted {
        /// The file's path below the repository's URL.
        file: String,
        /// The bytes downloaded so far.
        at: u64,
        /// The bytes in total.
        bytes: u64,
        /// How the last attempt ended.
        why: String,
    },
    /// A file does not end with its own checksum.
    #[error("{0}: wrong checksum; clone it again")]
    Checksum(String),
    /// The index does not belong to the pack.
    #[error("pack and index do not match: {0}")]
    Mismatch(&'static str),
    /// The index has duplicate or unsorted ids: git might take another entry than the one that was checked.
    #[error("the clone's pack index is not sorted: neither git nor weir wrote it")]
    UnsortedIndex,
    /// An object does not match its id.
    #[error("do not trust this server: object {oid}: {why}")]
    Untrusted {
        /// The object.
        oid: Oid,
        /// What is wrong with it.
        why: String,
    },
    /// Objects are missing, or do not match their ids.
    #[error("the clone is damaged: {0}")]
    Damaged(String),
    /// There is no branch or tag of the requested name.
    #[error("Remote branch {branch} not found in upstream {origin}")]
    NoBranch {
        /// The name.
        branch: String,
        /// The remote's name.
        origin: String,
    },
    /// git could not write the working tree.
    #[error(
        "the clone is complete, but nothing is checked out: {why}; run 'git -C {} reset --hard'",
        .top.display()
    )]
    CheckOut {
        /// How git ended.
        why: String,
        /// The working tree.
        top: PathBuf,
    },
}

/// The result of cloning.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a function that makes the error "the repository called `name` cannot be read".
    pub(crate) fn repo(name: &str) -> impl FnOnce(weir_repo::Error) -> Error {
        let name = name.to_owned();
        move |source| Error::Repo { name, source }
    }
}
