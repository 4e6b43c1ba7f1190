//! Tables in PostgreSQL, filled by COPY.

use std::io::Write;

use postgres::Client;
use weir_sql::Error as SqlError;

use crate::column::{EventCell, EventColumn, EventColumnType, written};
use crate::table::spec::{
    ConnectPostgres, EventRow, EventTableSpec, RefusedRow, TableConnection, TableError,
};

/// Where it is, in errors.
const PLACE: &str = "PostgreSQL";

pub(super) struct PostgresTable {
    client: Client,
    spec: EventTableSpec,
    copy: String,
}

fn type_name(column: &EventColumn) -> &'static str {
    match column.kind {
        EventColumnType::Text => "text",
        EventColumnType::Integer => "bigint",
        EventColumnType::Real => "double precision",
        EventColumnType::Boolean => "boolean",
        EventColumnType::Timestamp => "timestamptz",
        EventColumnType::Json => "jsonb",
    }
}

/// Returns whether a row is at fault: "data exception" and "integrity constraint violation".
fn is_of_row(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("22") || code.code().starts_with("23"))
}

impl PostgresTable {
    pub(super) fn open(
        connect: &ConnectPostgres,
        spec: &EventTableSpec,
    ) -> Result<PostgresTable, TableError> {
        let mut client = connect().map_err(|e| spec.fail(PLACE, e))?;
        let fail = |e: postgres::Error| spec.fail(PLACE, SqlError::from(e));
        let create = spec.create(type_name, ["bigint", "timestamptz", "text"]);
        client.batch_execute("SET client_min_messages = warning; SET timezone = 'UTC'").map_err(fail)?;
        client.batch_execute(&create).map_err(fail)?;
        client.batch_execute(&spec.probe()).map_err(|e| spec.lacks(PLACE, SqlError::from(e)))?;
        let copy = format!("COPY \"{}\" ({}) FROM STDIN", spec.name, spec.column_names());
        Ok(PostgresTable { client, spec: spec.clone(), copy })
    }

    /// Returns the rows that the server refuses, of those that it refused together. Changes nothing.
    fn find_refused(&mut self, rows: &[EventRow<'_>]) -> Result<Vec<RefusedRow>, TableError> {
        let spec = &self.spec;
        let fail = |e: postgres::Error| spec.fail(PLACE, SqlError::from(e));
        let mut transaction = self.client.transaction().map_err(fail)?;
        let mut refused = Vec::new();
        for row in rows {
            let mut one = transaction.transaction().map_err(fail)?;
            let mut text = Vec::new();
            write_row(&mut text, row);
            match copy_in(&mut one, &self.copy, &text) {
                Ok(()) => one.commit().map_err(fail)?,
                Err(e) if is_of_row(&e) => {
                    refused.push(RefusedRow { id: row.id, why: SqlError::from(e).to_string() });
                    one.rollback().map_err(fail)?;
                }
                Err(e) => return Err(fail(e)),
            }
        }
        transaction.rollback().map_err(fail)?;
        Ok(refused)
    }
}

fn copy_in(
    transaction: &mut postgres::Transaction<'_>,
    sql: &str,
    text: &[u8],
) -> Result<(), postgres::Error> {
    let mut writer = transaction.copy_in(sql)?;
    // An error of the connection comes again when the copy is finished.
    let _ = writer.write_all(text);
    writer.finish().map(|_| ())
}

impl TableConnection for PostgresTable {
    fn position(&mut self) -> Result<i64, TableError> {
        let sql = "SELECT owner, position FROM weir_positions WHERE reader = $1";
        let found = self.client.query_opt(sql, &[&self.spec.name]);
        let found = found.map_err(|e| self.spec.fail(PLACE, SqlError::from(e)))?;
        self.spec.own(PLACE, found.map(|row| (row.get(0), row.get(1))))
    }

    fn append(&mut self, rows: &[EventRow<'_>], position: Option<i64>) -> Result<(), TableError> {
        let spec = &self.spec;
        let fail = |e: postgres::Error| spec.fail(PLACE, SqlError::from(e));
        let mut transaction = self.client.transaction().map_err(fail)?;
        let note = "INSERT INTO weir_positions (reader, owner, position) VALUES ($1, $3, $2)
            ON CONFLICT (reader) DO UPDATE SET position = excluded.position
            WHERE excluded.position > weir_positions.position AND excluded.owner = weir_positions.owner";
        if let Some(position) = position
            && transaction.execute(note, &[&spec.name, &position, &spec.owner]).map_err(fail)? == 0
        {
            drop(transaction);
            // The answer to an earlier try was lost, unless another pool has begun to fill the table.
            return self.position().map(drop);
        }
        if !rows.is_empty() {
            let mut text = Vec::new();
            rows.iter().for_each(|row| write_row(&mut text, row));
            match copy_in(&mut transaction, &self.copy, &text) {
                Ok(()) => {}
                Err(e) if is_of_row(&e) => {
                    transaction.rollback().map_err(fail)?;
                    return Err(match self.find_refused(rows)? {
                        refused if refused.is_empty() => self.spec.fail(PLACE, SqlError::from(e)),
                        refused => TableError::Rows(refused),
                    });
                }
                Err(e) => return Err(fail(e)),
            }
        }
        transaction.commit().map_err(fail)
    }
}

/// Writes a row in the text format of COPY.
fn write_row(text: &mut Vec<u8>, row: &EventRow<'_>) {
    let at = time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(row.at_ms) * 1_000_000);
    let _ = write!(text, "{}\t{}\t", row.id, at.map_or_else(|_| String::new(), written));
    write_text(text, row.peer);
    for cell in &row.cells {
        text.push(b'\t');
        let _ = match cell {
            EventCell::Null => write!(text, "\\N"),
            EventCell::Integer(number) => write!(text, "{number}"),
            EventCell::Real(number) => write!(text, "{number}"),
            EventCell::Boolean(is) => write!(text, "{is}"),
            EventCell::Text(value) => {
                write_text(text, value);
                Ok(())
            }
        };
    }
    text.push(b'\n');
}

fn write_text(text: &mut Vec<u8>, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'\\' => text.extend_from_slice(b"\\\\"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            0 => {}
            byte => text.push(byte),
        }
    }
}
