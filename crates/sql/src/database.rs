//! A connection to SQLite or PostgreSQL, behind the same few calls.

use std::cell::{Cell, RefCell};
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params_from_iter};

use crate::dialect::{self, Type};
use crate::error::{Error, Result};
use crate::locks::FileLocks;
use crate::postgres_client::Postgres;
use crate::value::{Row, Value};

/// How many prepared statements are kept.
const STATEMENTS_KEPT: usize = 64;
/// The size of SQLite's page cache in KiB, allocated as needed.
const CACHE_KIBIBYTES: i64 = 64 << 10;
/// How many pages of 4 KiB the log may have before they are moved to their places: a page that changes often
/// is moved once.
const CHECKPOINT_PAGES: i64 = 16 << 10;
/// How often a transaction is begun again after a conflict with another.
const CONFLICTS_MAX: u32 = 10;

/// Whether transactions of one kind run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionKind {
    /// They run side by side, on PostgreSQL, in rows that others leave alone meanwhile.
    Shared,
    /// One runs at a time, on PostgreSQL too, where this statement takes a lock until the end.
    Alone(&'static str),
}

/// An error that ends a transaction.
pub trait TransactionError: From<Error> {
    /// Returns whether another transaction was in the way, so that this one may be begun again.
    fn is_conflict(&self) -> bool;
}

impl TransactionError for Error {
    fn is_conflict(&self) -> bool {
        // serialization_failure, deadlock_detected
        matches!(self, Error::Postgres { code: Some(code), .. } if code == "40001" || code == "40P01")
    }
}

enum Engine {
    Sqlite(Connection),
    Postgres(Box<Postgres>),
}

/// A connection to a database of weir's own. SQL is written once for both, as for PostgreSQL with parameters
/// `?1`.
pub struct Database {
    engine: Engine,
    in_transaction: Cell<bool>,
    /// The files that are locked beside an SQLite catalog.
    file_locks: RefCell<Option<FileLocks>>,
}

/// Rows of parameters for one statement.
pub type Rows<'a> = [Vec<Value<'a>>];

impl Database {
    /// Opens the SQLite file `path`, or makes one that only its owner may read.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Database> {
        // URLs of upstreams may contain passwords, so the file is private. SQLite gives its other files the
        // same mode. If the file exists, this fails and changes nothing; if it cannot be created, SQLite says
        // why below.
        drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path));
        // Nothing else may open and close the file: that would release the locks that SQLite has on it for
        // the whole process (fcntl(2)).
        let connection = Connection::open(path)?;
        if connection.is_readonly("main")? {
            drop(connection);
            return Database::open_to_read(path);
        }
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // With WAL a power failure may lose the last batch, never consistency. A lost batch is visited again.
        connection.pragma_update(None, "synchronous", "normal")?;
        // Rows of ten million repositories are written in any order: with the default of 2 MiB, most pages
        // would be read again.
        connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        let file_locks = RefCell::new(Some(FileLocks::new(path)));
        Ok(Database { engine: Engine::Sqlite(connection), in_transaction: Cell::new(false), file_locks })
    }

    /// Opens a catalog that may only be read. SQLite can read a file with a write-ahead log only if it may
    /// write beside it, or if a writer's files are there. Without such a log nothing is written, and the file
    /// is opened as immutable.
    fn open_to_read(path: &Path) -> Result<Database> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let has_log = fs::metadata(log).is_ok_and(|log| log.len() > 0);
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // RFC 3986's reserved characters have a meaning in such a URL.
        let name: String = path
            .as_os_str()
            .as_bytes()
            .iter()
            .map(|&b| {
                if b.is_ascii_alphanumeric() || b"/-._~".contains(&b) {
                    char::from(b).to_string()
                } else {
                    format!("%{b:02X}")
                }
            })
            .collect();
        let connection = Connection::open_with_flags(
            format!("file:{name}?{}", if has_log { "mode=ro" } else { "immutable=1" }),
            flags,
        )?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        let file_locks = RefCell::new(Some(FileLocks::new(path)));
        Ok(Database { engine: Engine::Sqlite(connection), in_transaction: Cell::new(false), file_locks })
    }

    /// Connects to PostgreSQL at `url`, in the format of libpq.
    ///
    /// # Errors
    /// If the database fails.
    pub fn connect(url: &str) -> Result<Database> {
        let engine = Engine::Postgres(Box::new(Postgres::connect(url)?));
        Ok(Database { engine, in_transaction: Cell::new(false), file_locks: RefCell::new(None) })
    }

    /// Takes the lock called `name` among those of `kind` until it is released or the process ends. Returns
    /// false if it is taken already.
    ///
    /// # Errors
    /// If the database fails, or a file beside it cannot be locked.
    pub fn try_lock(&self, kind: &'static str, name: &str) -> Result<bool> {
        match (&self.engine, &mut *self.file_locks.borrow_mut()) {
            (Engine::Postgres(postgres), _) => postgres.try_lock(kind, name),
            (Engine::Sqlite(_), Some(locks)) => {
                locks.try_lock(&format!("{kind} {name}")).map_err(Error::Lock)
            }
            (Engine::Sqlite(_), None) => Ok(true),
        }
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// If the database fails.
    pub fn unlock(&self, kind: &'static str, name: &str) -> Result<()> {
        if let Engine::Postgres(postgres) = &self.engine {
            return postgres.unlock(kind, name);
        }
        if let Some(locks) = &mut *self.file_locks.borrow_mut() {
            locks.unlock(&format!("{kind} {name}"));
        }
        Ok(())
    }

    /// Makes the transaction wait for others that run the statement `lock`, which takes a lock of
    /// PostgreSQL's until their end.
    ///
    /// # Errors
    /// If the database fails.
    pub fn wait_for_others(&self, lock: &str) -> Result<()> {
        match self.is_postgres() {
            true => self.query_one(lock, &[], |_| Ok(())).map(|_| ()),
            // Only one transaction writes at a time.
            false => Ok(()),
        }
    }

    /// Returns whether the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self.engine, Engine::Postgres(_))
    }

    /// Runs statements without parameters.
    ///
    /// # Errors
    /// If the database fails.
    pub fn batch(&self, sql: &str) -> Result<()> {
        match &self.engine {
            Engine::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Engine::Postgres(postgres) => postgres.batch(sql, self.may_reconnect()),
        }
    }

    /// Runs a statement. Returns how many rows it changed.
    ///
    /// # Errors
    /// If the database fails.
    pub fn execute(&self, sql: &str, parameters: &[Value<'_>]) -> Result<u64> {
        match &self.engine {
            Engine::Sqlite(connection) => Ok(connection
                .prepare_cached(&dialect::for_sqlite(sql))?
                .execute(params_from_iter(parameters))? as u64),
            Engine::Postgres(postgres) => postgres.execute(sql, parameters, self.may_reconnect()),
        }
    }

    /// Returns all rows of a result.
    ///
    /// # Errors
    /// If the database fails.
    pub fn query<T>(
        &self,
        sql: &str,
        parameters: &[Value<'_>],
        mut map: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        match &self.engine {
            Engine::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&dialect::for_sqlite(sql))?;
                collect(statement.query(params_from_iter(parameters))?, &mut map)
            }
            Engine::Postgres(postgres) => postgres
                .query(sql, parameters, self.may_reconnect())?
                .iter()
                .map(|row| map(&Row::Postgres(row)))
                .collect(),
        }
    }

    /// Returns the first row of a result.
    ///
    /// # Errors
    /// If the database fails.
    pub fn query_one<T>(
        &self,
        sql: &str,
        parameters: &[Value<'_>],
        map: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.query(sql, parameters, map)?.into_iter().next())
    }

    /// Calls `each` with every row of a large result as it comes.
    ///
    /// # Errors
    /// If the database fails.
    pub fn stream(&self, sql: &str, each: &mut dyn FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        match &self.engine {
            Engine::Sqlite(connection) => {
                let mut statement = connection.prepare(sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    each(&Row::Sqlite(row))?;
                }
                Ok(())
            }
            Engine::Postgres(postgres) => postgres.stream(sql, each),
        }
    }

    /// Runs a statement for each of `rows`: one after the other on SQLite, at once on PostgreSQL.
    ///
    /// # Errors
    /// If the database fails.
    pub fn execute_rows(&self, sql: &str, types: &[Type], rows: &Rows<'_>) -> Result<u64> {
        debug_assert!(rows.iter().all(|row| row.len() == types.len()), "rows of other columns: {sql}");
        match &self.engine {
            Engine::Sqlite(connection) => {
                let mut statement =
                    connection.prepare_cached(&dialect::for_row_of_sqlite(sql, types.len()))?;
                let mut changed = 0;
                for row in rows {
                    changed += statement.execute(params_from_iter(row))? as u64;
                }
                Ok(changed)
            }
            Engine::Postgres(_) if rows.is_empty() => Ok(0),
            Engine::Postgres(postgres) => postgres.execute_rows(sql, types, rows),
        }
    }

    /// Runs a statement that returns rows, as [`Database::execute_rows`] does.
    ///
    /// # Errors
    /// If the database fails.
    pub fn query_rows<T>(
        &self,
        sql: &str,
        types: &[Type],
        rows: &Rows<'_>,
        mut map: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        debug_assert!(rows.iter().all(|row| row.len() == types.len()), "rows of other columns: {sql}");
        match &self.engine {
            Engine::Sqlite(connection) => {
                let mut statement =
                    connection.prepare_cached(&dialect::for_row_of_sqlite(sql, types.len()))?;
                let mut list = Vec::new();
                for row in rows {
                    list.append(&mut collect(statement.query(params_from_iter(row))?, &mut map)?);
                }
                Ok(list)
            }
            Engine::Postgres(_) if rows.is_empty() => Ok(Vec::new()),
            Engine::Postgres(postgres) => {
                postgres.query_rows(sql, types, rows)?.iter().map(|row| map(&Row::Postgres(row))).collect()
            }
        }
    }

    /// Writes rows into the columns of an empty table in the fastest way there is. On PostgreSQL, it needs a
    /// transaction.
    ///
    /// # Errors
    /// If the database fails.
    pub fn fill(&self, table: &str, columns: &[String], types: &[Type], rows: &Rows<'_>) -> Result<()> {
        match &self.engine {
            Engine::Sqlite(_) => {
                let sql = format!("INSERT INTO {table} ({}) SELECT * FROM rows", columns.join(", "));
                self.execute_rows(&sql, types, rows).map(|_| ())
            }
            Engine::Postgres(postgres) => {
                postgres.copy(&format!("COPY {table} ({}) FROM STDIN", columns.join(", ")), rows)
            }
        }
    }

    /// Runs `work` in a transaction: all of it or nothing. After a conflict with another transaction it calls
    /// `work` again, so anything that `work` counts must be local to it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn transaction<T, E: TransactionError>(
        &self,
        kind: TransactionKind,
        mut work: impl FnMut(&Database) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        for tries in 0.. {
            self.begin(kind)?;
            let guard = Rollback(self);
            let result = work(self).and_then(|value| Ok(self.batch("COMMIT").map(|()| value)?));
            match result {
                Ok(value) => {
                    self.in_transaction.set(false);
                    return Ok(value);
                }
                Err(e) if e.is_conflict() && tries < CONFLICTS_MAX => {
                    drop(guard);
                    std::thread::sleep(pause_after_conflict(tries));
                }
                Err(e) => return Err(e),
            }
        }
        unreachable!("the last try returns")
    }

    /// Runs a transaction like [`Database::transaction`], and syncs it: when it returns, not even a power
    /// failure undoes it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn durably<T, E: TransactionError>(
        &self,
        kind: TransactionKind,
        work: impl FnMut(&Database) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let Engine::Sqlite(connection) = &self.engine else { return self.transaction(kind, work) };
        let synchronous = |level| connection.pragma_update(None, "synchronous", level).map_err(Error::from);
        synchronous("full")?;
        let result = self.transaction(kind, work);
        synchronous("normal")?;
        result
    }

    fn begin(&self, kind: TransactionKind) -> Result<()> {
        match &self.engine {
            Engine::Sqlite(_) => self.batch("BEGIN IMMEDIATE")?,
            Engine::Postgres(_) => self.batch("BEGIN")?,
        }
        debug_assert!(!self.in_transaction.get(), "a transaction in a transaction");
        self.in_transaction.set(true);
        if let TransactionKind::Alone(lock) = kind
            && self.is_postgres()
        {
            let guard = Rollback(self);
            self.batch(lock)?;
            std::mem::forget(guard);
        }
        Ok(())
    }

    fn may_reconnect(&self) -> bool {
        !self.in_transaction.get()
    }
}

/// Returns the time to wait before a transaction is begun again after `tries` conflicts. It is random, so
/// that two transactions that met do not meet again, and doubles on average with each try.
fn pause_after_conflict(tries: u32) -> Duration {
    let longest = 2000u64 << tries.min(CONFLICTS_MAX);
    Duration::from_micros(RandomState::new().hash_one(tries) % longest)
}

fn collect<T>(mut rows: rusqlite::Rows<'_>, map: &mut impl FnMut(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    while let Some(row) = rows.next()? {
        list.push(map(&Row::Sqlite(row))?);
    }
    Ok(list)
}

/// Rolls back a transaction that did not get to its end, whatever the reason.
struct Rollback<'a>(&'a Database);

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        if self.0.in_transaction.get() {
            // If the connection is lost, the server has rolled back already.
            let _ = self.0.batch("ROLLBACK");
            self.0.in_transaction.set(false);
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(e: rusqlite::Error) -> Error {
        match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::ReadOnly) => Error::ReadOnly,
            _ => Error::Sqlite(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_conflicts_double_up_to_a_limit() {
        for tries in 0..20 {
            let longest = Duration::from_millis(2) * 2_u32.pow(tries.min(10));
            let pauses: Vec<Duration> = (0..100).map(|_| pause_after_conflict(tries)).collect();
            let found = *pauses.iter().max().unwrap();
            assert!(found < longest && found > longest / 2, "{tries}: {found:?}");
            assert!(*pauses.iter().min().unwrap() < longest / 2, "{tries}");
        }
    }
}
