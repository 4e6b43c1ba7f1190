//! Failures between the name that a user gives and the view that he gets.

use std::path::PathBuf;

use weir_ground::{FileError, OtherError};
use weir_process::StartError;

/// A failure to show something that a user names.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A system call fails.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A repository cannot be read.
    #[error("{name}: {source}")]
    Repo {
        /// Its name or path.
        name: String,
        /// The reason.
        source: weir_repo::Error,
    },
    /// The pool, or the repository in it, cannot be opened.
    #[error(transparent)]
    Pool(#[from] weir_pool::Error),
    /// A server cannot be read.
    #[error(transparent)]
    Clone(#[from] weir_clone::Error),
    /// A URL is invalid.
    #[error(transparent)]
    Url(#[from] weir_transport::UrlError),
    /// A view or workspace cannot be made.
    #[error(transparent)]
    Workspace(#[from] weir_workspace::Error),
    /// A process of this program does not run.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The text is no URL of a server.
    #[error("'{0}' is no URL of http or https")]
    NoUrl(String),
    /// The text is a URL, and names no repository of this machine.
    #[error("'{0}' is a URL, not a repository of this machine")]
    Elsewhere(String),
    /// No weir serves the repository at this URL as one pack.
    #[error(
        "{0}: no weir serves a repository of that name as one pack; if 'git ls-remote' knows it, 'git clone' \
        can have it"
    )]
    NotServed(String),
    /// The server's files could not be read, for this reason.
    #[error("{0}")]
    Unread(String),
    /// A path cannot be told from the current folder.
    #[error("cannot find '{}' from the current folder: {source}", .path.display())]
    Nowhere {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The branch is checked out elsewhere.
    #[error("'{branch}' is checked out at '{place}', a linked working tree")]
    CheckedOut {
        /// The branch.
        branch: String,
        /// The working tree.
        place: String,
    },
    /// The branch of a workspace has no commit, so that there is nothing to switch from.
    #[error("the branch '{branch}' has no commit yet; switch with 'git checkout {revision}'")]
    Unborn {
        /// The branch.
        branch: String,
        /// The revision that was to be shown.
        revision: String,
    },
    /// Another process shows the view.
    #[error("process {0} shows it elsewhere; end it, and the programs in its workspaces, first")]
    ShownElsewhere(String),
    /// The process that started this one does not need it any more.
    #[error("whoever started this view does not need it")]
    NotNeeded,
    /// The kernel makes no namespace for the user.
    #[error(transparent)]
    NoNamespace(weir_workspace::Error),
    /// A function of the caller failed.
    #[error(transparent)]
    Other(OtherError),
}

/// The result of a fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a function that makes an error about the repository `name`.
    pub(crate) fn in_repo(name: impl ToString) -> impl Fn(weir_repo::Error) -> Error {
        move |source| Error::Repo { name: name.to_string(), source }
    }
}
