//! A SQLite file that holds tables for queries.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{io, iter};

use arrow_array::RecordBatch;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use weir_ground::Stop;
use weir_mine::ReplacedRows;

use weir_sql::quoted;

use crate::database::{Dialect, create_table, create_views, sqlite_value};
use crate::present::{PresentRepository, WantedColumns, mine_present};
use crate::query::answer::{QueryAnswer, QueryLimits, QueryRow, QueryValue};
use crate::query::error::{QueryError, Result, of_file, of_statement, too_large_spill};
use crate::query::rules::NotedReads;
use crate::query::spill::Spill;
use crate::query::{functions, rules};
use crate::schema::TableKind;
use crate::sink::{BatchWriter, TableSink};

const PAGE_BYTES: u64 = 8192;
/// Pages that the tables take without rows.
const PAGES_MIN: u64 = 16;
const _: () = assert!(PAGE_BYTES.is_power_of_two() && PAGES_MIN > 0, "SQLite takes no other pages");
/// The size of SQLite's page cache in KiB.
const CACHE_KIBIBYTES: i64 = 32 << 10;
/// Steps of SQLite's machine between two looks at the clock.
const STEPS_A_LOOK: i32 = 10_000;

/// A SQLite file without a name that holds tables of some repositories.
pub struct QueryDatabase {
    connection: Connection,
    /// The most bytes of the file, and of what a query sorts and groups.
    bytes_max: u64,
    /// The columns that it holds.
    held: WantedColumns,
}

impl QueryDatabase {
    /// Makes one in `folder`, without rows, that takes at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn new(folder: &Path, bytes_max: u64) -> Result<QueryDatabase> {
        let file =
            tempfile::Builder::new().prefix(".query-").tempfile_in(folder).map_err(QueryError::File)?;
        let connection = Connection::open(file.path()).map_err(of_file)?;
        let pages_max = (bytes_max / PAGE_BYTES).max(PAGES_MIN);
        // Nobody reads the file after a crash, or after a load that failed.
        let settings = format!(
            "PRAGMA page_size = {PAGE_BYTES}; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF; \
             PRAGMA synchronous = OFF; PRAGMA cache_size = -{CACHE_KIBIBYTES}; \
             PRAGMA max_page_count = {pages_max}; PRAGMA trusted_schema = OFF; "
        );
        let tables = TableKind::ALL.iter().map(|table| create_table(*table, Dialect::Sqlite, false));
        let all: Vec<String> =
            iter::once(settings).chain(tables).chain(create_views(Dialect::Sqlite)).collect();
        connection.execute_batch(&all.join(";\n")).map_err(of_file)?;
        functions::add(&connection).map_err(of_file)?;
        rules::limit(&connection).map_err(of_file)?;
        Ok(QueryDatabase { connection, bytes_max, held: WantedColumns::default() })
    }

    /// Returns the columns that the query `sql` reads.
    ///
    /// # Errors
    /// If it is no query, or reads what is not there.
    pub fn reads(&mut self, sql: &str) -> Result<WantedColumns> {
        if sql.contains('\0') {
            return Err(QueryError::Statement("the query has a NUL".to_owned()));
        }
        let noted = NotedReads::guard(&mut self.connection).map_err(of_file)?;
        let prepared = self.connection.prepare(sql).map_err(of_statement).and_then(|statement| {
            let is_query = statement.column_count() > 0 && statement.readonly();
            let not_query = || QueryError::Statement("this is no query".to_owned());
            is_query.then(|| statement.is_explain() != 0).ok_or_else(not_query)
        });
        NotedReads::lift(&mut self.connection).map_err(of_file)?;
        let (is_explain, mut reads) = (prepared?, noted.take());
        if !is_explain {
            self.add_joined(sql, &mut reads).map_err(of_statement)?;
        }
        Ok(reads)
    }

    /// Adds the columns that the query `sql` joins tables by with `USING` or `NATURAL`: SQLite asks nobody
    /// whether it may read these, but its program reads them like others (sqlite.org/opcode.html, `OpenRead`
    /// and `Column`).
    fn add_joined(&self, sql: &str, reads: &mut WantedColumns) -> rusqlite::Result<()> {
        let root_of = "SELECT name FROM sqlite_schema WHERE rootpage = ?1";
        let mut root_of = self.connection.prepare(root_of)?;
        let mut table_at = |root: i64| {
            let name: Option<String> = root_of.query_row([root], |row| row.get(0)).optional()?;
            Ok::<_, rusqlite::Error>(
                TableKind::ALL.iter().find(|table| name.as_deref() == Some(table.name())),
            )
        };
        let mut program = self.connection.prepare(&format!("EXPLAIN {sql}"))?;
        let mut steps = program.query([])?;
        let (mut tables, mut columns) = (HashMap::new(), Vec::new());
        while let Some(step) = steps.next()? {
            let (opcode, p1, p2): (String, i64, i64) =
                (step.get("opcode")?, step.get("p1")?, step.get("p2")?);
            match opcode.as_str() {
                "OpenRead" => tables.extend(table_at(p2)?.map(|table| (p1, table))),
                "Column" => columns.push((p1, p2)),
                _ => {}
            }
        }
        for (cursor, column) in columns {
            let Some(table) = tables.get(&cursor) else { continue };
            let name = usize::try_from(column).ok().and_then(|place| table.column_names().nth(place));
            reads.add(**table, name.unwrap_or_default());
        }
        Ok(())
    }

    /// Begins to load the columns `wanted` that the database does not hold. The repositories are the same
    /// each time.
    ///
    /// # Errors
    /// If the file fails.
    pub fn load(self, wanted: &WantedColumns) -> Result<QueryLoad> {
        let mut lacking = WantedColumns::default();
        for (table, columns) in wanted.tables() {
            let held = self.held.of(table);
            if held.is_none_or(|held| !held.is_superset(columns)) {
                lacking.set(table, held.into_iter().flatten().chain(columns).copied());
            }
        }
        for (table, _) in lacking.tables().filter(|(table, _)| self.held.of(*table).is_some()) {
            self.connection.execute(&format!("DELETE FROM {}", table.name()), []).map_err(of_file)?;
        }
        if !lacking.is_empty() {
            self.connection.execute_batch("BEGIN").map_err(of_file)?;
        }
        let connection = Mutex::new(self.connection);
        Ok(QueryLoad { connection, bytes_max: self.bytes_max, held: self.held, lacking })
    }

    /// Runs the query `sql`, whose columns were loaded.
    ///
    /// # Errors
    /// If it fails, its answer is too large, or `stop` was requested.
    pub fn run(&mut self, sql: &str, limits: QueryLimits, stop: &Stop) -> Result<QueryAnswer> {
        self.watched(stop, |connection, _| answer(connection, sql, limits))
    }

    /// Runs the query `sql`, whose columns were loaded, and gives `take` the names of the columns, and then
    /// each row as it comes, until it fails.
    ///
    /// # Errors
    /// If the query or `take` fails, or `stop` was requested.
    pub fn each_row(
        &mut self,
        sql: &str,
        stop: &Stop,
        take: &mut dyn FnMut(QueryRow<'_>) -> io::Result<()>,
    ) -> Result<()> {
        self.watched(stop, |connection, spill| {
            let mut statement = connection.prepare(sql).map_err(of_statement)?;
            let names: Vec<&str> = statement.column_names().collect();
            take(QueryRow::Columns(&names)).map_err(QueryError::Output)?;
            let count = statement.column_count();
            let mut rows = statement.query([]).map_err(of_statement)?;
            while let Some(row) = rows.next().map_err(of_statement)? {
                let values = values(row, count)?;
                // A quote may be written twice.
                spill.allow(2 * values.iter().map(QueryValue::weight).sum::<usize>() as u64);
                take(QueryRow::Values(&values)).map_err(QueryError::Output)?;
            }
            Ok(())
        })
    }

    /// Runs `work`, which prepares and runs a query, under the rules and within `stop` and the room.
    fn watched<T>(&mut self, stop: &Stop, work: impl FnOnce(&Connection, &Spill) -> Result<T>) -> Result<T> {
        NotedReads::guard(&mut self.connection).map_err(of_file)?;
        let spill = Spill::new(self.bytes_max);
        let (stop, mut watched) = (stop.clone(), spill.clone());
        let is_over = move || stop.is_stopped() || watched.look();
        self.connection.progress_handler(STEPS_A_LOOK, Some(is_over)).map_err(of_file)?;
        let answer = work(&self.connection, &spill);
        self.connection.progress_handler(0, None::<fn() -> bool>).map_err(of_file)?;
        NotedReads::lift(&mut self.connection).map_err(of_file)?;
        match answer {
            Err(QueryError::Stopped) if spill.is_too_large() => Err(too_large_spill()),
            answer => answer,
        }
    }

    /// Returns the size of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let pages = self.connection.query_row("PRAGMA page_count", [], |row| row.get::<_, u32>(0));
        u64::from(pages.unwrap_or_default()) * PAGE_BYTES
    }
}

/// A database to which rows are added. If that fails, nothing is left of it.
pub struct QueryLoad {
    connection: Mutex<Connection>,
    bytes_max: u64,
    /// The columns that it held before.
    held: WantedColumns,
    /// The columns that are added.
    lacking: WantedColumns,
}

impl QueryLoad {
    /// Mines a repository with `threads` threads.
    ///
    /// # Errors
    /// If the repository cannot be mined, the tables are too large, or `stop` was requested.
    pub fn mine(&self, source: &PresentRepository<'_>, threads: usize, stop: &Stop) -> Result<()> {
        if self.lacking.is_empty() {
            return Ok(());
        }
        let rows = || TableSink::new(LoadedRows { connection: &self.connection, wanted: &self.lacking });
        let sinks: Vec<_> = iter::repeat_with(|| Mutex::new(rows())).take(threads.max(1)).collect();
        mine_present(source, &self.lacking, &sinks, stop).map_err(|e| failure(source.origin, e))
    }

    /// Returns the database.
    ///
    /// # Errors
    /// If the file fails.
    pub fn finish(self) -> Result<QueryDatabase> {
        let connection = self.connection.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !self.lacking.is_empty() {
            connection.execute_batch("COMMIT").map_err(of_file)?;
        }
        let mut held = self.held;
        held.join(&self.lacking);
        Ok(QueryDatabase { connection, bytes_max: self.bytes_max, held })
    }
}

fn values(row: &Row<'_>, count: usize) -> Result<Vec<QueryValue>> {
    let values = (0..count).map(|n| row.get_ref(n).map(QueryValue::of));
    values.collect::<rusqlite::Result<_>>().map_err(of_statement)
}

fn answer(connection: &Connection, sql: &str, limits: QueryLimits) -> Result<QueryAnswer> {
    let mut statement = connection.prepare(sql).map_err(of_statement)?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut answer = QueryAnswer { columns, rows: Vec::new(), is_truncated: false };
    let mut bytes = 0;
    let mut rows = statement.query([]).map_err(of_statement)?;
    while let Some(row) = rows.next().map_err(of_statement)? {
        let values = values(row, answer.columns.len())?;
        bytes += values.iter().map(QueryValue::weight).sum::<usize>();
        if bytes > limits.bytes_max && answer.rows.is_empty() {
            let words = format!("a row of the answer has more than {} bytes", limits.bytes_max);
            return Err(QueryError::TooLarge(words));
        }
        if answer.rows.len() == limits.rows_max || bytes > limits.bytes_max {
            answer.is_truncated = true;
            break;
        }
        answer.rows.push(values);
    }
    Ok(answer)
}

/// Returns the error `e` of mining `origin`.
fn failure(origin: &str, e: weir_mine::Error) -> QueryError {
    match e {
        weir_mine::Error::Stopped => QueryError::StoppedMining,
        weir_mine::Error::Output(e) => e.downcast().unwrap_or_else(QueryError::File),
        source => QueryError::Mine { origin: origin.to_owned(), source },
    }
}

/// Inserts the columns that are wanted of rows.
struct LoadedRows<'l> {
    connection: &'l Mutex<Connection>,
    wanted: &'l WantedColumns,
}

impl BatchWriter for LoadedRows<'_> {
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()> {
        let Some(wanted) = self.wanted.of(table) else { return Ok(()) };
        let columns: Vec<(&str, usize)> = table
            .column_names()
            .zip(0..)
            .filter(|(name, _)| *name == "origin" || wanted.contains(name))
            .collect();
        let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES ({places})", table.name(), names.join(", "));
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let insert = || -> rusqlite::Result<()> {
            let mut statement = connection.prepare_cached(&sql)?;
            for row in 0..batch.num_rows() {
                let values = columns.iter().map(|(_, at)| sqlite_value(batch.column(*at), row));
                statement.execute(params_from_iter(values))?;
            }
            Ok(())
        };
        insert().map_err(|e| io::Error::other(of_file(e)))
    }

    /// Does nothing: the tables were empty before.
    fn remove(&mut self, _: &str, _: ReplacedRows) -> io::Result<()> {
        Ok(())
    }
}
