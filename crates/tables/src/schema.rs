//! The tables and their columns.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::column::{
    BytesColumn, Column, ColumnStorage, CountColumn, FlagColumn, IdColumn, KeyColumn, LongTextColumn,
    MinutesColumn, NumberColumn, TextColumn, TimeColumn,
};
use crate::error::{Error, Result};

/// The version of the tables, and of what weir keeps beside them. Version 1 had no `is_merge`
/// and no `default_branch`.
pub(crate) const VERSION: i32 = 2;

/// Returns an error if the tables at `path` have another version than this weir writes.
pub(crate) fn check_version(path: &Path, found: i32) -> Result<()> {
    if found == VERSION {
        return Ok(());
    }
    Err(Error::OtherVersion { path: path.to_owned(), found, wanted: VERSION })
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSpec {
    pub(crate) name: &'static str,
    pub(crate) data_type: DataType,
    pub(crate) is_nullable: bool,
    pub(crate) storage: ColumnStorage,
}

/// Rows of a table on the way into a batch.
pub(crate) trait TableRows: Default {
    /// The table.
    const TABLE: TableKind;

    /// Returns the columns, in order.
    fn columns() -> Vec<ColumnSpec>;

    /// Returns the values of all columns, and starts anew.
    fn arrays(&mut self) -> Vec<ArrayRef>;
}

macro_rules! tables {
    ($($(#[doc = $doc:literal])* $kind:ident $rows:ident $name:literal {
        $($column:ident: $type:ident $null:ident,)+
    })+) => {
        /// A table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum TableKind {
            $($(#[doc = $doc])* $kind,)+
        }

        impl TableKind {
            /// All tables.
            pub const ALL: &[TableKind] = &[$(TableKind::$kind),+];

            /// Returns the name of the table.
            pub fn name(self) -> &'static str {
                match self {
                    $(TableKind::$kind => $name,)+
                }
            }

            /// Returns what its rows are, in words.
            pub fn words(self) -> &'static str {
                match self {
                    $(TableKind::$kind => concat!($($doc),+).trim_start(),)+
                }
            }

            pub(crate) fn columns(self) -> Vec<ColumnSpec> {
                match self {
                    $(TableKind::$kind => $rows::columns(),)+
                }
            }
        }

        $(
            $(#[doc = $doc])*
            #[derive(Default)]
            pub(crate) struct $rows {
                $(pub(crate) $column: $type,)+
            }

            impl TableRows for $rows {
                const TABLE: TableKind = TableKind::$kind;

                fn columns() -> Vec<ColumnSpec> {
                    vec![$(ColumnSpec {
                        name: stringify!($column),
                        data_type: $type::data_type(),
                        is_nullable: is_nullable::$null,
                        storage: $type::STORAGE,
                    }),+]
                }

                fn arrays(&mut self) -> Vec<ArrayRef> {
                    vec![$(self.$column.finish()),+]
                }
            }
        )+
    };
}

/// The words for columns that may and may not be null.
#[allow(non_upper_case_globals)]
mod is_nullable {
    pub(super) const always: bool = false;
    pub(super) const or_null: bool = true;
}

tables! {
    /// Minings: one row each time that a repository was mined.
    Mining MiningRows "mining" {
        origin: TextColumn always,
        url: TextColumn or_null,
        object_format: TextColumn always,
        head: TextColumn or_null,
        started_at: TimeColumn always,
        revisions: CountColumn always,
        releases: CountColumn always,
        file_changes: CountColumn always,
        errors: CountColumn always,
    }
    /// States of the refs.
    OriginVisit OriginVisitRows "origin_visit" {
        origin: TextColumn always,
        visit: CountColumn always,
        date: TimeColumn or_null,
        snapshot: KeyColumn or_null,
        is_partial: FlagColumn always,
    }
    /// Refs that are new in a state, point elsewhere, or are gone.
    RefChange RefChangeRows "ref_change" {
        origin: TextColumn always,
        visit: CountColumn always,
        name: TextColumn always,
        name_raw: BytesColumn or_null,
        old_target: IdColumn or_null,
        target: IdColumn or_null,
    }
    /// Commits.
    Revision RevisionRows "revision" {
        origin: TextColumn always,
        id: KeyColumn always,
        directory: IdColumn always,
        parent_count: NumberColumn always,
        author_name: TextColumn always,
        author_email: TextColumn always,
        author_date: TimeColumn or_null,
        author_date_offset: MinutesColumn or_null,
        committer_name: TextColumn always,
        committer_email: TextColumn always,
        committer_date: TimeColumn or_null,
        committer_date_offset: MinutesColumn or_null,
        message: LongTextColumn always,
        encoding: TextColumn or_null,
        signature: TextColumn or_null,
        author_raw: BytesColumn or_null,
        committer_raw: BytesColumn or_null,
        message_raw: BytesColumn or_null,
    }
    /// Parents of commits.
    RevisionHistory RevisionHistoryRows "revision_history" {
        origin: TextColumn always,
        id: KeyColumn always,
        parent_id: KeyColumn always,
        parent_rank: NumberColumn always,
    }
    /// Header lines of commits other than those that all commits have.
    RevisionExtraHeader RevisionExtraHeaderRows "revision_extra_header" {
        origin: TextColumn always,
        id: KeyColumn always,
        rank: NumberColumn always,
        key: TextColumn always,
        value: LongTextColumn always,
        value_raw: BytesColumn or_null,
    }
    /// Annotated tags.
    Release ReleaseRows "release" {
        origin: TextColumn always,
        id: KeyColumn always,
        name: TextColumn always,
        target: KeyColumn or_null,
        target_type: TextColumn or_null,
        author_name: TextColumn or_null,
        author_email: TextColumn or_null,
        date: TimeColumn or_null,
        date_offset: MinutesColumn or_null,
        message: LongTextColumn always,
        name_raw: BytesColumn or_null,
        author_raw: BytesColumn or_null,
        message_raw: BytesColumn or_null,
    }
    /// Files that commits change.
    FileChange FileChangeRows "file_change" {
        origin: TextColumn always,
        revision: KeyColumn always,
        committer_date: TimeColumn or_null,
        parent_rank: NumberColumn always,
        is_merge: FlagColumn always,
        status: TextColumn always,
        similarity: NumberColumn or_null,
        path: TextColumn always,
        old_path: TextColumn or_null,
        blob: KeyColumn or_null,
        old_blob: IdColumn or_null,
        mode: NumberColumn or_null,
        old_mode: NumberColumn or_null,
        insertions: CountColumn or_null,
        deletions: CountColumn or_null,
        is_binary: FlagColumn or_null,
        is_unavailable: FlagColumn or_null,
        path_raw: BytesColumn or_null,
        old_path_raw: BytesColumn or_null,
    }
    /// Commits of default branches.
    DefaultBranch DefaultBranchRows "default_branch" {
        origin: TextColumn always,
        revision: KeyColumn always,
    }
    /// What could not be mined.
    MiningError MiningErrorRows "mining_error" {
        origin: TextColumn always,
        object: KeyColumn always,
        revision: KeyColumn or_null,
        kind: TextColumn always,
        text: TextColumn always,
    }
}

impl TableKind {
    /// Returns the names of its columns, in order.
    pub fn column_names(self) -> impl Iterator<Item = &'static str> {
        self.columns().into_iter().map(|column| column.name)
    }

    /// Returns the names of its columns, each with the word for its type and whether it may be null.
    pub fn column_types(self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        self.columns().into_iter().map(|column| {
            let kind = match column.data_type {
                DataType::Binary
                    if matches!(column.storage, ColumnStorage::Id | ColumnStorage::LookedUpId) =>
                {
                    "id"
                }
                DataType::Binary => "bytes",
                DataType::Boolean => "flag",
                DataType::Timestamp(..) => "time",
                DataType::Utf8 => "text",
                _ => "number",
            };
            (column.name, kind, column.is_nullable)
        })
    }

    /// Returns the schema in Arrow.
    pub fn schema(self) -> SchemaRef {
        let fields: Vec<Field> = self
            .columns()
            .into_iter()
            .map(|column| Field::new(column.name, column.data_type, column.is_nullable))
            .collect();
        Arc::new(Schema::new(fields))
    }
}

/// Rows of a table, with their number.
#[derive(Default)]
pub(crate) struct Buffered<T> {
    pub(crate) rows: T,
    count: usize,
    /// The bytes of long texts.
    bytes: usize,
    schema: Option<SchemaRef>,
}

/// A batch is made of this many rows, or of this many bytes of long texts.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 16 << 20;

impl<T: TableRows> Buffered<T> {
    /// Counts a row that was appended, which has `bytes` bytes of long texts. Returns a batch if there are
    /// enough rows.
    pub(crate) fn added(&mut self, bytes: usize) -> Option<RecordBatch> {
        self.count += 1;
        self.bytes += bytes;
        if self.count < BATCH_ROWS && self.bytes < BATCH_BYTES { None } else { self.take() }
    }

    /// Returns the rows, if there are any.
    pub(crate) fn take(&mut self) -> Option<RecordBatch> {
        if self.count == 0 {
            return None;
        }
        (self.count, self.bytes) = (0, 0);
        let schema = Arc::clone(self.schema.get_or_insert_with(|| T::TABLE.schema()));
        Some(RecordBatch::try_new(schema, self.rows.arrays()).expect("all columns have the same length"))
    }
}
