//! Loading of SQLite.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_sql::{Error as SqlError, quoted};

use super::connection::{OwnRows, SqlConnection};
use super::ddl::{Dialect, create_indexes, create_views};
use crate::error::{Error, Result};
use crate::lock::OutputLock;
use crate::schema::TableKind;

/// The size of SQLite's page cache in KiB.
const CACHE_KIBIBYTES: i64 = 64 << 10;

/// A database file. Fields are dropped in order: closing the file before the connection would release
/// SQLite's own locks.
pub(super) struct SqliteFile {
    connection: Connection,
    /// Locked for as long as it is open.
    _lock: OutputLock,
}

impl SqliteFile {
    /// Opens the database `path`, or makes one.
    pub(super) fn open(path: &Path) -> Result<SqliteFile> {
        let lock = OutputLock::take(path, path)?;
        let fail =
            |e: rusqlite::Error| Error::Database { place: path.display().to_string(), source: e.into() };
        let connection = Connection::open(path).map_err(fail)?;
        // Rows are appended, so that a journal of what was there before stays short. A commit is durable.
        connection.pragma_update(None, "synchronous", "full").map_err(fail)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES).map_err(fail)?;
        Ok(SqliteFile { connection, _lock: lock })
    }
}

impl SqlConnection for SqliteFile {
    fn execute(&mut self, sql: &str) -> weir_sql::Result<()> {
        self.connection.execute_batch(sql).map_err(SqlError::from)
    }

    fn read_own(&mut self) -> weir_sql::Result<OwnRows> {
        let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let sql = "SELECT version, settings FROM weir_dataset";
        let settings = self.connection.query_row(sql, [], pair).optional()?;
        let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut statement = self.connection.prepare("SELECT origin, state FROM weir_mined")?;
        let states = statement.query_map([], pair).and_then(Iterator::collect)?;
        Ok(OwnRows { settings, states })
    }

    fn put_settings(&mut self, version: i32, settings: &str) -> weir_sql::Result<()> {
        let sql = "INSERT INTO weir_dataset (version, settings) VALUES (?1, ?2)";
        self.connection.execute(sql, params![version, settings]).map_err(SqlError::from).map(|_| ())
    }

    fn put_state(&mut self, origin: &str, state: &str) -> weir_sql::Result<()> {
        let sql = "INSERT OR REPLACE INTO weir_mined (origin, state) VALUES (?1, ?2)";
        self.connection.execute(sql, params![origin, state]).map_err(SqlError::from).map(|_| ())
    }

    fn insert(&mut self, table: TableKind, batch: &RecordBatch) -> weir_sql::Result<()> {
        let columns = table.columns();
        let names: Vec<String> = columns.iter().map(|column| quoted(column.name)).collect();
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES ({places})", table.name(), names.join(", "));
        let mut statement = self.connection.prepare_cached(&sql)?;
        for row in 0..batch.num_rows() {
            for (at, array) in (1..).zip(batch.columns()) {
                statement.raw_bind_parameter(at, sqlite_value(array, row))?;
            }
            statement.raw_execute()?;
        }
        Ok(())
    }

    fn delete(
        &mut self,
        table: TableKind,
        origin: &str,
        of: Option<(&str, &[Vec<u8>])>,
    ) -> weir_sql::Result<()> {
        let table = table.name();
        let Some((column, ids)) = of else {
            let sql = format!("DELETE FROM {table} WHERE origin = ?1");
            return Ok(self.connection.execute(&sql, [origin]).map(|_| ())?);
        };
        // One statement for each id would read the whole table each time where there is no index yet.
        let ids_table = "CREATE TEMP TABLE IF NOT EXISTS weir_ids (id BLOB PRIMARY KEY) WITHOUT ROWID";
        self.connection.execute_batch(&format!("{ids_table}; DELETE FROM weir_ids"))?;
        {
            let mut insert = self.connection.prepare_cached("INSERT INTO weir_ids (id) VALUES (?1)")?;
            ids.iter().try_for_each(|id| insert.execute([id]).map(|_| ()))?;
        }
        let sql = format!(
            "DELETE FROM {table} WHERE origin = ?1 AND {} IN (SELECT id FROM weir_ids)",
            quoted(column)
        );
        self.connection.execute(&sql, [origin]).map_err(SqlError::from).map(|_| ())
    }

    fn rename(&mut self, table: &str, origin: &str, name: Option<&str>) -> weir_sql::Result<()> {
        let done = match name {
            Some(name) => {
                let sql = format!("UPDATE {table} SET origin = ?2 WHERE origin = ?1");
                self.connection.execute(&sql, [origin, name])
            }
            None => self.connection.execute(&format!("DELETE FROM {table} WHERE origin = ?1"), [origin]),
        };
        done.map_err(SqlError::from).map(|_| ())
    }

    fn end_load(&mut self) -> weir_sql::Result<()> {
        let mut made = create_indexes(Dialect::Sqlite).chain(create_views(Dialect::Sqlite));
        made.try_for_each(|sql| self.connection.execute_batch(&sql).map_err(SqlError::from))?;
        self.connection.execute_batch("PRAGMA optimize").map_err(SqlError::from)
    }
}

/// Returns the value of an array for SQLite, which has no times: they become texts, as in JSON.
pub(crate) fn sqlite_value(array: &dyn Array, row: usize) -> ToSqlOutput<'_> {
    let number = |n: i64| ToSqlOutput::Owned(Value::Integer(n));
    if array.is_null(row) {
        return ToSqlOutput::Owned(Value::Null);
    }
    match array.data_type() {
        DataType::Utf8 => {
            ToSqlOutput::Borrowed(ValueRef::Text(array.as_string::<i32>().value(row).as_bytes()))
        }
        DataType::Binary => ToSqlOutput::Borrowed(ValueRef::Blob(array.as_binary::<i32>().value(row))),
        DataType::Boolean => number(i64::from(array.as_boolean().value(row))),
        DataType::Int16 => number(i64::from(array.as_primitive::<Int16Type>().value(row))),
        DataType::Int32 => number(i64::from(array.as_primitive::<Int32Type>().value(row))),
        DataType::Int64 => number(array.as_primitive::<Int64Type>().value(row)),
        DataType::Timestamp(..) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000);
            let text = time.ok().and_then(|time| time.format(&Rfc3339).ok());
            ToSqlOutput::Owned(text.map_or(Value::Null, Value::Text))
        }
        other => unreachable!("no column has the type {other}"),
    }
}
