//! One friendly line for every way a command can fail.

use weir_ground::OtherError;

use crate::pool_path::PoolPath;

/// A failure of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Writing to the terminal failed, or another system call without a better name.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Something about one file.
    #[error(transparent)]
    File(#[from] weir_ground::FileError),
    /// There is no pool.
    #[error("there is no pool at {0}")]
    NoPool(PoolPath),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
    /// A database that is not the catalog failed.
    #[error(transparent)]
    Sql(#[from] weir_sql::Error),
    /// `weir clone` failed.
    #[error(transparent)]
    Clone(#[from] weir_clone::Error),
    /// An operation on the pool's archives failed.
    #[error(transparent)]
    Pool(weir_pool::Error),
    /// The mirror loop failed.
    #[error(transparent)]
    Mirror(weir_mirror::RunError),
    /// Mirroring metadata failed.
    #[error(transparent)]
    Metadata(#[from] weir_metadata::Error),
    /// Rows cannot be written.
    #[error(transparent)]
    Tables(weir_tables::Error),
    /// Something that a user names cannot be shown.
    #[error(transparent)]
    Work(weir_work::Error),
    /// A workspace fails.
    #[error(transparent)]
    Workspace(#[from] weir_workspace::Error),
    /// A URL is invalid.
    #[error(transparent)]
    Url(#[from] weir_transport::UrlError),
    /// Any failure with a message of its own.
    #[error("{0}")]
    Message(String),
}

/// The exit code of a command that did its work, but not for all repositories: as restic's for sources that
/// cannot be read.
pub(crate) const SOME_FAILED: u8 = 3;

impl From<weir_mirror::RunError> for Error {
    fn from(e: weir_mirror::RunError) -> Error {
        match e {
            // Wherever the catalog failed, who watches tries again.
            weir_mirror::RunError::Catalog(e) => Error::Catalog(e),
            weir_mirror::RunError::Select(e) => e.into(),
            e => Error::Mirror(e),
        }
    }
}

impl From<weir_tables::Error> for Error {
    fn from(e: weir_tables::Error) -> Error {
        match e {
            // The reader of printed rows went away.
            weir_tables::Error::Stream(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Error::Io(e),
            e => Error::Tables(e),
        }
    }
}

impl Error {
    /// Returns the error that shows the words of `cause`.
    pub(crate) fn of(cause: impl std::fmt::Display) -> Error {
        Error::Message(cause.to_string())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) | Error::Url(_) => 2,
            _ => 1,
        }
    }
}

/// Errors that both enums have become the same variant here, so that a `match` on one finds them all.
impl From<weir_pool::Error> for Error {
    fn from(e: weir_pool::Error) -> Error {
        match e {
            weir_pool::Error::Io(e) => Error::Io(e),
            weir_pool::Error::File(e) => Error::File(e),
            weir_pool::Error::Catalog(e) => Error::Catalog(e),
            weir_pool::Error::Url(e) => Error::Url(e),
            weir_pool::Error::Settings(e) => e.into(),
            e => Error::Pool(e),
        }
    }
}

impl From<weir_settings::Error> for Error {
    fn from(e: weir_settings::Error) -> Error {
        match e {
            weir_settings::Error::File(e) => Error::File(e),
            weir_settings::Error::Wrong(text) => Error::Config(text),
            e @ (weir_settings::Error::Proxy(_) | weir_settings::Error::App { .. }) => {
                Error::Message(e.to_string())
            }
            e @ (weir_settings::Error::Webhook { .. } | weir_settings::Error::Hook { .. }) => {
                Error::Config(e.to_string())
            }
        }
    }
}

impl From<weir_work::Error> for Error {
    fn from(e: weir_work::Error) -> Error {
        match e {
            weir_work::Error::File(e) => Error::File(e),
            weir_work::Error::Io(e) => Error::Io(e),
            weir_work::Error::Pool(e) => e.into(),
            weir_work::Error::Clone(e) => e.into(),
            weir_work::Error::Url(e) => e.into(),
            weir_work::Error::Workspace(e) => e.into(),
            weir_work::Error::Other(e) => e.into(),
            e => Error::Work(e),
        }
    }
}

impl From<weir_process::RestartError> for Error {
    fn from(e: weir_process::RestartError) -> Error {
        Error::of(e)
    }
}

/// Errors of this program's own functions come back from libraries that called them.
impl From<OtherError> for Error {
    fn from(e: OtherError) -> Error {
        match e.downcast::<Error>() {
            Ok(e) => *e,
            Err(e) => Error::Message(e.to_string()),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;
