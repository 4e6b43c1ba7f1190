//! Files of a dataset, and lines of JSON with the names of their tables.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use arrow_array::RecordBatch;

use crate::format::{RowFormat, TableWriter};
use crate::json_lines::json_lines;
use crate::schema::TableKind;

/// The buffer of a file that is written.
const BUFFER_BYTES: usize = 128 << 10;

/// The format of a dataset's files, whose rows can be removed again.
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
        RowFormat::from(self).name()
    }
}

impl From<FileFormat> for RowFormat {
    fn from(format: FileFormat) -> RowFormat {
        match format {
            FileFormat::Parquet => RowFormat::Parquet,
            FileFormat::JsonLines => RowFormat::JsonLines,
        }
    }
}

/// A file that is being written.
pub(crate) struct PartFile(TableWriter<BufWriter<File>>);

impl PartFile {
    pub(crate) fn create(path: &Path, table: TableKind, format: FileFormat) -> io::Result<PartFile> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        TableWriter::new(file, table, &table.schema(), format.into()).map(PartFile)
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.0.write(batch)
    }

    /// Completes the file, and makes it durable. Returns its length in bytes.
    pub(crate) fn finish(self) -> io::Result<u64> {
        let file = self.0.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
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
