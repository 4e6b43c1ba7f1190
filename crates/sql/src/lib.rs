//! SQL for two databases, SQLite and PostgreSQL: connections, one dialect for both, parameters, rows, and
//! statements over many rows at once. The crates above define the tables.

mod address;
mod database;
mod dialect;
mod error;
mod locks;
mod postgres_client;
mod value;

pub use address::{check_url, connect_postgres, redacted};
pub use database::{Database, Rows, TransactionError, TransactionKind};
pub use dialect::{Type, quoted, schema_for_postgres};
pub use error::{Error, Result};
pub use value::{Field, Row, Value};
