//! What can go wrong with a view.

use weir_git::Oid;

/// An error of a view or of its mount.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository cannot be read.
    #[error(transparent)]
    Repo(#[from] weir_repo::Error),
    /// The repositories cannot be listed or found.
    #[error("{0}")]
    Source(String),
    /// The object is a file, which cannot be mounted.
    #[error("{0} is no commit, and no tag or tree")]
    NoCommit(Oid),
    /// A working tree or its index cannot be read or written.
    #[error(transparent)]
    WorkTree(#[from] weir_worktree::Error),
    /// A file from another machine is not what its id says, or has another size than was said.
    #[error("object {0} of the server is not what its id or its size says: do not trust this server")]
    Untrusted(Oid),
    /// A file or folder cannot be read or written.
    #[error("cannot access '{path}': {source}")]
    File {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no workspace.
    #[error("'{0}' is in no workspace")]
    NoWorkspace(std::path::PathBuf),
    /// The folder is a workspace already.
    #[error("'{0}' is a workspace already")]
    Taken(std::path::PathBuf),
    /// The folder has files.
    #[error("'{0}' is not empty; choose another folder")]
    NotEmpty(std::path::PathBuf),
    /// Somebody else has moved HEAD of the workspace while it was about to be switched. Nothing has changed.
    #[error("HEAD of '{}' has moved meanwhile; try again", .0.display())]
    HeadMoved(std::path::PathBuf),
    /// git cannot be started.
    #[error("cannot start git: {0}")]
    NoGit(std::io::Error),
    /// git fails.
    #[error("git {command} in '{folder}': {said}")]
    Git {
        /// The command.
        command: String,
        /// The folder that git works in.
        folder: std::path::PathBuf,
        /// The text that git printed.
        said: String,
    },
    /// git cannot set refs of the workspace in this folder.
    #[error("git cannot set the refs of '{0}'")]
    Refs(std::path::PathBuf),
    /// A revision has no name.
    #[error("there is no revision without a name")]
    EmptyRevision,
    /// The reflog of a workspace's HEAD does not go back that far.
    #[error("'{0}' names nothing: the reflog of HEAD has no checkout that far back")]
    NeverElsewhere(String),
    /// A revision is something else than a commit.
    #[error("'{0}' is no commit")]
    NotACommit(String),
    /// The workspace is not mounted.
    #[error("it is not mounted")]
    NotMounted,
    /// A switch to another commit was begun, and has not ended.
    #[error("a switch to '{other}' is not finished")]
    Unfinished {
        /// The workspace.
        folder: std::path::PathBuf,
        /// The branch or commit that it was to show.
        other: String,
        /// The file that notes the switch.
        note: std::path::PathBuf,
    },
    /// git would not check the commit out.
    #[error("{0}")]
    Odd(String),
    /// The folder is in use, or the user may not unmount it.
    #[error("cannot unmount '{path}': {source}{}", end_users(source))]
    Unmount {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel makes no namespace for the user.
    #[error("the kernel makes no namespace for this user: {0}")]
    NoNamespace(std::io::Error),
    /// A file was used as a folder.
    #[error("not a folder")]
    NotAFolder,
    /// A folder was used as a file.
    #[error("not a file")]
    NotAFile,
    /// No node has the number.
    #[error("no such node")]
    NoNode,
    /// A view has as many files as it can number.
    #[error("the view has more files than it can number")]
    Full,
    /// The folder cannot be mounted on.
    #[error("cannot mount on '{path}': {source}{remedy}")]
    Mount {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
        /// What can be done about it; begins with a separator, or is empty.
        remedy: String,
    },
}

/// Returns what can be done about a folder that cannot be unmounted.
fn end_users(e: &std::io::Error) -> &'static str {
    match e.kind() {
        std::io::ErrorKind::ResourceBusy => "; end the programs that use it ('fuser -vm FOLDER' lists them)",
        _ => "",
    }
}

/// The result of a fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error about a tree in which `what` is true of `path`.
    pub(crate) fn unusable(path: &[u8], what: &str) -> Error {
        Error::Odd(format!("git checks out no tree in which '{}' {what}", String::from_utf8_lossy(path)))
    }

    /// Returns a function that makes an error about `path` of a system's error.
    pub(crate) fn on(path: &std::path::Path) -> impl Fn(std::io::Error) -> Error {
        move |source| Error::File { path: path.to_owned(), source }
    }
}
