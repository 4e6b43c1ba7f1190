//! Failures of databases.

/// A failure of a database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite returned an error.
    #[error("{0}")]
    Sqlite(rusqlite::Error),
    /// The file of SQLite is read-only for this user.
    #[error("the file is read-only for this user")]
    ReadOnly,
    /// PostgreSQL returned an error, or the connection to it was lost.
    #[error("{message}")]
    Postgres {
        /// The message.
        message: String,
        /// The code (SQLSTATE), if there is one.
        code: Option<String>,
    },
    /// PostgreSQL cannot be connected to.
    #[error("cannot connect to {place}: PostgreSQL: {why}")]
    Unreachable {
        /// The address of the server.
        place: String,
        /// The reason.
        why: String,
    },
    /// A lock was lost with the connection, and another process has it now.
    #[error("lost the connection to PostgreSQL, and with it the lock of {0}, which another process has now")]
    LockLost(String),
    /// A lock beside the file of SQLite cannot be taken.
    #[error("cannot lock a file beside it: {0}")]
    Lock(std::io::Error),
    /// Rows could not be sent.
    #[error("{0}")]
    Copy(std::io::Error),
    /// The URL of a database is invalid.
    #[error("the URL {url} of a database: {why}")]
    BadUrl {
        /// The URL, without its password.
        url: String,
        /// The reason.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
