//! SQL for two databases, SQLite and PostgreSQL: connections, one dialect for both, parameters, rows, and
//! statements over many rows at once. The crates above define the tables.
//!
//! ```no_run
//! # fn main() -> weir_sql::Result<()> {
//! use weir_sql::{Database, values};
//!
//! // PostgreSQL takes the same statements: Database::connect("postgres://...").
//! let database = Database::open("numbers.db".as_ref())?;
//! database.batch("CREATE TABLE numbers (n INTEGER NOT NULL)")?;
//! database.execute("INSERT INTO numbers (n) VALUES (?1)", &values![7i64])?;
//! let sql = "SELECT n FROM numbers WHERE n > ?1";
//! let numbers: Vec<i64> = database.query(sql, &values![3i64], |row| row.get(0))?;
//! assert_eq!(numbers, [7]);
//! # Ok(())
//! # }
//! ```

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
