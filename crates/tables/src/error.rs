//! Errors of datasets.

use std::io;
use std::path::{Path, PathBuf};

/// Why a dataset cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("cannot write '{}': {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A database fails.
    #[error("cannot write to '{place}': {source}")]
    Database {
        /// The name of the database.
        place: String,
        /// The error.
        source: weir_sql::Error,
    },
    /// The encoding of a database is not UTF-8, in which weir writes texts.
    #[error(
        "cannot write to '{place}': its encoding is {encoding}, not UTF8, in which texts are; make a \
        database with ENCODING 'UTF8' TEMPLATE template0"
    )]
    OtherEncoding {
        /// The name of the database.
        place: String,
        /// The encoding.
        encoding: String,
    },
    /// weir cannot read the state that a database keeps for a repository.
    #[error("cannot write to '{place}': the state of '{origin}': {why}")]
    BadState {
        /// The name of the database.
        place: String,
        /// The repository.
        origin: String,
        /// The reason.
        why: String,
    },
    /// The stream of rows cannot be written.
    #[error("cannot write the rows: {0}")]
    Stream(io::Error),
    /// Another process writes to the dataset.
    #[error("'{}' is in use by another process that mines", .0.display())]
    InUse(PathBuf),
    /// A folder has files but is no dataset.
    #[error("'{}' is not empty and not a dataset of weir; choose another folder", .0.display())]
    NotADataset(PathBuf),
    /// A dataset was made with other settings.
    #[error("'{}' was mined with other settings", path.display())]
    OtherSettings {
        /// The folder or database.
        path: PathBuf,
        /// The name of the format of a folder's files.
        format: Option<String>,
        /// The settings as flags of `weir mine`, the form in which datasets of earlier versions store them.
        flags: String,
    },
    /// The tables were made by an older or a newer weir.
    #[error(
        "'{}' has tables of version {found}, and this weir writes version {wanted}; {}",
        path.display(),
        if found < wanted { "mine into another place" } else { "use a newer weir" }
    )]
    OtherVersion {
        /// The folder or database.
        path: PathBuf,
        /// The version that it has.
        found: i32,
        /// The version that this weir writes.
        wanted: i32,
    },
    /// A file of the dataset is damaged.
    #[error("'{}' is damaged: {what}; mine into another folder", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error.
        what: String,
    },
}

impl Error {
    /// Returns a function that makes an error about `path`.
    pub(crate) fn on(path: &Path) -> impl Fn(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path: path.clone(), source }
    }
}

/// The result of writing a dataset.
pub type Result<T> = std::result::Result<T, Error>;
