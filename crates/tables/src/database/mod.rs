//! Tables in a database: PostgreSQL or SQLite.
//!
//! Rows wait in memory, a group of writers at a time. A group that has many takes the one connection, and
//! keeps it and its transaction until its rows are committed or dropped. What was mined of each repository is
//! a row of the same transaction, so that a process that is killed leaves nothing half.

mod connection;
mod ddl;
mod postgres;
mod sqlite;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use weir_git::OidSet;
use weir_mine::{MinedState, ReplacedRows};

use self::connection::SqlConnection;
pub(crate) use self::ddl::{Dialect, create_table, create_views};
pub(crate) use self::sqlite::sqlite_value;
use crate::error::{Error, Result};
use crate::output::MineOutput;
use crate::removal::{OriginEdit, RemovedBy, RowEdit};
use crate::schema::{TableKind, VERSION, check_version};
use crate::settings::{MineSettings, StoredSettings};
use crate::sink::BatchWriter;
use crate::state::OriginState;

/// A group with more bytes than this waiting takes the connection.
const WAITING_BYTES_MAX: usize = 24 << 20;

/// The table of what was mined of repositories.
const OWN_STATES: &str = "weir_mined";
/// The tables in which weir keeps what was mined.
const OWN_TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS weir_dataset (version integer NOT NULL, settings text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS weir_mined (origin text NOT NULL PRIMARY KEY, state text NOT NULL)",
];

/// A database that this process writes to.
pub struct DatabaseStore {
    shared: Arc<Shared>,
    states: HashMap<String, MinedState>,
    next_group: u64,
}

struct Shared {
    /// The name of the database, for messages.
    place: String,
    open: Mutex<OpenConnection>,
    /// Is told when the connection becomes free.
    freed: Condvar,
}

struct OpenConnection {
    connection: Box<dyn SqlConnection>,
    /// The group whose transaction is open.
    owner: Option<u64>,
}

impl DatabaseStore {
    /// Opens the tables behind `client`, in its current schema, or makes them. `place` names the database in
    /// messages. `settings` are what decides which rows there are.
    ///
    /// # Errors
    /// If the database is in use by another mining, was filled with other settings, or fails.
    pub fn postgres(
        mut client: ::postgres::Client,
        place: &str,
        settings: &MineSettings,
    ) -> Result<DatabaseStore> {
        let fail = |source| Error::Database { place: place.to_owned(), source };
        let encoding = postgres::encoding(&mut client).map_err(fail)?;
        if encoding != "UTF8" {
            return Err(Error::OtherEncoding { place: place.to_owned(), encoding });
        }
        if !postgres::prepare(&mut client).map_err(fail)? {
            return Err(Error::InUse(place.into()));
        }
        DatabaseStore::open(Box::new(client), Dialect::Postgres, place, settings)
    }

    /// Opens the tables in the SQLite database `path`, or makes them. `settings` are what decides which rows
    /// there are.
    ///
    /// # Errors
    /// If the file is no SQLite database, is in use by another mining, was filled with other settings, or
    /// cannot be read or written.
    pub fn sqlite(path: &Path, settings: &MineSettings) -> Result<DatabaseStore> {
        let connection = sqlite::SqliteFile::open(path)?;
        DatabaseStore::open(Box::new(connection), Dialect::Sqlite, &path.display().to_string(), settings)
    }

    fn open(
        mut connection: Box<dyn SqlConnection>,
        dialect: Dialect,
        place: &str,
        settings: &MineSettings,
    ) -> Result<DatabaseStore> {
        let fail = |source| Error::Database { place: place.to_owned(), source };
        let tables = TableKind::ALL.iter().map(|&table| create_table(table, dialect, true));
        for sql in OWN_TABLES.into_iter().map(str::to_owned).chain(tables) {
            connection.execute(&sql).map_err(fail)?;
        }
        let own = connection.read_own().map_err(fail)?;
        match own.settings {
            None => {
                let text = StoredSettings::from(settings).to_text();
                connection.put_settings(VERSION, &text).map_err(fail)?;
            }
            Some((version, found)) => {
                check_version(Path::new(place), version)?;
                let found = StoredSettings::parse(&found);
                if !found.are(settings) {
                    let (path, flags) = (place.into(), found.flags());
                    return Err(Error::OtherSettings { path, format: None, flags });
                }
            }
        }
        let read = |(origin, text): (String, String)| {
            let state = serde_json::from_str::<OriginState>(&text).map_err(|e| e.to_string());
            match state.and_then(|state| state.into_state().map_err(str::to_owned)) {
                Ok(state) => Ok((origin, state)),
                Err(why) => Err(Error::BadState { place: place.to_owned(), origin, why }),
            }
        };
        let states = own.states.into_iter().map(read).collect::<Result<_>>()?;
        let open = Mutex::new(OpenConnection { connection, owner: None });
        let shared = Shared { place: place.to_owned(), open, freed: Condvar::new() };
        Ok(DatabaseStore { shared: Arc::new(shared), states, next_group: 0 })
    }

    /// Returns a writer whose rows are committed together with those of its clones.
    fn writer(&mut self) -> DatabaseWriter {
        self.next_group += 1;
        DatabaseWriter { shared: Arc::clone(&self.shared), group: self.next_group, waiting: Arc::default() }
    }
}

impl MineOutput for DatabaseStore {
    type Writer = DatabaseWriter;

    fn writers(&mut self, count: usize) -> Vec<DatabaseWriter> {
        vec![self.writer(); count]
    }

    fn commit(writers: &mut [&mut DatabaseWriter], states: &[(String, MinedState)]) -> Result<()> {
        // All belong to one group.
        writers.first().map_or(Ok(()), |writer| writer.commit(states))
    }

    fn add(&mut self, _: &mut [&mut DatabaseWriter], states: Vec<(String, MinedState)>) -> Result<()> {
        self.states.extend(states);
        Ok(())
    }

    fn discard(&mut self, writer: &mut DatabaseWriter) -> DatabaseWriter {
        writer.discard();
        writer.clone()
    }

    fn wants_commit(writer: &DatabaseWriter) -> bool {
        writer.wants_commit()
    }

    fn state(&self, origin: &str) -> MinedState {
        self.states.get(origin).cloned().unwrap_or_default()
    }

    fn origins(&self) -> Vec<String> {
        self.states.keys().cloned().collect()
    }

    fn edit(&mut self, edits: Vec<OriginEdit>) -> Result<()> {
        let writer = self.writer();
        let steps = edits.iter().cloned().map(WriteStep::Edit);
        writer.waiting.lock().unwrap_or_else(PoisonError::into_inner).steps.extend(steps);
        writer.commit(&[])?;
        for OriginEdit { origin, edit } in edits {
            let state = self.states.remove(&origin);
            if let RowEdit::Rename(name) = edit {
                self.states.extend(state.map(|state| (name, state)));
            }
        }
        Ok(())
    }

    /// Makes the indexes, if they are not there.
    fn finish(&mut self) -> Result<()> {
        let mut open = self.shared.connection();
        open.connection.end_load().map_err(|e| self.shared.error(e))
    }

    fn is_usable(&self) -> bool {
        self.shared.connection().connection.execute("SELECT 1").is_ok()
    }

    fn error(&self, e: io::Error) -> Error {
        e.downcast().unwrap_or_else(|e| self.shared.error(weir_sql::Error::Copy(e)))
    }
}

impl Shared {
    fn connection(&self) -> MutexGuard<'_, OpenConnection> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, source: weir_sql::Error) -> Error {
        Error::Database { place: self.place.clone(), source }
    }

    /// Returns the connection with the transaction of `group`, once no other group has it.
    fn owned_by(&self, group: u64) -> Result<MutexGuard<'_, OpenConnection>> {
        let mut open = self.connection();
        while open.owner.is_some_and(|owner| owner != group) {
            open = self.freed.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        if open.owner.is_none() {
            open.connection.execute("BEGIN").map_err(|e| self.error(e))?;
            open.owner = Some(group);
        }
        Ok(open)
    }

    /// Ends the transaction of `group` with `sql`.
    fn end(&self, mut open: MutexGuard<'_, OpenConnection>, sql: &str) -> Result<()> {
        let ended = open.connection.execute(sql).map_err(|e| self.error(e));
        open.owner = None;
        drop(open);
        self.freed.notify_all();
        ended
    }
}

/// Rows that wait for the connection, and those that they take the place of, in order.
#[derive(Default)]
struct WaitingRows {
    steps: Vec<WriteStep>,
    bytes: usize,
}

enum WriteStep {
    Insert(TableKind, RecordBatch),
    Edit(OriginEdit),
}

/// Writes rows of a group. Clones belong to the same group.
#[derive(Clone)]
pub struct DatabaseWriter {
    shared: Arc<Shared>,
    group: u64,
    waiting: Arc<Mutex<WaitingRows>>,
}

impl DatabaseWriter {
    fn take(&self) -> Vec<WriteStep> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = 0;
        std::mem::take(&mut waiting.steps)
    }

    fn write_all(&self, open: &mut OpenConnection, steps: &[WriteStep]) -> Result<()> {
        let connection = &mut open.connection;
        let mut write = |step: &WriteStep| match step {
            WriteStep::Insert(table, batch) => connection.insert(*table, batch),
            WriteStep::Edit(edit) => change(&mut **connection, edit),
        };
        steps.iter().try_for_each(|step| write(step).map_err(|e| self.shared.error(e)))
    }

    /// Adds all rows of the group to the tables, in one step and durably, with what they hold of
    /// repositories.
    ///
    /// # Errors
    /// If the database fails. The tables are then as they were before.
    fn commit(&self, origins: &[(String, MinedState)]) -> Result<()> {
        let steps = self.take();
        let is_owner = self.shared.connection().owner == Some(self.group);
        if steps.is_empty() && origins.is_empty() && !is_owner {
            return Ok(());
        }
        let mut open = self.shared.owned_by(self.group)?;
        let write = |open: &mut OpenConnection| {
            self.write_all(open, &steps)?;
            origins.iter().filter_map(|(origin, state)| Some((origin, OriginState::of(state)?))).try_for_each(
                |(origin, state)| {
                    let state = serde_json::to_string(&state).expect("maps with texts as keys");
                    open.connection.put_state(origin, &state).map_err(|e| self.shared.error(e))
                },
            )
        };
        match write(&mut open) {
            Ok(()) => self.shared.end(open, "COMMIT"),
            Err(e) => {
                let _ = self.shared.end(open, "ROLLBACK");
                Err(e)
            }
        }
    }

    /// Returns whether so many rows wait, or were written, that a commit is due: others wait for the
    /// connection.
    fn wants_commit(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).bytes;
        waiting > WAITING_BYTES_MAX / 2 || self.shared.connection().owner == Some(self.group)
    }

    /// Drops the rows of the group that are not committed.
    fn discard(&self) {
        self.take();
        let open = self.shared.connection();
        if open.owner == Some(self.group) {
            let _ = self.shared.end(open, "ROLLBACK");
        }
    }
}

impl BatchWriter for DatabaseWriter {
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()> {
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.bytes += batch.get_array_memory_size();
            waiting.steps.push(WriteStep::Insert(table, batch.clone()));
            if waiting.bytes <= WAITING_BYTES_MAX {
                return Ok(());
            }
        }
        let steps = self.take();
        let mut open = self.shared.owned_by(self.group).map_err(io::Error::other)?;
        self.write_all(&mut open, &steps).map_err(io::Error::other)
    }

    fn remove(&mut self, origin: &str, rows: ReplacedRows) -> io::Result<()> {
        let edit = OriginEdit { origin: origin.to_owned(), edit: RowEdit::Replace(rows) };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).steps.push(WriteStep::Edit(edit));
        Ok(())
    }
}

/// Changes rows of all tables.
fn change(connection: &mut dyn SqlConnection, edit: &OriginEdit) -> weir_sql::Result<()> {
    let OriginEdit { origin, edit } = edit;
    let rows = match edit {
        RowEdit::Replace(rows) => rows,
        RowEdit::Forget => {
            TableKind::ALL.iter().try_for_each(|&table| connection.delete(table, origin, None))?;
            return connection.rename(OWN_STATES, origin, None);
        }
        RowEdit::Rename(name) => {
            let tables = TableKind::ALL.iter().map(|table| table.name()).chain([OWN_STATES]);
            return tables.into_iter().try_for_each(|table| connection.rename(table, origin, Some(name)));
        }
    };
    let ids = |set: &OidSet| set.iter().map(|oid| oid.as_bytes().to_vec()).collect::<Vec<_>>();
    let (revisions, releases) = (ids(&rows.revisions), ids(&rows.releases));
    for &table in TableKind::ALL {
        match table.removed_by() {
            RemovedBy::Branch if rows.all_of_branch => connection.delete(table, origin, None)?,
            RemovedBy::Nothing | RemovedBy::Branch => {}
            RemovedBy::Revision(column) => connection.delete(table, origin, Some((column, &revisions)))?,
            RemovedBy::Release(column) => connection.delete(table, origin, Some((column, &releases)))?,
            RemovedBy::Fault if rows.all_faults => connection.delete(table, origin, None)?,
            RemovedBy::Fault => {
                connection.delete(table, origin, Some(("revision", &revisions)))?;
                connection.delete(table, origin, Some(("object", &revisions)))?;
                connection.delete(table, origin, Some(("object", &releases)))?;
            }
        }
    }
    Ok(())
}
