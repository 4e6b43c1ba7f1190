//! Why something cannot be done with a pool, or a repository of it.

use std::path::PathBuf;

use weir_ground::{FailureClass, FileError, NameError, without_password};

/// Why something cannot be done with a repository of a pool.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A table or worker for events cannot be used.
    #[error("the table or worker '{name}' of [events]: {why}")]
    Collector {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// A failure of the system without a better name.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A failure with one file.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no pool at the path.
    #[error("there is no pool at '{}'", .0.display())]
    NoPool(PathBuf),
    /// The pool at the path has lost its catalog.
    #[error("the pool at '{}' has no catalog.db", .0.display())]
    NoCatalog(PathBuf),
    /// The pool at the path has lost its settings.
    #[error("the pool at '{}' has no weir.toml", .0.display())]
    NoConfig(PathBuf),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] weir_settings::Error),
    /// The store is missing.
    #[error("the store of this pool is missing: '{}' does not exist; mount the store, or, if its archives \
        are gone for good, write '{id}' into that file to clone all again", .id_file.display())]
    NoStore {
        /// The file that identifies the store.
        id_file: PathBuf,
        /// The id that it must contain.
        id: String,
    },
    /// No repository matches the pattern.
    #[error("no repository matches '{}'", without_password(.0))]
    NoMatch(String),
    /// A filter of failures is no pattern of a repository, and no class of failures.
    #[error("'{0}' matches no repository and names no class of failures; there are {classes}, listing and \
        metadata", classes = class_names())]
    NoFailures(String),
    /// A folder or a pattern was given where one repository is wanted.
    #[error("'{name}' is not a repository, but matches {count}")]
    NotOne {
        /// The given name.
        name: String,
        /// The number of repositories that match.
        count: usize,
    },
    /// The repository has no archive yet.
    #[error("'{0}' has not been mirrored yet")]
    NotMirrored(String),
    /// The repository's archive is missing.
    #[error("the archive of '{name}' is missing ('{}')", .path.display())]
    ArchiveMissing {
        /// The repository.
        name: String,
        /// Where its archive was.
        path: PathBuf,
    },
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
    /// A URL is invalid.
    #[error(transparent)]
    Url(#[from] weir_transport::UrlError),
    /// An archive or a clone cannot be read.
    #[error("cannot read '{name}': {source}")]
    Repo {
        /// The repository.
        name: String,
        /// The reason.
        source: weir_repo::Error,
    },
    /// The spool of events cannot be used.
    #[error(transparent)]
    Spool(#[from] weir_events::SpoolError),
    /// A secret of a webhook cannot be one.
    #[error(transparent)]
    Secret(#[from] weir_events::WrongSecret),
    /// A door for events cannot be opened.
    #[error("cannot listen on {address}: {source}; choose another in [events] of weir.toml")]
    Listen {
        /// Its address.
        address: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The repository has no state of this name.
    #[error("'{name}' has no state {state}")]
    NoState {
        /// The repository.
        name: String,
        /// The name or number of the state.
        state: String,
    },
    /// The URL or path of an upstream looks like a mistake, for this reason.
    #[error("{0}")]
    Doubtful(String),
    /// An archive cannot be rewritten.
    #[error(transparent)]
    NotRewritten(weir_repo::Error),
    /// The URL of an upstream gives no valid name.
    #[error(transparent)]
    NoName(NameError),
    /// The file of the repository's archive has that of another upstream.
    #[error("'{}' already holds a copy of {url}", .path.display())]
    OtherUpstream {
        /// The file.
        path: PathBuf,
        /// The upstream, in printable characters.
        url: String,
    },
    /// The archive already builds on another.
    #[error("it already builds on '{}'", .base.display())]
    HasBase {
        /// The repository.
        name: String,
        /// The archive that it builds on.
        base: PathBuf,
    },
    /// The archive of a repository that is to be forgotten builds on another, and would be of no use later.
    #[error("the archive of '{name}' builds on that of '{base}'")]
    NeedsBase {
        /// The repository.
        name: String,
        /// The repository whose archive it builds on.
        base: String,
    },
    /// So many repositories are gone that their forge may have listed only a part.
    #[error(
        "{gone} of {known} repositories of {whose} are gone, more than {percent} per cent: nothing was \
        deleted"
    )]
    TooManyGone {
        /// The number that are gone.
        gone: usize,
        /// The number that were known.
        known: i64,
        /// The name of the forge, or a description of those without one.
        whose: String,
        /// The most that may be gone, in per cent.
        percent: u8,
    },
    /// The operation is refused. The text gives the reason, with the remedy.
    #[error("{0}")]
    Refused(String),
}

/// Returns the names of the classes of failures, separated by commas.
fn class_names() -> String {
    let names: Vec<&str> = FailureClass::ALL.iter().map(|class| class.name()).collect();
    names.join(", ")
}

/// The result of an operation on a pool.
pub type Result<T> = std::result::Result<T, Error>;

/// Names the repository that an error is about.
pub trait InRepo<T> {
    /// Turns an error into one about the repository called `name`.
    ///
    /// # Errors
    /// If `self` is an error.
    fn in_repo(self, name: &str) -> Result<T>;
}

impl<T> InRepo<T> for weir_repo::Result<T> {
    fn in_repo(self, name: &str) -> Result<T> {
        self.map_err(|source| match source {
            // The text names what was not found.
            weir_repo::Error::NotFound(text) => Error::Refused(text),
            source => Error::Repo { name: name.to_owned(), source },
        })
    }
}
