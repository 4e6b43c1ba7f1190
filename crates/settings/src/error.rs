//! Why settings cannot be used.

use std::path::PathBuf;

use weir_forge::AppError;
use weir_ground::{FileError, NameError};
use weir_transport::ProxyError;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The secrets of a webhook cannot be used.
    #[error("secret_files of the webhook '{name}' in [[events.webhook]]: {why}")]
    Webhook {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The secrets of a hook cannot be used.
    #[error("secret_files of the webhook '{name}' in [[hooks.webhook]]: {why}")]
    Hook {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The file has a mistake. The text names the file, the line and the key.
    #[error("{0}")]
    Wrong(String),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A proxy cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The private key of a GitHub App cannot be used.
    #[error("{}: {source}", .file.display())]
    App {
        /// The file of the key.
        file: PathBuf,
        /// The reason.
        source: AppError,
    },
}

/// The reason why weir cannot use a setting. Callers print it behind the setting's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(String);

impl SettingError {
    /// Returns the error that another one causes.
    pub fn of(cause: impl std::fmt::Display) -> SettingError {
        SettingError(cause.to_string())
    }
}

impl From<String> for SettingError {
    fn from(words: String) -> SettingError {
        SettingError(words)
    }
}

impl From<NameError> for SettingError {
    fn from(cause: NameError) -> SettingError {
        SettingError::of(cause)
    }
}

impl From<&str> for SettingError {
    fn from(words: &str) -> SettingError {
        SettingError(words.to_owned())
    }
}

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
