//! Failures of the catalog.

use weir_sql::TransactionError;

/// A failure of the catalog.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error("{}", told(.0))]
    Sql(#[from] weir_sql::Error),
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
    #[error("{count} archives build on it, such as '{first}', and would be lost with it")]
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

/// Returns the message that tells a user why the database failed.
fn told(e: &weir_sql::Error) -> String {
    use weir_sql::Error as SqlError;
    match e {
        SqlError::ReadOnly => "the catalog (catalog.db of the pool) is read-only for this user; run the \
                               command as its owner"
            .to_owned(),
        SqlError::LockLost(listing) => {
            format!("lost the connection to PostgreSQL; another machine continues the listing of {listing}")
        }
        // They name the place.
        SqlError::Unreachable { .. } | SqlError::BadUrl { .. } => e.to_string(),
        SqlError::Postgres { .. } | SqlError::Copy(_) => format!("catalog: PostgreSQL: {e}"),
        SqlError::Sqlite(_) | SqlError::Lock(_) | SqlError::Tls(_) => format!("catalog: {e}"),
    }
}

impl TransactionError for Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Error::Sql(e) if e.is_conflict())
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
