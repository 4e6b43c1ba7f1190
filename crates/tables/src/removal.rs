//! Changes rows that were written before: those of commits and tags that are mined again, and those of
//! repositories that are forgotten or have another name.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch, StringArray};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use weir_git::{HashKind, Oid, OidSet};
use weir_mine::ReplacedRows;

use crate::part::FileFormat;
use crate::schema::TableKind;

/// Rows that are read at a time.
const BATCH_ROWS: usize = 4096;

/// A change of the rows of a repository.
#[derive(Clone, Debug)]
pub struct OriginEdit {
    /// Its name.
    pub origin: String,
    /// The change of its rows.
    pub edit: RowEdit,
}

/// A change of rows.
#[derive(Clone, Debug)]
pub enum RowEdit {
    /// Those of commits and tags that are mined again are removed.
    Replace(ReplacedRows),
    /// All are removed.
    Forget,
    /// All are those of this repository from now on.
    Rename(String),
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
    /// All, if the default branch is written again.
    Branch,
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
            TableKind::DefaultBranch => RemovedBy::Branch,
            TableKind::Mining | TableKind::OriginVisit | TableKind::RefChange => RemovedBy::Nothing,
        }
    }
}

/// Hands the rows of a file as they are after `edits` to `take`. Returns whether one of them changes;
/// otherwise nothing was handed.
pub(crate) fn edited_rows(
    path: &Path,
    table: TableKind,
    format: FileFormat,
    edits: &[&OriginEdit],
    take: &mut dyn FnMut(&RecordBatch) -> io::Result<()>,
) -> io::Result<bool> {
    let is_replaced = |edit: &&OriginEdit| matches!(edit.edit, RowEdit::Replace(_));
    if matches!(table.removed_by(), RemovedBy::Nothing) && edits.iter().all(is_replaced) {
        return Ok(false);
    }
    let mut is_changed = false;
    for batch in batches(path, table, format)? {
        let batch = batch?;
        is_changed = kept_rows(&batch, table, edits).false_count() > 0 || renamed(&batch, edits).is_some();
        if is_changed {
            break;
        }
    }
    if is_changed {
        for batch in batches(path, table, format)? {
            let batch = batch?;
            let kept = kept_rows(&batch, table, edits);
            let left = filter_record_batch(&batch, &kept).map_err(io::Error::other)?;
            let left = renamed(&left, edits).unwrap_or(left);
            if left.num_rows() > 0 {
                take(&left)?;
            }
        }
    }
    Ok(is_changed)
}

/// Returns `batch` with the new names of repositories; `None` if no row has another one.
fn renamed(batch: &RecordBatch, edits: &[&OriginEdit]) -> Option<RecordBatch> {
    let origins = batch.column_by_name("origin").expect("all tables have it").as_string::<i32>();
    let new_name = |origin: &str| {
        edits.iter().find_map(|one| match &one.edit {
            RowEdit::Rename(name) if one.origin == origin => Some(name.as_str()),
            _ => None,
        })
    };
    if !origins.iter().flatten().any(|origin| new_name(origin).is_some()) {
        return None;
    }
    let names: StringArray =
        origins.iter().map(|origin| origin.map(|origin| new_name(origin).unwrap_or(origin))).collect();
    let mut columns = batch.columns().to_vec();
    let at = batch.schema().index_of("origin").expect("all tables have it");
    columns[at] = Arc::new(names);
    Some(RecordBatch::try_new(batch.schema(), columns).expect("the same columns"))
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
fn kept_rows(batch: &RecordBatch, table: TableKind, edits: &[&OriginEdit]) -> BooleanArray {
    let bytes = |name: &str| batch.column_by_name(name).expect("a column of the table").as_binary::<i32>();
    let origins = batch.column_by_name("origin").expect("all tables have it").as_string::<i32>();
    let is_in = |set: &OidSet, column: &str, row: usize| {
        let ids = bytes(column);
        ids.is_valid(row) && oid_of(ids.value(row)).is_some_and(|oid| set.contains(&oid))
    };
    let goes = |row: usize| {
        let origin = origins.value(row);
        edits.iter().filter(|edit| edit.origin == origin).any(|OriginEdit { edit, .. }| {
            let rows = match edit {
                RowEdit::Replace(rows) => rows,
                RowEdit::Forget => return true,
                RowEdit::Rename(_) => return false,
            };
            match table.removed_by() {
                RemovedBy::Nothing => false,
                RemovedBy::Branch => rows.all_of_branch,
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
