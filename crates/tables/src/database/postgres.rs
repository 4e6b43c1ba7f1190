//! Loading of PostgreSQL: COPY in its binary format.

use std::io::Write;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use postgres::Client;
use weir_sql::{Error as SqlError, Result, quoted};

use super::connection::{OwnRows, SqlConnection};
use super::ddl::{DROP_OLD_INDEX, Dialect, create_indexes, create_views};
use crate::schema::TableKind;

/// Compresses long texts in half the time. Servers older than 14, and those built without LZ4, refuse it.
const FAST_COMPRESSION: &str = "SET default_toast_compression = 'lz4'";
/// Takes the lock of minings of the current schema, for the session.
const LOCK: &str =
    "SELECT pg_try_advisory_lock(hashtext('weir mine'), hashtext(coalesce(current_schema(), '')))";
/// The server notices after a moment that the process with the lock was killed.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The ids that a statement deletes by.
const DELETED_AT_ONCE: usize = 10_000;

/// The start of a COPY in binary: signature, flags, and the length of more headers (COPY, "Binary Format").
const COPY_HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Microseconds from 1970 to 2000, where PostgreSQL's times start.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Returns the encoding of the database.
pub(super) fn encoding(client: &mut Client) -> Result<String> {
    Ok(client.query_one("SHOW server_encoding", &[]).and_then(|row| row.try_get(0))?)
}

/// Makes `client` ready to load, and takes the lock of minings of the current schema until it is closed.
/// Returns whether the lock is free.
pub(super) fn prepare(client: &mut Client) -> Result<bool> {
    let _ = client.batch_execute(FAST_COMPRESSION);
    let until = Instant::now() + LOCK_WAIT;
    loop {
        let is_locked = client.query_one(LOCK, &[]).and_then(|row| row.try_get(0))?;
        if is_locked {
            client.batch_execute(DROP_OLD_INDEX)?;
        }
        if is_locked || Instant::now() > until {
            return Ok(is_locked);
        }
        std::thread::sleep(LOCK_WAIT / 50);
    }
}

impl SqlConnection for Client {
    fn execute(&mut self, sql: &str) -> Result<()> {
        self.batch_execute(sql).map_err(SqlError::from)
    }

    fn read_own(&mut self) -> Result<OwnRows> {
        let settings = self.query_opt("SELECT version, settings FROM weir_dataset", &[])?;
        let states = self.query("SELECT origin, state FROM weir_mined", &[])?;
        Ok(OwnRows {
            settings: settings.map(|row| (row.get(0), row.get(1))),
            states: states.iter().map(|row| (row.get(0), row.get(1))).collect(),
        })
    }

    fn put_settings(&mut self, version: i32, settings: &str) -> Result<()> {
        let sql = "INSERT INTO weir_dataset (version, settings) VALUES ($1, $2)";
        Client::execute(self, sql, &[&version, &settings]).map_err(SqlError::from).map(|_| ())
    }

    fn put_state(&mut self, origin: &str, state: &str) -> Result<()> {
        let sql = "INSERT INTO weir_mined (origin, state) VALUES ($1, $2) \
            ON CONFLICT (origin) DO UPDATE SET state = excluded.state";
        Client::execute(self, sql, &[&origin, &state]).map_err(SqlError::from).map(|_| ())
    }

    fn insert(&mut self, table: TableKind, batch: &RecordBatch) -> Result<()> {
        let columns: Vec<String> = table.columns().iter().map(|column| quoted(column.name)).collect();
        let sql = format!("COPY {} ({}) FROM STDIN BINARY", table.name(), columns.join(", "));
        let rows = copy_rows(batch);
        let mut out = self.copy_in(&sql)?;
        out.write_all(&rows).map_err(SqlError::Copy)?;
        out.finish().map_err(SqlError::from).map(|_| ())
    }

    fn delete(&mut self, table: TableKind, origin: &str, of: Option<(&str, &[Vec<u8>])>) -> Result<()> {
        let table = table.name();
        let Some((column, ids)) = of else {
            let sql = format!("DELETE FROM {table} WHERE origin = $1");
            return Client::execute(self, &sql, &[&origin]).map_err(SqlError::from).map(|_| ());
        };
        let sql = format!("DELETE FROM {table} WHERE origin = $1 AND {} = ANY ($2)", quoted(column));
        ids.chunks(DELETED_AT_ONCE).try_for_each(|ids| {
            Client::execute(self, &sql, &[&origin, &ids]).map_err(SqlError::from).map(|_| ())
        })
    }

    fn rename(&mut self, table: &str, origin: &str, name: Option<&str>) -> Result<()> {
        let done = match name {
            Some(name) => {
                let sql = format!("UPDATE {table} SET origin = $2 WHERE origin = $1");
                Client::execute(self, &sql, &[&origin, &name])
            }
            None => Client::execute(self, &format!("DELETE FROM {table} WHERE origin = $1"), &[&origin]),
        };
        done.map_err(SqlError::from).map(|_| ())
    }

    fn end_load(&mut self) -> Result<()> {
        let mut made = create_indexes(Dialect::Postgres).chain(create_views(Dialect::Postgres));
        made.try_for_each(|sql| self.batch_execute(&sql).map_err(SqlError::from))?;
        TableKind::ALL.iter().try_for_each(|table| {
            self.batch_execute(&format!("ANALYZE {}", table.name())).map_err(SqlError::from)
        })
    }
}

/// Returns the rows of `batch` in the binary format.
fn copy_rows(batch: &RecordBatch) -> Vec<u8> {
    let mut out = Vec::with_capacity(batch.get_array_memory_size() + batch.num_rows() * 64);
    out.extend_from_slice(COPY_HEAD);
    let columns: Vec<CopyColumn<'_>> = batch.columns().iter().map(|array| CopyColumn::new(array)).collect();
    for row in 0..batch.num_rows() {
        out.extend_from_slice(&(columns.len() as i16).to_be_bytes());
        columns.iter().for_each(|column| column.push(row, &mut out));
    }
    out.extend_from_slice(&(-1i16).to_be_bytes());
    out
}

/// A column of a batch.
enum CopyColumn<'b> {
    Text(&'b arrow_array::StringArray),
    Bytes(&'b arrow_array::BinaryArray),
    Flag(&'b arrow_array::BooleanArray),
    Int16(&'b arrow_array::Int16Array),
    Int32(&'b arrow_array::Int32Array),
    Int64(&'b arrow_array::Int64Array),
    Time(&'b arrow_array::TimestampMicrosecondArray),
}

impl<'b> CopyColumn<'b> {
    fn new(array: &'b dyn Array) -> CopyColumn<'b> {
        match array.data_type() {
            DataType::Utf8 => CopyColumn::Text(array.as_string()),
            DataType::Binary => CopyColumn::Bytes(array.as_binary()),
            DataType::Boolean => CopyColumn::Flag(array.as_boolean()),
            DataType::Int16 => CopyColumn::Int16(array.as_primitive::<Int16Type>()),
            DataType::Int32 => CopyColumn::Int32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => CopyColumn::Int64(array.as_primitive::<Int64Type>()),
            DataType::Timestamp(..) => CopyColumn::Time(array.as_primitive::<TimestampMicrosecondType>()),
            other => unreachable!("no column has the type {other}"),
        }
    }

    /// Appends the value of row `row`.
    fn push(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            CopyColumn::Text(array) if array.is_valid(row) => push_value(array.value(row).as_bytes(), out),
            CopyColumn::Bytes(array) if array.is_valid(row) => push_value(array.value(row), out),
            CopyColumn::Flag(array) if array.is_valid(row) => push_value(&[u8::from(array.value(row))], out),
            CopyColumn::Int16(array) if array.is_valid(row) => {
                push_value(&array.value(row).to_be_bytes(), out);
            }
            CopyColumn::Int32(array) if array.is_valid(row) => {
                push_value(&array.value(row).to_be_bytes(), out);
            }
            CopyColumn::Int64(array) if array.is_valid(row) => {
                push_value(&array.value(row).to_be_bytes(), out);
            }
            CopyColumn::Time(array) if array.is_valid(row) => {
                push_value(&(array.value(row) - EPOCH_MICROS).to_be_bytes(), out);
            }
            _ => out.extend_from_slice(&(-1i32).to_be_bytes()),
        }
    }
}

fn push_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.len() as i32).to_be_bytes());
    out.extend_from_slice(value);
}
