//! Columns: what a table is made of, on the way into Arrow arrays.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Int16Builder, Int32Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, TimeUnit};
use weir_git::Oid;

/// The time zone of all times. A name instead of an offset would need a database of time zones.
const UTC: &str = "+00:00";
/// The years 1 to 9999: what everybody who reads tables can show.
const SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A column that is being filled.
pub(crate) trait Column: Default {
    /// How it is stored.
    const STORAGE: ColumnStorage;

    /// Returns the type in Arrow.
    fn data_type() -> DataType;

    /// Returns the values, and starts anew.
    fn finish(&mut self) -> ArrayRef;
}

/// How a column is stored in Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnStorage {
    /// Values that repeat: with a dictionary.
    Repeated,
    /// Texts that hardly ever repeat.
    Unique,
    /// Ids: they do not repeat nearby, and cannot be compressed.
    Id,
    /// Ids that are looked up: with a bloom filter.
    LookedUpId,
    /// Numbers that hardly differ from row to row, and hardly repeat.
    Ascending,
}

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident($builder:ident) $type:expr, $storage:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name(pub(crate) $builder);

        impl Column for $name {
            const STORAGE: ColumnStorage = ColumnStorage::$storage;

            fn data_type() -> DataType {
                $type
            }

            fn finish(&mut self) -> ArrayRef {
                Arc::new(self.0.finish())
            }
        }
    )+};
}

columns! {
    /// Short texts.
    TextColumn(StringBuilder) DataType::Utf8, Repeated;
    /// Long texts.
    LongTextColumn(StringBuilder) DataType::Utf8, Unique;
    /// Bytes as they are.
    BytesColumn(BinaryBuilder) DataType::Binary, Unique;
    /// Ids of objects, 20 or 32 bytes each.
    IdColumn(BinaryBuilder) DataType::Binary, Id;
    /// Ids of objects by which rows are looked up.
    KeyColumn(BinaryBuilder) DataType::Binary, LookedUpId;
    /// Flags.
    FlagColumn(BooleanBuilder) DataType::Boolean, Repeated;
    /// Minutes.
    MinutesColumn(Int16Builder) DataType::Int16, Repeated;
    /// Small numbers.
    NumberColumn(Int32Builder) DataType::Int32, Repeated;
    /// Large numbers.
    CountColumn(Int64Builder) DataType::Int64, Repeated;
}

/// Times.
pub(crate) struct TimeColumn(TimestampMicrosecondBuilder);

impl Default for TimeColumn {
    fn default() -> Self {
        TimeColumn(TimestampMicrosecondBuilder::new().with_timezone(UTC))
    }
}

impl Column for TimeColumn {
    const STORAGE: ColumnStorage = ColumnStorage::Ascending;

    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

impl TimeColumn {
    /// Appends a time in seconds since 1970, as null if it is out of range. Returns whether it is in range.
    pub(crate) fn push(&mut self, seconds: Option<i64>) -> bool {
        let in_range = seconds.filter(|seconds| SECONDS.contains(seconds));
        self.0.append_option(in_range.map(|seconds| seconds * 1_000_000));
        in_range == seconds
    }
}

impl KeyColumn {
    /// Appends an id.
    pub(crate) fn push(&mut self, id: Option<Oid>) {
        self.0.append_option(id.as_ref().map(Oid::as_bytes));
    }
}

impl IdColumn {
    /// Appends an id.
    pub(crate) fn push(&mut self, id: Option<Oid>) {
        self.0.append_option(id.as_ref().map(Oid::as_bytes));
    }
}

impl CountColumn {
    /// Appends a number. Numbers above 2^63 - 1 become that.
    pub(crate) fn push(&mut self, count: Option<u64>) {
        self.0.append_option(count.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
    }
}
