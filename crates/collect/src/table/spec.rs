//! The columns, rows and errors that tables of SQLite and of PostgreSQL share.

use std::path::PathBuf;
use std::sync::Arc;

use weir_sql::quoted;

use crate::column::{EventCell, EventColumn};

/// Connects to a PostgreSQL server.
pub type ConnectPostgres = Arc<dyn Fn() -> Result<::postgres::Client, weir_sql::Error> + Send + Sync>;

/// Where a table is.
#[derive(Clone)]
pub enum TableDatabase {
    /// In a file of SQLite.
    Sqlite(PathBuf),
    /// In PostgreSQL.
    Postgres(ConnectPostgres),
}

/// A table.
#[derive(Clone)]
pub struct EventTableSpec {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub database: TableDatabase,
    /// Whose events go into it: numbers of events mean nothing to another owner.
    pub owner: String,
    /// Its columns, beside those that each table has: `event_id`, `received_at` and `peer`.
    pub columns: Vec<EventColumn>,
}

/// A row.
#[derive(Clone, Debug)]
pub struct EventRow<'r> {
    /// The number of the event.
    pub id: i64,
    /// When it came, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who sent it.
    pub peer: &'r str,
    /// A cell for each column.
    pub cells: Vec<EventCell<'r>>,
}

/// A row that the database does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// The number of the event.
    pub id: i64,
    /// The error message of the database.
    pub why: String,
}

/// Why rows were not appended: none of them was.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The database does not take these rows: a constraint, a value out of range. It takes the others.
    #[error("the database refuses {} rows", .0.len())]
    Rows(Vec<RefusedRow>),
    /// The database cannot be used.
    #[error("{0}")]
    Database(String),
}

/// The statements of a table, and its connection.
pub(super) trait TableConnection: Send {
    /// Returns the number of the last event that is in the table.
    fn position(&mut self) -> Result<i64, TableError>;

    /// Appends `rows`, and notes `position`. Does nothing if that was noted before.
    fn append(&mut self, rows: &[EventRow<'_>], position: Option<i64>) -> Result<(), TableError>;
}

impl EventTableSpec {
    /// Returns the names of all columns, quoted: any word may be one.
    pub(super) fn column_names(&self) -> String {
        let own = self.columns.iter().map(|column| quoted(&column.name));
        let names = ["event_id", "received_at", "peer"].map(str::to_owned);
        names.into_iter().chain(own).collect::<Vec<_>>().join(", ")
    }

    /// Returns the statements that make the table and that of positions, with the types that `type_of` names
    /// and those of the columns that each table has.
    pub(super) fn create(&self, type_of: impl Fn(&EventColumn) -> &'static str, of_all: [&str; 3]) -> String {
        let own = self.columns.iter().map(|column| {
            let null = if column.is_required { " NOT NULL" } else { "" };
            format!(", \"{}\" {}{null}", column.name, type_of(column))
        });
        let [integer, time, text] = of_all;
        format!(
            "CREATE TABLE IF NOT EXISTS \"{name}\" (event_id {integer} PRIMARY KEY,
                received_at {time} NOT NULL, peer {text} NOT NULL{own});
             CREATE TABLE IF NOT EXISTS weir_positions (reader {text} PRIMARY KEY, owner {text} NOT NULL,
                position {integer} NOT NULL);",
            name = self.name,
            own = own.collect::<String>(),
        )
    }

    /// Returns the statement that finds out whether the table has these columns.
    pub(super) fn probe(&self) -> String {
        format!("SELECT {} FROM \"{}\" LIMIT 0", self.column_names(), self.name)
    }

    /// Returns the position that the database has with an owner; 0, if it has none.
    ///
    /// # Errors
    /// If the owner is another one.
    pub(super) fn own(&self, place: &str, found: Option<(String, i64)>) -> Result<i64, TableError> {
        match found {
            None => Ok(0),
            Some((owner, position)) if owner == self.owner => Ok(position),
            Some(_) => Err(self.fail(
                place,
                "it is filled by another pool, whose events have the same numbers: choose another name, or \
                 delete the rows, and that of the table in weir_positions",
            )),
        }
    }

    /// Returns an error that the table has not the right columns.
    pub(super) fn lacks(&self, place: &str, what: impl std::fmt::Display) -> TableError {
        let names = self.column_names();
        self.fail(place, format!("{what}; it needs the columns {names}: add them, or choose another name"))
    }

    /// Returns an error about the table.
    pub(super) fn fail(&self, place: &str, what: impl std::fmt::Display) -> TableError {
        TableError::Database(format!("the table '{}' in {place}: {what}", self.name))
    }
}
