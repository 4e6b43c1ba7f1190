//! Errors of queries.

use std::io;

use crate::mining::SourceError;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The statement is wrong, or does what no query may.
    #[error("{0}")]
    Statement(String),
    /// The tables or the answer would be too large.
    #[error("{0}")]
    TooLarge(String),
    /// The time was over, or a stop was requested, while the query ran.
    #[error("the query was stopped before its end")]
    Stopped,
    /// The time was over, or a stop was requested, while its tables were mined.
    #[error("the query was stopped while its tables were mined")]
    StoppedMining,
    /// The rows cannot be written.
    #[error("cannot write the rows: {0}")]
    Output(io::Error),
    /// A repository cannot be opened.
    #[error("cannot open '{origin}': {cause}")]
    Unread {
        /// The name of the repository.
        origin: String,
        /// The error.
        cause: SourceError,
    },
    /// A repository cannot be mined.
    #[error("cannot mine '{origin}': {source}")]
    Mine {
        /// The name of the repository.
        origin: String,
        /// The error.
        source: weir_mine::Error,
    },
    /// The file for the tables cannot be made, or fails.
    #[error("cannot hold the tables of a query: {0}")]
    File(io::Error),
}

/// The result of a query.
pub(super) type Result<T> = std::result::Result<T, QueryError>;

/// Returns the error behind `e`, which came while tables were made or filled.
pub(super) fn of_file(e: rusqlite::Error) -> QueryError {
    match e.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => QueryError::TooLarge(
            "the tables that the query reads are too large; name fewer repositories, or fewer columns"
                .to_owned(),
        ),
        _ => QueryError::File(io::Error::other(e)),
    }
}

/// Returns the error behind `e`, which came from a statement of a user.
pub(super) fn of_statement(e: rusqlite::Error) -> QueryError {
    use rusqlite::ErrorCode;
    match (e.sqlite_error_code(), e) {
        (Some(ErrorCode::OperationInterrupted), _) => QueryError::Stopped,
        (Some(ErrorCode::TooBig), _) => {
            QueryError::TooLarge("the query makes a text or a blob that is too long".to_owned())
        }
        (Some(ErrorCode::DiskFull), _) => too_large_spill(),
        (Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::DatabaseCorrupt), e) => {
            QueryError::File(io::Error::other(e))
        }
        (Some(ErrorCode::AuthorizationForStatementDenied), e) => {
            QueryError::Statement(format!("a query only reads the tables: {}", words(&e)))
        }
        (_, rusqlite::Error::MultipleStatement) => {
            QueryError::Statement("give one statement, not several".to_owned())
        }
        (_, rusqlite::Error::InvalidParameterCount(..)) => {
            QueryError::Statement("a query has no parameters such as ?1".to_owned())
        }
        (_, e) => QueryError::Statement(words(&e)),
    }
}

/// Returns the error that a query has written too much to temporary files.
pub(super) fn too_large_spill() -> QueryError {
    QueryError::TooLarge("the query needs too much room for what it sorts or groups".to_owned())
}

/// Returns the words of SQLite, without those of the library.
fn words(e: &rusqlite::Error) -> String {
    match e {
        rusqlite::Error::SqliteFailure(_, Some(words)) => words.clone(),
        rusqlite::Error::SqlInputError { msg, offset, .. } if *offset >= 0 => {
            format!("{msg} (at byte {offset} of the statement)")
        }
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        e => e.to_string(),
    }
}
