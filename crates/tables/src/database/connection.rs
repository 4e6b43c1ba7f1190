//! What tables need of a database.

use arrow_array::RecordBatch;
use weir_sql::Result;

use crate::schema::TableKind;

/// A connection to a database.
pub(super) trait SqlConnection: Send {
    /// Runs a statement without parameters and results.
    fn execute(&mut self, sql: &str) -> Result<()>;

    /// Returns the rows of the settings, and of the states of repositories.
    fn read_own(&mut self) -> Result<OwnRows>;

    /// Writes the settings.
    fn put_settings(&mut self, version: i32, settings: &str) -> Result<()>;

    /// Writes the state of a repository in place of the one before.
    fn put_state(&mut self, origin: &str, state: &str) -> Result<()>;

    /// Appends rows to a table.
    fn insert(&mut self, table: TableKind, batch: &RecordBatch) -> Result<()>;

    /// Deletes rows of `origin`: those with one of the values in a column, or all.
    fn delete(&mut self, table: TableKind, origin: &str, of: Option<(&str, &[Vec<u8>])>) -> Result<()>;

    /// Gives the rows of `origin` in `table` another name; without one, deletes them.
    fn rename(&mut self, table: &str, origin: &str, name: Option<&str>) -> Result<()>;

    /// Makes the indexes that are not there yet, and has the database look at what its tables hold.
    fn end_load(&mut self) -> Result<()>;
}

/// Rows of weir's own tables.
pub(super) struct OwnRows {
    pub(super) settings: Option<(i32, String)>,
    pub(super) states: Vec<(String, String)>,
}
