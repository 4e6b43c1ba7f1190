//! The formats in which rows of one table are written.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_csv::Writer as CsvWriter;
use arrow_ipc::writer::StreamWriter;
use arrow_json::{ArrayWriter, LineDelimitedWriter};
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::column::ColumnStorage;
use crate::json_lines::{json_array, json_lines};
use crate::schema::TableKind;

/// Rows of a row group, as DuckDB writes them.
const GROUP_ROWS: usize = 122_880;

/// A format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Apache Parquet.
    Parquet,
    /// The streaming format of Apache Arrow IPC.
    Arrow,
    /// Comma-separated values (RFC 4180), the names of the columns first.
    Csv,
    /// An array of JSON objects.
    Json,
    /// JSON, an object a line.
    JsonLines,
}

impl RowFormat {
    /// All formats.
    pub const ALL: [RowFormat; 5] =
        [RowFormat::Parquet, RowFormat::Arrow, RowFormat::Csv, RowFormat::Json, RowFormat::JsonLines];

    /// Returns the name, which is also the end of file names.
    pub fn name(self) -> &'static str {
        match self {
            RowFormat::Parquet => "parquet",
            RowFormat::Arrow => "arrow",
            RowFormat::Csv => "csv",
            RowFormat::Json => "json",
            RowFormat::JsonLines => "jsonl",
        }
    }

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            RowFormat::Parquet => "application/vnd.apache.parquet",
            RowFormat::Arrow => "application/vnd.apache.arrow.stream",
            RowFormat::Csv => "text/csv; charset=utf-8",
            RowFormat::Json => "application/json",
            RowFormat::JsonLines => "application/jsonl",
        }
    }
}

/// Writes rows of a table to `W`.
pub struct TableWriter<W: Write>(Encoder<W>);

enum Encoder<W: Write> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<StreamWriter<W>>),
    Csv(Box<CsvWriter<W>>),
    Json(ArrayWriter<W>),
    JsonLines(LineDelimitedWriter<W>),
}

impl<W: Write + Send> TableWriter<W> {
    /// Makes a writer of rows with the columns of `schema`, which are some of those of `table`.
    ///
    /// # Errors
    /// If `out` fails, like all functions here.
    pub fn new(
        out: W,
        table: TableKind,
        schema: &SchemaRef,
        format: RowFormat,
    ) -> io::Result<TableWriter<W>> {
        let mut writer = TableWriter(match format {
            RowFormat::Parquet => {
                let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties(table)));
                Encoder::Parquet(Box::new(writer.map_err(of_parquet)?))
            }
            RowFormat::Arrow => {
                Encoder::Arrow(Box::new(StreamWriter::try_new(out, schema).map_err(of_arrow)?))
            }
            RowFormat::Csv => Encoder::Csv(Box::new(CsvWriter::new(out))),
            RowFormat::Json => Encoder::Json(json_array(out)),
            RowFormat::JsonLines => Encoder::JsonLines(json_lines(out)),
        });
        if format == RowFormat::Csv {
            // The first batch brings the names of the columns, even if it has no rows.
            writer.write(&RecordBatch::new_empty(schema.clone()))?;
        }
        Ok(writer)
    }

    /// Writes rows.
    ///
    /// # Errors
    /// See [`TableWriter::new`].
    pub fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match &mut self.0 {
            Encoder::Parquet(writer) => writer.write(batch).map_err(of_parquet),
            Encoder::Arrow(writer) => writer.write(batch).map_err(of_arrow),
            Encoder::Csv(writer) => writer.write(batch).map_err(of_arrow),
            Encoder::Json(writer) => writer.write(batch).map_err(of_arrow),
            Encoder::JsonLines(writer) => writer.write(batch).map_err(of_arrow),
        }
    }

    /// Completes the rows, and returns the place where they went.
    ///
    /// # Errors
    /// See [`TableWriter::new`].
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Encoder::Parquet(writer) => writer.into_inner().map_err(of_parquet),
            Encoder::Arrow(writer) => writer.into_inner().map_err(of_arrow),
            Encoder::Csv(writer) => Ok(writer.into_inner()),
            Encoder::Json(mut writer) => {
                writer.finish().map_err(of_arrow)?;
                Ok(writer.into_inner())
            }
            Encoder::JsonLines(mut writer) => {
                writer.finish().map_err(of_arrow)?;
                Ok(writer.into_inner())
            }
        }
    }
}

/// Returns the error of the system behind an error of Arrow, if there is one.
fn of_arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

/// Returns the error of the system behind an error of Parquet, if there is one.
fn of_parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// Returns how a table is written.
fn properties(table: TableKind) -> WriterProperties {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).expect("a level of zstd"));
    let mut properties = WriterProperties::builder()
        .set_compression(zstd)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_created_by(concat!("weir ", env!("CARGO_PKG_VERSION")).to_owned());
    for column in table.columns() {
        let path = ColumnPath::from(column.name);
        properties = match column.storage {
            ColumnStorage::Repeated => properties,
            ColumnStorage::Unique => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path, EnabledStatistics::None),
            ColumnStorage::Ascending => properties
                .set_column_dictionary_enabled(path.clone(), false)
                // Not as deltas: some readers fail at large ones.
                .set_column_encoding(path, Encoding::PLAIN),
            ColumnStorage::Id | ColumnStorage::LookedUpId => {
                if column.storage == ColumnStorage::LookedUpId {
                    properties = properties
                        .set_column_bloom_filter_enabled(path.clone(), true)
                        .set_column_bloom_filter_max_ndv(path.clone(), GROUP_ROWS as u64);
                }
                properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path.clone(), Encoding::PLAIN)
                    .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
                    .set_column_statistics_enabled(path, EnabledStatistics::None)
            }
        };
    }
    properties.build()
}
