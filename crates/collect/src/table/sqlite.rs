//! Tables in SQLite.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params_from_iter,
};
use time::OffsetDateTime;

use crate::column::{EventCell, EventColumn, EventColumnType, written};
use crate::table::spec::{EventRow, EventTableSpec, RefusedRow, TableConnection, TableError};

/// How long to wait for another writer.
const BUSY: Duration = Duration::from_secs(30);

pub(super) struct SqliteTable {
    connection: Connection,
    spec: EventTableSpec,
    place: String,
    insert: String,
}

fn type_name(column: &EventColumn) -> &'static str {
    match column.kind {
        EventColumnType::Integer => "INTEGER",
        EventColumnType::Real => "REAL",
        EventColumnType::Boolean => "BOOLEAN",
        EventColumnType::Text | EventColumnType::Timestamp | EventColumnType::Json => "TEXT",
    }
}

impl SqliteTable {
    pub(super) fn open(path: &Path, spec: &EventTableSpec) -> Result<SqliteTable, TableError> {
        let place = path.display().to_string();
        let fail = |e: rusqlite::Error| spec.fail(&place, e);
        let connection = Connection::open(path).map_err(fail)?;
        connection.busy_timeout(BUSY).map_err(fail)?;
        // A power failure may undo the last rows, and the position with them.
        connection.pragma_update(None, "journal_mode", "wal").map_err(fail)?;
        connection.pragma_update(None, "synchronous", "normal").map_err(fail)?;
        connection.execute_batch(&spec.create(type_name, ["INTEGER", "TEXT", "TEXT"])).map_err(fail)?;
        connection.prepare(&spec.probe()).map_err(|e| spec.lacks(&place, e))?;
        let values: Vec<String> = (1..=spec.columns.len() + 3).map(|n| format!("?{n}")).collect();
        let names = spec.column_names();
        let insert = format!("INSERT INTO \"{}\" ({names}) VALUES ({})", spec.name, values.join(", "));
        Ok(SqliteTable { connection, spec: spec.clone(), place, insert })
    }
}

impl TableConnection for SqliteTable {
    fn position(&mut self) -> Result<i64, TableError> {
        let sql = "SELECT owner, position FROM weir_positions WHERE reader = ?1";
        let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found = self.connection.query_row(sql, [&self.spec.name], pair).optional();
        self.spec.own(&self.place, found.map_err(|e| self.spec.fail(&self.place, e))?)
    }

    fn append(&mut self, rows: &[EventRow<'_>], position: Option<i64>) -> Result<(), TableError> {
        let (spec, place) = (&self.spec, &self.place);
        let fail = |e: rusqlite::Error| spec.fail(place, e);
        let transaction =
            Transaction::new(&mut self.connection, TransactionBehavior::Immediate).map_err(fail)?;
        let note = "INSERT INTO weir_positions (reader, owner, position) VALUES (?1, ?3, ?2)
            ON CONFLICT (reader) DO UPDATE SET position = excluded.position
            WHERE excluded.position > weir_positions.position AND excluded.owner = weir_positions.owner";
        if let Some(position) = position
            && transaction.execute(note, rusqlite::params![spec.name, position, spec.owner]).map_err(fail)?
                == 0
        {
            drop(transaction);
            // The answer to an earlier try was lost, unless another pool has begun to fill the table.
            return self.position().map(drop);
        }
        let mut refused = Vec::new();
        {
            let mut insert = transaction.prepare_cached(&self.insert).map_err(fail)?;
            for row in rows {
                match insert.execute(params_from_iter(values(row))) {
                    Ok(_) => {}
                    Err(e) => match e.sqlite_error_code() {
                        Some(
                            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig,
                        ) => refused.push(RefusedRow { id: row.id, why: e.to_string() }),
                        _ => return Err(fail(e)),
                    },
                }
            }
        }
        match refused.is_empty() {
            true => transaction.commit().map_err(fail),
            false => Err(TableError::Rows(refused)),
        }
    }
}

fn values(row: &EventRow<'_>) -> Vec<Value> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(row.at_ms) * 1_000_000);
    let at = at.map_or_else(|_| String::new(), written);
    let mut values = vec![Value::Integer(row.id), Value::Text(at), Value::Text(row.peer.to_owned())];
    values.extend(row.cells.iter().map(|cell| match cell {
        EventCell::Null => Value::Null,
        EventCell::Text(text) => Value::Text(text.to_string()),
        EventCell::Integer(number) => Value::Integer(*number),
        EventCell::Real(number) => Value::Real(*number),
        EventCell::Boolean(is) => Value::Integer((*is).into()),
    }));
    values
}
