//! The answer of a query.

use std::io::{self, Write};

use rusqlite::types::ValueRef;
use serde::{Serialize, Serializer};
use weir_ground::hex;

/// How much an answer may be.
#[derive(Clone, Copy, Debug)]
pub struct QueryLimits {
    /// Its rows.
    pub rows_max: usize,
    /// The bytes of its values.
    pub bytes_max: usize,
}

/// A value of a row. Bytes are hexadecimal in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryValue {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// A text.
    Text(String),
    /// A blob, such as an id.
    Bytes(Vec<u8>),
}

impl QueryValue {
    pub(super) fn of(value: ValueRef<'_>) -> QueryValue {
        match value {
            ValueRef::Null => QueryValue::Null,
            ValueRef::Integer(n) => QueryValue::Integer(n),
            ValueRef::Real(n) => QueryValue::Real(n),
            ValueRef::Text(text) => QueryValue::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => QueryValue::Bytes(bytes.to_owned()),
        }
    }

    /// Returns the bytes that it takes in an answer, about.
    pub(super) fn weight(&self) -> usize {
        match self {
            QueryValue::Null | QueryValue::Integer(_) | QueryValue::Real(_) => 8,
            QueryValue::Text(text) => text.len() + 8,
            QueryValue::Bytes(bytes) => 2 * bytes.len() + 8,
        }
    }

    /// Returns the value as text, as a table shows it: nothing for NULL.
    pub fn to_text(&self) -> String {
        match self {
            QueryValue::Null => String::new(),
            QueryValue::Integer(n) => n.to_string(),
            QueryValue::Real(n) => format!("{n:?}"),
            QueryValue::Text(text) => text.clone(),
            QueryValue::Bytes(bytes) => hex(bytes),
        }
    }
}

impl Serialize for QueryValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            QueryValue::Null => serializer.serialize_unit(),
            QueryValue::Integer(n) => serializer.serialize_i64(*n),
            QueryValue::Real(n) => serializer.serialize_f64(*n),
            QueryValue::Text(text) => serializer.serialize_str(text),
            QueryValue::Bytes(bytes) => serializer.serialize_str(&hex(bytes)),
        }
    }
}

/// A line of an answer that comes row by row.
#[derive(Clone, Copy, Debug)]
pub enum QueryRow<'r> {
    /// The names of the columns, which come first.
    Columns(&'r [&'r str]),
    /// A row.
    Values(&'r [QueryValue]),
}

/// Writes rows as comma-separated values (RFC 4180).
pub struct CsvRows<W: Write>(csv::Writer<W>);

impl<W: Write> CsvRows<W> {
    /// Makes a writer to `out`.
    pub fn new(out: W) -> CsvRows<W> {
        CsvRows(csv::WriterBuilder::new().flexible(true).from_writer(out))
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&mut self, row: QueryRow<'_>) -> io::Result<()> {
        let written = match row {
            QueryRow::Columns(names) => self.0.write_record(names),
            QueryRow::Values(values) => self.0.write_record(values.iter().map(QueryValue::to_text)),
        };
        written.map_err(io::Error::from)
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl QueryAnswer {
    /// Returns the answer as comma-separated values, the names of the columns first.
    pub fn to_csv(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rows = CsvRows::new(&mut bytes);
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let all = self.rows.iter().map(|row| QueryRow::Values(row));
        std::iter::once(QueryRow::Columns(&columns))
            .chain(all)
            .try_for_each(|row| rows.write(row))
            .and_then(|()| rows.flush())
            .expect("memory takes all");
        drop(rows);
        bytes
    }
}

/// The answer of a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueryAnswer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<QueryValue>>,
    /// Whether there are more rows than the limits let through.
    pub is_truncated: bool,
}
