//! One friendly line for every way a command can fail.

use std::path::PathBuf;

/// A failure of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Writing to the terminal, or anything of the system without a better name.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Something about one file.
    #[error("cannot {what} '{}': {source}", .path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// There is no pool.
    #[error("there is no pool at '{}'; make one with 'weir init', or name another with --pool", .0.display())]
    NoPool(PathBuf),
    /// The store is not there.
    #[error("the store of this pool is missing: '{}' does not exist; mount the store, or, if its archives \
        are gone for good, write '{id}' into that file to clone all again", .id_file.display())]
    NoStore { id_file: PathBuf, id: String },
    /// No repository matches.
    #[error("no repository matches '{0}'; run 'weir ls' to list all")]
    NoMatch(String),
    /// A folder or a pattern where one repository is wanted.
    #[error("'{name}' is not a repository, but matches {count}; run 'weir ls {name}' to list them")]
    NotOne { name: String, count: usize },
    /// A repository without content.
    #[error("'{0}' has not been mirrored yet; run 'weir mirror {0}'")]
    NotMirrored(String),
    /// A repository whose archive was there once.
    #[error("the archive of '{name}' is missing ('{}'); run 'weir mirror {name}' to clone it again",
    .path.display())]
    ArchiveMissing { name: String, path: PathBuf },
    /// The configuration.
    #[error("{0}")]
    Config(String),
    /// The catalog.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
    /// `weir clone`.
    #[error(transparent)]
    Clone(#[from] weir_clone::Error),
    /// Visits.
    #[error(transparent)]
    Mirror(#[from] weir_mirror::RunError),
    /// Metadata of forges.
    #[error(transparent)]
    Metadata(#[from] weir_metadata::Error),
    /// A repository.
    #[error("cannot read '{name}': {source}")]
    Repo { name: String, source: weir_repo::Error },
    /// A URL.
    #[error(transparent)]
    Url(#[from] weir_transport::UrlError),
    /// Anything with a message of its own.
    #[error("{0}")]
    Message(String),
}

/// The exit code of a command that did its work, but not for all repositories: as restic's for sources that
/// cannot be read.
pub(crate) const SOME_FAILED: u8 = 3;

impl Error {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) | Error::Url(_) => 2,
            _ => 1,
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Names the repository an error is about.
pub(crate) trait InRepo<T> {
    fn in_repo(self, name: &str) -> Result<T>;
}

impl<T> InRepo<T> for weir_repo::Result<T> {
    fn in_repo(self, name: &str) -> Result<T> {
        self.map_err(|source| match source {
            weir_repo::Error::NotFound(text) => Error::Message(text),
            source => Error::Repo { name: name.to_owned(), source },
        })
    }
}
