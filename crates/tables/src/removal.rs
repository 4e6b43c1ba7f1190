//! Removes rows of commits and tags from files of rows.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use weir_git::{HashKind, Oid, OidSet};
use weir_mine::ReplacedRows;

use crate::part::FileFormat;
use crate::schema::TableKind;

/// Rows that are read at a time.
const BATCH_ROWS: usize = 4096;

/// Rows of a repository that are removed.
#[derive(Clone, Debug)]
pub(crate) struct Removal {
    pub(crate) origin: String,
    pub(crate) rows: ReplacedRows,
}

/// Which rows of a table go with the commits and tags that are mined again.
pub(crate) enum RemovedBy {
    /// No rows.
    Nothing,
    /// Those with the id of a commit in this column.
    Revision(&'static str),
    /// Those with the id of a tag in this column.
    Release(&'static str),
    /// Errors, by their commit, or by their object.
    Fault,
}

impl TableKind {
    pub(crate) fn removed_by(self) -> RemovedBy {
        match self {
            TableKind::Revision | TableKind::RevisionHistory | TableKind::RevisionExtraHeader => {
                RemovedBy::Revision("id")
            }
            TableKind::FileChange => RemovedBy::Revision("revision"),
            TableKind::Release => RemovedBy::Release("id"),
            TableKind::MiningError => RemovedBy::Fault,
            TableKind::Mining | TableKind::OriginVisit | TableKind::RefChange => RemovedBy::Nothing,
        }
    }
}

/// Hands the rows of a file without those of `removals` to `take`. Returns whether a row was left out;
/// otherwise nothing was handed.
pub(crate) fn rows_left(
    path: &Path,
    table: TableKind,
    format: FileFormat,
    removals: &[&Removal],
    take: &mut dyn FnMut(&RecordBatch) -> io::Result<()>,
) -> io::Result<bool> {
    if matches!(table.removed_by(), RemovedBy::Nothing) {
        return Ok(false);
    }
    let kept = |batch: &RecordBatch| kept_rows(batch, table, removals);
    let mut has_removed = false;
    for batch in batches(path, table, format)? {
        has_removed = kept(&batch?).false_count() > 0;
        if has_removed {
            break;
        }
    }
    if has_removed {
        for batch in batches(path, table, format)? {
            let batch = batch?;
            let left = filter_record_batch(&batch, &kept(&batch)).map_err(io::Error::other)?;
            if left.num_rows() > 0 {
                take(&left)?;
            }
        }
    }
    Ok(has_removed)
}

type BatchesOfFile = Box<dyn Iterator<Item = io::Result<RecordBatch>>>;

fn batches(path: &Path, table: TableKind, format: FileFormat) -> io::Result<BatchesOfFile> {
    let file = File::open(path)?;
    Ok(match format {
        FileFormat::Parquet => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file)
                .and_then(|reader| reader.with_batch_size(BATCH_ROWS).build())
                .map_err(io::Error::other)?;
            Box::new(reader.map(|batch| batch.map_err(io::Error::other)))
        }
        FileFormat::JsonLines => {
            let reader = arrow_json::ReaderBuilder::new(table.schema())
                .with_batch_size(BATCH_ROWS)
                .build(BufReader::new(file))
                .map_err(io::Error::other)?;
            Box::new(reader.map(|batch| batch.map_err(io::Error::other)))
        }
    })
}

/// Returns which rows of `batch` stay.
fn kept_rows(batch: &RecordBatch, table: TableKind, removals: &[&Removal]) -> BooleanArray {
    let bytes = |name: &str| batch.column_by_name(name).expect("a column of the table").as_binary::<i32>();
    let origins = batch.column_by_name("origin").expect("all tables have it").as_string::<i32>();
    let is_in = |set: &OidSet, column: &str, row: usize| {
        let ids = bytes(column);
        ids.is_valid(row) && oid_of(ids.value(row)).is_some_and(|oid| set.contains(&oid))
    };
    let goes = |row: usize| {
        let origin = origins.value(row);
        removals.iter().filter(|removal| removal.origin == origin).any(|Removal { rows, .. }| {
            match table.removed_by() {
                RemovedBy::Nothing => false,
                RemovedBy::Revision(column) => is_in(&rows.revisions, column, row),
                RemovedBy::Release(column) => is_in(&rows.releases, column, row),
                RemovedBy::Fault => {
                    rows.all_faults
                        || is_in(&rows.revisions, "revision", row)
                        || is_in(&rows.revisions, "object", row)
                        || is_in(&rows.releases, "object", row)
                }
            }
        })
    };
    (0..batch.num_rows()).map(|row| Some(!goes(row))).collect()
}

fn oid_of(bytes: &[u8]) -> Option<Oid> {
    let kind = if bytes.len() == HashKind::Sha1.len() { HashKind::Sha1 } else { HashKind::Sha256 };
    Oid::from_bytes(kind, bytes)
}
