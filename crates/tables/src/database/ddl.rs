//! The statements that make the tables in databases.

use std::fmt::Write;

use arrow_schema::DataType;
use weir_sql::quoted;

use crate::schema::TableKind;

/// A dialect of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Sqlite,
}

impl Dialect {
    fn type_name(self, data_type: &DataType) -> &'static str {
        match (self, data_type) {
            (Dialect::Postgres, DataType::Utf8) => "text",
            (Dialect::Postgres, DataType::Binary) => "bytea",
            (Dialect::Postgres, DataType::Boolean) => "boolean",
            (Dialect::Postgres, DataType::Int16) => "smallint",
            (Dialect::Postgres, DataType::Int32) => "integer",
            (Dialect::Postgres, DataType::Int64) => "bigint",
            (Dialect::Postgres, DataType::Timestamp(..)) => "timestamptz",
            (Dialect::Sqlite, DataType::Utf8 | DataType::Timestamp(..)) => "TEXT",
            (Dialect::Sqlite, DataType::Binary) => "BLOB",
            (Dialect::Sqlite, DataType::Boolean) => "BOOLEAN",
            (Dialect::Sqlite, DataType::Int16 | DataType::Int32 | DataType::Int64) => "INTEGER",
            (_, other) => unreachable!("no column has the type {other}"),
        }
    }
}

/// Returns the statement that makes `table`, if it is not there. If its rows are not `whole`, any column may
/// be null.
pub(crate) fn create_table(table: TableKind, dialect: Dialect, whole: bool) -> String {
    let mut sql = format!("CREATE TABLE IF NOT EXISTS {} (", table.name());
    for (n, column) in table.columns().iter().enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        let null = if column.is_nullable || !whole { "" } else { " NOT NULL" };
        let name = quoted(column.name);
        let _ = write!(sql, "{comma}{name} {}{null}", dialect.type_name(&column.data_type));
    }
    sql + ")"
}

/// Returns the statements that make the indexes of all tables, if they are not there. A first load is several
/// times as fast without them.
pub(crate) fn create_indexes(dialect: Dialect) -> impl Iterator<Item = String> {
    let indexes: [(TableKind, &[&str]); 12] = [
        (TableKind::Revision, &["id"]),
        (TableKind::Revision, &["origin", "committer_date"]),
        (TableKind::RevisionHistory, &["id"]),
        (TableKind::RevisionHistory, &["parent_id"]),
        (TableKind::RevisionExtraHeader, &["id"]),
        (TableKind::Release, &["id"]),
        (TableKind::FileChange, &["revision"]),
        (TableKind::FileChange, &["path"]),
        (TableKind::FileChange, &["blob"]),
        (TableKind::DefaultBranch, &["revision"]),
        (TableKind::RefChange, &["origin", "visit"]),
        (TableKind::OriginVisit, &["origin", "visit"]),
    ];
    indexes.into_iter().map(move |(table, columns)| {
        let name = format!("{}_{}", table.name(), columns.join("_"));
        // PostgreSQL refuses a row whose path is longer than a third of a page in a btree. A hash takes any.
        let how = if dialect == Dialect::Postgres && columns == ["path"] { "USING hash " } else { "" };
        format!("CREATE INDEX IF NOT EXISTS {name} ON {} {how}({})", table.name(), columns.join(", "))
    })
}

/// Returns the statements that make the views in which a commit that several repositories have is there once.
pub(crate) fn create_views(dialect: Dialect) -> impl Iterator<Item = String> {
    let create = match dialect {
        Dialect::Postgres => "CREATE OR REPLACE VIEW",
        Dialect::Sqlite => "CREATE VIEW IF NOT EXISTS",
    };
    [(TableKind::Revision, "id"), (TableKind::FileChange, "revision")].into_iter().map(move |(table, id)| {
        let name = table.name();
        format!(
            "{create} unique_{name} AS SELECT t.* FROM {name} t WHERE NOT EXISTS \
             (SELECT 1 FROM {name} o WHERE o.{id} = t.{id} AND o.origin < t.origin)"
        )
    })
}

/// The statement that drops the index that the first version of weir made in place of one of paths.
pub(crate) const DROP_OLD_INDEX: &str = "DROP INDEX IF EXISTS file_change_origin_path";
