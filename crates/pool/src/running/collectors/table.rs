//! Fills one table.

use std::time::{Duration, Instant};

use weir_catalog::{Catalog, RejectedEvent};
use weir_collect::{EventRow, TableError};
use weir_events::ReceivedLine;
use weir_ground::Stop;
use weir_settings::TableCollector;

use crate::running::collectors::log::{AGAIN, LOOK_EVERY, RETRY, events_of, rejected};

/// Batches of events that are read at once.
const BATCHES: usize = 4;
/// The position is written when it has moved by so many events that are not for the table.
const PASSED_OVER_MAX: i64 = 10_000;
/// The least time between two notes in the catalog that say how far the table is.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// Why a table is not filled.
#[derive(Debug, thiserror::Error)]
enum FillError {
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
    #[error(transparent)]
    Table(#[from] TableError),
    /// The table has more events than the catalog ever had.
    #[error(
        "the table '{name}' has events up to number {position}, and the catalog only up to {last}: it is an \
         older one. Choose another name for the table, or delete its row in weir_positions, and its rows \
         above {last}"
    )]
    OlderCatalog { name: String, position: i64, last: i64 },
}

/// The thread of one table.
pub(super) struct TableThread {
    catalog: Catalog,
    name: String,
    collector: TableCollector,
    stop: Stop,
    /// How far it is, and how far its database says that it is.
    position: Option<(i64, i64)>,
    /// The last note in the catalog that says how far it is, and its time.
    noted: Option<(i64, Instant)>,
}

impl TableThread {
    pub(super) fn new(catalog: Catalog, name: &str, collector: TableCollector, stop: Stop) -> TableThread {
        TableThread { catalog, name: name.to_owned(), collector, stop, position: None, noted: None }
    }

    /// Fills the table until it is to end.
    pub(super) fn run(mut self) {
        let mut told: Option<String> = None;
        while !self.stop.is_stopped() {
            match self.step() {
                Ok(is_idle) => {
                    if told.take().is_some() {
                        tracing::warn!("the table '{}' is filled again", self.name);
                    }
                    if is_idle {
                        self.stop.sleep(LOOK_EVERY);
                    }
                }
                Err(e) => {
                    let why = e.to_string();
                    if told.as_ref() != Some(&why) {
                        tracing::error!("cannot fill a table, events wait for it: {why}");
                        told = Some(why);
                    }
                    self.stop.sleep(RETRY);
                }
            }
        }
        if let Some((position, _)) = self.position {
            // The catalog may be away: it keeps events a little longer then.
            let _ = self.catalog.received().set_collected(&self.name, position);
        }
    }

    /// Appends the events that the table has not read. Returns whether there were none.
    fn step(&mut self) -> Result<bool, FillError> {
        let (position, written) = match self.position {
            Some(places) => places,
            None => {
                let position = self.collector.table.position()?;
                let last = self.catalog.received().last()?;
                if position > last {
                    return Err(FillError::OlderCatalog { name: self.name.clone(), position, last });
                }
                (position, position)
            }
        };
        self.position = Some((position, written));
        let is_idle = !self.try_again()?;
        let batches = self.catalog.received().after(position, BATCHES)?;
        let events: Vec<(i64, &[u8])> = events_of(&self.name, &batches, position).collect();
        self.note(position)?;
        let Some(&(last, _)) = events.last() else { return Ok(is_idle) };
        let is_far = last - written > PASSED_OVER_MAX;
        let appended = self.append(&events, Some(last), is_far)?;
        self.position = Some((last, if appended { last } else { written }));
        Ok(false)
    }

    /// Notes in the catalog that the table has read the events up to number `position`, if the last note is
    /// another one and is old enough.
    fn note(&mut self, position: i64) -> Result<(), FillError> {
        if self.noted.is_none_or(|(noted, at)| noted != position && at.elapsed() >= NOTE_EVERY) {
            self.catalog.received().set_collected(&self.name, position)?;
            self.noted = Some((position, Instant::now()));
        }
        Ok(())
    }

    /// Takes rejected events again, if somebody asked for it. Returns whether there were any.
    fn try_again(&mut self) -> Result<bool, FillError> {
        let again = self.catalog.received().rejected_again(&self.name, AGAIN)?;
        if again.is_empty() {
            return Ok(false);
        }
        let events: Vec<(i64, &[u8])> = again.iter().map(|e| (e.event, e.record.as_slice())).collect();
        self.append(&events, None, true)?;
        // An event that was rejected again has lost its mark; those that still have it were appended.
        let left = self.catalog.received().rejected_again(&self.name, AGAIN)?;
        let taken: Vec<i64> =
            left.iter().map(|e| e.event).filter(|id| events.iter().any(|e| e.0 == *id)).collect();
        if !taken.is_empty() {
            self.catalog.received().drop_rejected(Some(&self.name), &taken)?;
        }
        Ok(true)
    }

    /// Appends rows of `events`, and stores the events that do not fit as rejected. Writes nothing to the
    /// database if there are no rows, unless `always`. Returns whether it has written.
    fn append(
        &mut self,
        events: &[(i64, &[u8])],
        position: Option<i64>,
        always: bool,
    ) -> Result<bool, FillError> {
        let (mut rows, mut refused): (Vec<EventRow<'_>>, Vec<RejectedEvent>) = Default::default();
        for &(id, record) in events {
            let Some(ReceivedLine { at_ms, peer, line }) = ReceivedLine::parse(record) else { continue };
            if !self.collector.filter.takes(line) {
                continue;
            }
            match self.collector.parser.parse(line) {
                Ok(cells) => rows.push(EventRow { id, at_ms, peer, cells }),
                Err(why) => refused.push(rejected(&self.name, id, record, why.to_string())),
            }
        }
        loop {
            if !refused.is_empty() {
                self.catalog.received().reject(&refused)?;
                refused.clear();
            }
            if rows.is_empty() && !always {
                return Ok(false);
            }
            match self.collector.table.append(&rows, position) {
                Ok(()) => return Ok(true),
                Err(TableError::Rows(bad)) => {
                    for row in bad {
                        rows.retain(|kept| kept.id != row.id);
                        let record = events.iter().find(|(id, _)| *id == row.id).map_or(&[][..], |e| e.1);
                        refused.push(rejected(&self.name, row.id, record, row.why));
                    }
                }
                Err(e @ TableError::Database(_)) => return Err(e.into()),
            }
        }
    }
}
