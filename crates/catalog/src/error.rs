//! Failures of the catalog.

/// A failure of the catalog.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite returned an error.
    #[error("catalog: {0}")]
    Sqlite(rusqlite::Error),
    /// The catalog is read-only for this user.
    #[error("the catalog (catalog.db of the pool) is read-only for this user; run the command as its owner")]
    ReadOnly,
    /// PostgreSQL returned an error, or the connection to it was lost.
    #[error("catalog: PostgreSQL: {message}")]
    Postgres {
        /// The message.
        message: String,
        /// The code (SQLSTATE), if there is one.
        code: Option<String>,
    },
    /// PostgreSQL cannot be connected to.
    #[error("cannot connect to {place}: {why}")]
    Unreachable {
        /// The address of the server.
        place: String,
        /// The reason.
        why: String,
    },
    /// A lock was lost with the connection, and another process has it now.
    #[error("lost the connection to PostgreSQL; another machine continues the listing of {0}")]
    LockLost(String),
    /// A lock beside the catalog cannot be taken.
    #[error("catalog: cannot lock a file beside it: {0}")]
    Lock(std::io::Error),
    /// Rows could not be sent.
    #[error("catalog: PostgreSQL: {0}")]
    Copy(std::io::Error),
    /// The URL of a database is invalid.
    #[error("the catalog's URL {url}: {why}")]
    BadUrl {
        /// The URL, without its password.
        url: String,
        /// The reason.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("catalog: TLS: {0}")]
    Tls(rustls::Error),
    /// The catalog was written by a newer weir.
    #[error("the catalog has schema version {0}, written by a newer weir; upgrade weir")]
    TooNew(i64),
    /// A name is taken.
    #[error("a repository named '{name}' already exists, mirrored from {url}; choose another name")]
    NameTaken {
        /// The name.
        name: String,
        /// The upstream of the repository that has it.
        url: String,
    },
    /// The forge of the repository decides its name and URL.
    #[error("name and URL of '{0}' come from its forge: the next crawl would revert the change")]
    OfForge(String),
    /// The destination of a migration is not empty.
    #[error("the database already has a catalog with {0} repositories; migrate into an empty one")]
    NotEmpty(i64),
    /// The catalog belongs to another pool.
    #[error("the catalog belongs to another store, not to {0}: each pool needs its own database or schema")]
    OtherStore(String),
    /// Another process reads a catalog that is to be moved.
    #[error("another process is reading the new catalog; it cannot be renamed into place yet")]
    Unsettled,
    /// Other archives build on the archive of the repository.
    #[error(
        "{count} archives build on it, such as '{first}', and would be lost with it; run 'weir dissociate' \
        on them first"
    )]
    BuiltOn {
        /// How many.
        count: i64,
        /// The name of one.
        first: String,
    },
    /// The repository cannot be a base.
    #[error("not usable as a base: a base must be another repository that exists and has no base itself")]
    NoBase,
    /// A copy differs from its source.
    #[error("table {table} has {source_rows} rows and its copy {copied_rows}; nothing was kept of it")]
    NotTheSame {
        /// The table.
        table: String,
        /// Rows read.
        source_rows: i64,
        /// Rows in the copy.
        copied_rows: i64,
    },
}

impl Error {
    /// Returns whether another transaction was in the way (SQLSTATE serialization_failure,
    /// deadlock_detected).
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Error::Postgres { code: Some(code), .. } if code == "40001" || code == "40P01")
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
