//! Gives lines to one group of programs.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use weir_catalog::{Catalog, RejectedEvent};
use weir_collect::{EventWorkers, FinishedLine, WorkerLine, WorkerSpec};
use weir_events::ReceivedLine;
use weir_ground::Stop;

use crate::error::Result;
use crate::running::collectors::log::{AGAIN, LOOK_EVERY, RETRY, events_of, rejected};

/// How often the catalog is told how far the programs are.
const SETTLE_EVERY: Duration = Duration::from_millis(500);

/// The thread that gives lines to a group of programs.
pub(super) struct WorkerThreads {
    catalog: Catalog,
    spec: WorkerSpec,
    stop: Stop,
    /// The events that programs have, with their records.
    given: BTreeMap<i64, Vec<u8>>,
    /// Those of them that were rejected before.
    again: BTreeMap<i64, Vec<u8>>,
    /// Events that programs rejected, and that the catalog does not have yet.
    refused: Vec<RejectedEvent>,
    /// Events that were rejected before, and that a program has taken now.
    taken: Vec<i64>,
    /// The last event that was given, or passed over; and the last that all are done with, as the catalog
    /// has it.
    position: i64,
    settled: i64,
    settled_at: Option<Instant>,
}

impl WorkerThreads {
    pub(super) fn new(catalog: Catalog, spec: WorkerSpec, stop: Stop) -> WorkerThreads {
        WorkerThreads {
            catalog,
            spec,
            stop,
            given: BTreeMap::new(),
            again: BTreeMap::new(),
            refused: Vec::new(),
            taken: Vec::new(),
            position: 0,
            settled: 0,
            settled_at: None,
        }
    }

    /// Gives lines until it is to end.
    pub(super) fn run(mut self) {
        let name = self.spec.name.clone();
        let (sender, finished) = channel();
        let mut workers = match EventWorkers::start(&self.spec, &sender) {
            Ok(workers) => workers,
            Err(e) => return tracing::error!("cannot start the worker '{name}': {e}"),
        };
        let (mut is_open, mut is_told) = (false, false);
        while !self.stop.is_stopped() {
            let step = match is_open {
                true => self.step(&mut workers, &finished),
                false => self.catalog.received().collected(&name).map_err(Into::into).map(|position| {
                    (self.position, self.settled, is_open) = (position, position, true);
                }),
            };
            match step {
                Ok(()) => is_told = false,
                Err(e) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::error!("cannot give events to the worker '{name}', they wait: {e}");
                    }
                    self.stop.sleep(RETRY);
                }
            }
        }
        // The programs answer what they have, or the lines come again.
        drop(workers);
        self.take(finished.try_iter());
        if let Err(e) = self.settle() {
            tracing::warn!("cannot note how far the worker '{name}' is: {e}");
        }
    }

    /// Records answers of the programs, and gives them the next lines.
    fn step(&mut self, workers: &mut EventWorkers, finished: &Receiver<FinishedLine>) -> Result<()> {
        self.take(finished.try_iter());
        if self.settled_at.is_none_or(|at| at.elapsed() > SETTLE_EVERY) {
            self.settle()?;
            self.settled_at = Some(Instant::now());
            for event in self.catalog.received().rejected_again(&self.spec.name, AGAIN)? {
                if self.again.contains_key(&event.event) {
                    continue;
                }
                if let Some(line) = line_of(event.event, &event.record) {
                    self.again.insert(event.event, event.record);
                    workers.give(line, &self.stop);
                }
            }
        }
        let batches = self.catalog.received().after(self.position, 1)?;
        let mut is_idle = true;
        for (id, record) in events_of(&self.spec.name, &batches, self.position) {
            is_idle = false;
            if let Some(line) = line_of(id, record).filter(|line| self.spec.filter.takes(&line.line)) {
                self.given.insert(id, record.to_vec());
                if !workers.give(line, &self.stop) {
                    return Ok(());
                }
            }
            self.position = id;
        }
        if is_idle && let Ok(first) = finished.recv_timeout(LOOK_EVERY) {
            self.take(std::iter::once(first));
        }
        Ok(())
    }

    /// Records the answers of the programs.
    fn take(&mut self, finished: impl Iterator<Item = FinishedLine>) {
        for FinishedLine { line: WorkerLine { id, .. }, failure } in finished {
            let is_again = self.again.contains_key(&id);
            let record = self.again.remove(&id).or_else(|| self.given.remove(&id)).unwrap_or_default();
            match failure {
                Some(why) => self.refused.push(rejected(&self.spec.name, id, &record, why)),
                None if is_again => self.taken.push(id),
                None => {}
            }
        }
    }

    /// Stores rejected events, and the position behind the last line that has an answer.
    fn settle(&mut self) -> Result<()> {
        let name = &self.spec.name;
        if !self.refused.is_empty() {
            self.catalog.received().reject(&self.refused)?;
            self.refused.clear();
        }
        if !self.taken.is_empty() {
            self.catalog.received().drop_rejected(Some(name), &self.taken)?;
            self.taken.clear();
        }
        let done = self.given.keys().next().map_or(self.position, |first| first - 1);
        if done > self.settled {
            self.catalog.received().set_collected(name, done)?;
            self.settled = done;
        }
        Ok(())
    }
}

fn line_of(id: i64, record: &[u8]) -> Option<WorkerLine> {
    Some(WorkerLine { id, line: ReceivedLine::parse(record)?.line.to_vec() })
}
