//! Tables of a repository as its refs are now, mined for whoever asks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use weir_ground::{Stop, Timestamp};
use weir_mine::{MineOptions, MineProgress, MinedState, PresentTips, ReplacedRows, Tips, mine_visits};
use weir_repo::Repo;

use crate::format::{RowFormat, TableWriter};
use crate::schema::TableKind;
use crate::sink::{BatchWriter, MiningRow, TableSink, mine_into};

/// The columns that are wanted, by table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedColumns(BTreeMap<TableKind, BTreeSet<&'static str>>);

impl WantedColumns {
    /// Adds a table, and the column of it that is called `name`, in any case, if there is one.
    pub fn add(&mut self, table: TableKind, name: &str) {
        let columns = self.0.entry(table).or_default();
        columns.extend(table.column_names().find(|column| column.eq_ignore_ascii_case(name)));
    }

    /// Adds a table with all of its columns.
    pub fn add_all(&mut self, table: TableKind) {
        self.set(table, table.column_names());
    }

    /// Sets the columns of a table.
    pub(crate) fn set(&mut self, table: TableKind, columns: impl Iterator<Item = &'static str>) {
        self.0.insert(table, columns.collect());
    }

    /// Adds what is in `other`.
    pub(crate) fn join(&mut self, other: &WantedColumns) {
        for (table, columns) in &other.0 {
            self.0.entry(*table).or_default().extend(columns);
        }
    }

    /// Returns the tables, with their columns.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (TableKind, &BTreeSet<&'static str>)> {
        self.0.iter().map(|(table, columns)| (*table, columns))
    }

    /// Returns whether there are no tables.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the columns of `table`, if the table is wanted.
    pub(crate) fn of(&self, table: TableKind) -> Option<&BTreeSet<&'static str>> {
        self.0.get(&table)
    }

    fn has_any(&self, tables: &[TableKind]) -> bool {
        tables.iter().any(|table| self.0.contains_key(table))
    }

    /// Returns how to mine, so that no more is done than the columns need.
    fn options(&self) -> MineOptions {
        // Both tell of all that is mined.
        let wants_all = self.has_any(&[TableKind::Mining, TableKind::MiningError]);
        let of_changes = self.of(TableKind::FileChange);
        let counts = ["insertions", "deletions", "is_binary", "is_unavailable"];
        let has_lines = of_changes.is_some_and(|columns| counts.iter().any(|name| columns.contains(name)));
        let of_commits = [
            TableKind::Revision,
            TableKind::RevisionHistory,
            TableKind::RevisionExtraHeader,
            TableKind::Release,
            TableKind::DefaultBranch,
        ];
        MineOptions {
            has_revisions: wants_all || self.has_any(&of_commits),
            has_changes: wants_all || of_changes.is_some(),
            has_lines: wants_all || has_lines,
            ..MineOptions::default()
        }
    }
}

/// A repository whose tables somebody asks for.
pub struct PresentRepository<'r> {
    /// The repository.
    pub repo: &'r Repo,
    /// Its name in the tables.
    pub origin: &'r str,
    /// The address of its upstream.
    pub url: Option<&'r str>,
    /// The time now.
    pub now: Timestamp,
}

/// Mines the tables of `wanted`: all that the refs of a repository reach now, whatever they reached before.
/// `origin_visit` and `ref_change` tell of all states that the refs had. Uses one thread for each of `sinks`,
/// which get rows of other tables, too.
///
/// # Errors
/// If the repository cannot be read at all, a sink fails, or `stop` was requested.
pub fn mine_present<W: BatchWriter>(
    source: &PresentRepository<'_>,
    wanted: &WantedColumns,
    sinks: &[Mutex<TableSink<W>>],
    stop: &Stop,
) -> weir_mine::Result<()> {
    for sink in sinks {
        sink.lock().unwrap_or_else(PoisonError::into_inner).set_origin(source.origin);
    }
    let first = || sinks[0].lock().unwrap_or_else(PoisonError::into_inner);
    if wanted.has_any(&[TableKind::OriginVisit, TableKind::RefChange]) {
        mine_visits(source.repo, &MinedState::default(), source.now, &mut *first())?;
    }
    let options = wanted.options();
    if options.has_revisions || options.has_changes {
        let present = PresentTips::of(source.repo);
        let tips =
            Tips { wanted: &present.wanted, faults: &present.faults, head: present.head, ..Tips::default() };
        let report = mine_into(source.repo, tips, &options, sinks, &MineProgress::default(), stop)?;
        first().mining(&MiningRow::of(source.repo, source.url, source.now, report))?;
    }
    for sink in sinks {
        sink.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
    }
    Ok(())
}

/// Writes the columns `columns` of a table of a repository to `out`, in the order of the table, as
/// [`mine_present`] mines it.
///
/// # Errors
/// If the repository cannot be read at all, `out` fails, or `stop` was requested.
pub fn write_table(
    source: &PresentRepository<'_>,
    table: TableKind,
    columns: &BTreeSet<&'static str>,
    format: RowFormat,
    out: &mut (dyn Write + Send),
    stop: &Stop,
) -> weir_mine::Result<()> {
    let places: Vec<usize> =
        table.column_names().zip(0..).filter(|(name, _)| columns.contains(name)).map(|(_, at)| at).collect();
    let schema = Arc::new(table.schema().project(&places).expect("these columns are there"));
    let writer = TableWriter::new(out, table, &schema, format)?;
    let mut wanted = WantedColumns::default();
    wanted.set(table, columns.iter().copied());
    let sink = Mutex::new(TableSink::new(TableRowsWriter { table, places, writer }));
    mine_present(source, &wanted, std::slice::from_ref(&sink), stop)?;
    let sink = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
    sink.into_writer().writer.finish()?.flush()?;
    Ok(())
}

/// Writes some columns of one table.
struct TableRowsWriter<W: Write> {
    table: TableKind,
    /// The places of the columns.
    places: Vec<usize>,
    writer: TableWriter<W>,
}

impl<W: Write + Send> BatchWriter for TableRowsWriter<W> {
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()> {
        if table != self.table {
            return Ok(());
        }
        let batch = batch.project(&self.places).map_err(io::Error::other)?;
        self.writer.write(&batch)
    }

    /// Does nothing: there were no rows before.
    fn remove(&mut self, _: &str, _: ReplacedRows) -> io::Result<()> {
        Ok(())
    }
}
