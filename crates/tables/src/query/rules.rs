//! The rules of queries: they read the tables, and do nothing else.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

use crate::present::WantedColumns;
use crate::schema::TableKind;

/// The longest text that a query may make or read.
pub(super) const TEXT_BYTES_MAX: i32 = 4 << 20;
/// The longest statement.
const SQL_BYTES_MAX: i32 = 64 << 10;
/// Limits of SQLite on what a statement is made of (sqlite3_limit(3), "Run-Time Limit Categories").
const LIMITS: [(Limit, i32); 9] = [
    (Limit::SQLITE_LIMIT_LENGTH, TEXT_BYTES_MAX),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX),
    (Limit::SQLITE_LIMIT_COLUMN, 200),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 100),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Beginnings of names of tables that tell of SQLite itself. Other names are views, functions that give rows,
/// and what a statement defines by `WITH`.
const INTERNAL: [&str; 5] = ["pragma_", "dbstat", "bytecode", "tables_used", "sqlite_stmt"];
/// Functions that do more than compute.
const REFUSED: [&str; 3] = ["load_extension", "fts3_tokenizer", "sqlite_log"];

/// Sets the limits on statements.
pub(super) fn limit(connection: &Connection) -> rusqlite::Result<()> {
    LIMITS.into_iter().try_for_each(|(limit, max)| connection.set_limit(limit, max).map(|_| ()))
}

/// The columns that a statement reads.
#[derive(Clone, Debug, Default)]
pub(super) struct NotedReads(Arc<Mutex<WantedColumns>>);

impl NotedReads {
    /// Lets the statements that are prepared from now on read the tables and nothing else, and notes what
    /// they read.
    pub(super) fn guard(connection: &mut Connection) -> rusqlite::Result<NotedReads> {
        let noted = NotedReads::default();
        let guard = noted.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| guard.decide(&context)))?;
        Ok(noted)
    }

    /// Lets statements do everything again.
    pub(super) fn lift(connection: &mut Connection) -> rusqlite::Result<()> {
        connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)
    }

    /// Takes what was noted.
    pub(super) fn take(&self) -> WantedColumns {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn decide(&self, context: &AuthContext<'_>) -> Authorization {
        match context.action {
            AuthAction::Select | AuthAction::Recursive => Authorization::Allow,
            AuthAction::Function { function_name } => {
                let is_refused = REFUSED.iter().any(|name| name.eq_ignore_ascii_case(function_name));
                if is_refused { Authorization::Deny } else { Authorization::Allow }
            }
            AuthAction::Read { table_name, column_name } => {
                let table = TableKind::ALL.iter().find(|table| table.name().eq_ignore_ascii_case(table_name));
                if let Some(table) = table {
                    let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    noted.add(*table, column_name);
                    return Authorization::Allow;
                }
                let name = table_name.to_ascii_lowercase();
                let is_internal = INTERNAL.iter().any(|start| name.starts_with(start));
                if is_internal { Authorization::Deny } else { Authorization::Allow }
            }
            _ => Authorization::Deny,
        }
    }
}
