//! Tables of a database that lines are appended to.
//!
//! Rows and the number of the last event that they are made of are written in one transaction: each event is
//! in the table once, whatever is killed or away.

mod postgres;
mod sqlite;

use std::path::PathBuf;
use std::sync::Arc;

use crate::column::{EventCell, EventColumn, check_identifier};
use crate::table::postgres::PostgresTable;
use crate::table::sqlite::SqliteTable;

/// Connects to a PostgreSQL server. An error is a text for the user.
pub type ConnectPostgres = Arc<dyn Fn() -> Result<::postgres::Client, String> + Send + Sync>;

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
    /// What the database said.
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
trait TableConnection: Send {
    /// Returns the number of the last event that is in the table.
    fn position(&mut self) -> Result<i64, TableError>;

    /// Appends `rows`, and notes `position`. Does nothing if it was noted before.
    fn append(&mut self, rows: &[EventRow<'_>], position: i64) -> Result<(), TableError>;
}

/// A table that rows are appended to. It connects when it is used, and again after an error.
pub struct EventTable {
    spec: EventTableSpec,
    connection: Option<Box<dyn TableConnection>>,
}

impl EventTable {
    /// Returns the table.
    ///
    /// # Errors
    /// If its name cannot be one.
    pub fn new(spec: EventTableSpec) -> Result<EventTable, String> {
        check_identifier(&spec.name)?;
        Ok(EventTable { spec, connection: None })
    }

    /// Returns the number of the last event that is in the table; 0, if there was none.
    ///
    /// # Errors
    /// If the database cannot be used, or has another table of that name.
    pub fn position(&mut self) -> Result<i64, TableError> {
        self.with(|connection| connection.position())
    }

    /// Appends `rows`, and notes that the table has what it is to have of the events up to number `position`.
    ///
    /// # Errors
    /// If the database refuses rows, or cannot be used: nothing was appended.
    pub fn append(&mut self, rows: &[EventRow<'_>], position: i64) -> Result<(), TableError> {
        self.with(|connection| connection.append(rows, position))
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut dyn TableConnection) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        let mut connection: Box<dyn TableConnection> = match self.connection.take() {
            Some(connection) => connection,
            None => match &self.spec.database {
                TableDatabase::Sqlite(path) => Box::new(SqliteTable::open(path, &self.spec)?),
                TableDatabase::Postgres(connect) => Box::new(PostgresTable::open(connect, &self.spec)?),
            },
        };
        let done = work(&mut *connection);
        if !matches!(done, Err(TableError::Database(_))) {
            self.connection = Some(connection);
        }
        done
    }
}

impl EventTableSpec {
    /// Returns the names of all columns, quoted: any word may be one.
    fn column_names(&self) -> String {
        let own = self.columns.iter().map(|column| format!("\"{}\"", column.name));
        let names = ["event_id", "received_at", "peer"].map(str::to_owned);
        names.into_iter().chain(own).collect::<Vec<_>>().join(", ")
    }

    /// Returns the statements that make the table and that of positions, with the types that `type_of` names
    /// and those of the columns that each table has.
    fn create(&self, type_of: impl Fn(&EventColumn) -> &'static str, of_all: [&str; 3]) -> String {
        let own = self.columns.iter().map(|column| {
            let null = if column.is_required { " NOT NULL" } else { "" };
            format!(", \"{}\" {}{null}", column.name, type_of(column))
        });
        let [integer, time, text] = of_all;
        format!(
            "CREATE TABLE IF NOT EXISTS \"{name}\" (event_id {integer} PRIMARY KEY, received_at {time} NOT NULL, \
             peer {text} NOT NULL{own});
             CREATE TABLE IF NOT EXISTS weir_positions (reader {text} PRIMARY KEY, position {integer} NOT NULL);",
            name = self.name,
            own = own.collect::<String>(),
        )
    }

    /// Returns the statement that finds out whether the table has these columns.
    fn probe(&self) -> String {
        format!("SELECT {} FROM \"{}\" LIMIT 0", self.column_names(), self.name)
    }

    /// Returns an error about the table.
    fn fail(&self, place: &str, what: impl std::fmt::Display) -> TableError {
        TableError::Database(format!("the table '{}' in {place}: {what}", self.name))
    }
}
