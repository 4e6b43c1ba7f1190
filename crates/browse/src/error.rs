//! The errors of this crate.

use std::io;

use weir_git::ObjectError;

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such revision or path, or nobody may see it.
    #[error("{0}")]
    NotFound(String),
    /// The object is of another kind than the request needs.
    #[error("{0}")]
    WrongKind(String),
    /// The answer would take too much.
    #[error("{0}")]
    TooLarge(String),
    /// The repository cannot be read.
    #[error(transparent)]
    Repo(weir_repo::Error),
    /// The output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The result of what can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl From<weir_repo::Error> for Error {
    fn from(e: weir_repo::Error) -> Error {
        match e {
            weir_repo::Error::NotFound(words) => Error::NotFound(words),
            e => Error::Repo(e),
        }
    }
}

impl Error {
    /// Returns a function that makes an error about the object `oid`.
    pub(crate) fn of_object(oid: &weir_git::Oid) -> impl Fn(ObjectError) -> Error {
        let oid = *oid;
        move |source| Error::Repo(weir_repo::Error::Object { oid, source })
    }
}
