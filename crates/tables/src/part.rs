//! Files of rows: Parquet, or JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_json::LineDelimitedWriter;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::column::ColumnStorage;
use crate::json_lines::json_lines;
use crate::schema::TableKind;

/// Rows of a row group, as DuckDB writes them.
const GROUP_ROWS: usize = 122_880;

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// JSON, an object a line.
    JsonLines,
}

impl FileFormat {
    /// Returns the name, which is also the end of file names.
    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Parquet => "parquet",
            FileFormat::JsonLines => "jsonl",
        }
    }
}

/// A file that is being written.
pub(crate) enum PartFile {
    Parquet(Box<ArrowWriter<File>>),
    JsonLines(LineDelimitedWriter<BufWriter<File>>),
}

impl PartFile {
    pub(crate) fn create(path: &Path, table: TableKind, format: FileFormat) -> io::Result<PartFile> {
        let file = File::create(path)?;
        match format {
            FileFormat::Parquet => {
                let writer = ArrowWriter::try_new(file, table.schema(), Some(properties(table)));
                Ok(PartFile::Parquet(Box::new(writer.map_err(of_parquet)?)))
            }
            FileFormat::JsonLines => {
                Ok(PartFile::JsonLines(json_lines(BufWriter::with_capacity(1 << 17, file))))
            }
        }
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match self {
            PartFile::Parquet(writer) => writer.write(batch).map_err(of_parquet),
            PartFile::JsonLines(writer) => writer.write(batch).map_err(io::Error::other),
        }
    }

    /// Completes the file, and makes it durable. Returns its length in bytes.
    pub(crate) fn finish(self) -> io::Result<u64> {
        let file = match self {
            PartFile::Parquet(writer) => writer.into_inner().map_err(of_parquet)?,
            PartFile::JsonLines(mut writer) => {
                writer.finish().map_err(io::Error::other)?;
                writer.into_inner().into_inner().map_err(io::IntoInnerError::into_error)?
            }
        };
        file.sync_all()?;
        Ok(file.metadata()?.len())
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

/// Writes `batch` as JSON lines, each of which begins with the name of the table.
pub(crate) fn write_json_lines(
    table: TableKind,
    batch: &RecordBatch,
    buffer: &mut Vec<u8>,
    out: &mut impl Write,
) -> io::Result<()> {
    buffer.clear();
    let mut writer = json_lines(&mut *buffer);
    writer.write(batch).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    for line in buffer.split_inclusive(|&c| c == b'\n') {
        let Some(fields) = line.strip_prefix(b"{") else { continue };
        write!(out, "{{\"table\":\"{}\",", table.name())?;
        out.write_all(fields)?;
    }
    Ok(())
}
