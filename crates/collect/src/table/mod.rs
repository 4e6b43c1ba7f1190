//! Tables of a database that lines are appended to.
//!
//! Rows and the number of the last event that they are made of are written in one transaction: each event is
//! in the table once, whatever is killed or away.

mod postgres;
mod spec;
mod sqlite;

use crate::column::check_identifier;
use crate::error::ColumnError;
use crate::table::postgres::PostgresTable;
use crate::table::spec::TableConnection;
pub use crate::table::spec::{
    ConnectPostgres, EventRow, EventTableSpec, RefusedRow, TableDatabase, TableError,
};
use crate::table::sqlite::SqliteTable;

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
    pub fn new(spec: EventTableSpec) -> Result<EventTable, ColumnError> {
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
    /// Rows without a position are those that were refused before.
    ///
    /// # Errors
    /// If the database refuses rows, or cannot be used: nothing was appended.
    pub fn append(&mut self, rows: &[EventRow<'_>], position: Option<i64>) -> Result<(), TableError> {
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
