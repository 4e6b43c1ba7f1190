//! SQL over tables of repositories, mined when a query asks for them.
//!
//! [`QueryDatabase::reads`] prepares a query and notes the columns that it reads. [`QueryDatabase::load`]
//! mines these into a SQLite file without a name, and [`QueryDatabase::run`] runs the query there. `rules`
//! decides what a query may do; `functions` replaces functions of SQLite whose time has no bound.
//! [`KeptDatabases`] keeps files for the next queries about the same repositories.

mod answer;
mod database;
mod error;
mod functions;
mod kept;
mod rules;
mod spill;

pub use answer::{CsvRows, QueryAnswer, QueryLimits, QueryRow, QueryValue};
pub use database::{QueryDatabase, QueryLoad};
pub use error::QueryError;
pub use kept::{KeptDatabases, QueryKey};
