//! A reader of the log of events, which tells a hook of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_catalog::{Catalog, EventReader, LoggedEvent};
use weir_ground::Stop;

pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Events read from the catalog at a time.
const BATCH: usize = 100;
/// The number of events for other readers after which a reader writes its position in the log.
const PASSED_OVER_MAX: i64 = 1000;

/// Passes events on to the receiver of a hook.
pub(super) trait HookTeller: Send {
    /// Tells of an event. Returns false if it must be told later.
    fn tell(&mut self, catalog: &Catalog, event: &LoggedEvent) -> bool;

    /// Ends the program, if one runs.
    fn end(&mut self) {}
}

/// A thread of a hook.
pub(super) struct HookWorker {
    pub(super) catalog: Catalog,
    pub(super) reader: EventReader,
    pub(super) teller: Box<dyn HookTeller>,
    /// Whether this process tells.
    pub(super) is_locked: Arc<AtomicBool>,
    pub(super) stop: Stop,
}

impl HookWorker {
    /// Tells of events until `stop` is requested, once `take_lock` succeeds in this worker or another one.
    pub(super) fn run(mut self, take_lock: impl Fn() -> bool) {
        while !self.is_locked.load(Ordering::Relaxed) && !self.stop.is_stopped() {
            if take_lock() {
                self.is_locked.store(true, Ordering::Relaxed);
            } else {
                self.stop.sleep(LOOK_EVERY);
            }
        }
        let mut places: Option<(i64, i64)> = None;
        while !self.stop.is_stopped() {
            let told = match places {
                None => self.catalog.events().open_reader(&self.reader).map(|at| {
                    places = Some((at, at));
                    1
                }),
                Some(ref mut places) => self.tell_all(places),
            };
            match told {
                Ok(0) => drop(self.stop.sleep(LOOK_EVERY)),
                Ok(_) => {}
                Err(e) => {
                    tracing::error!("cannot pass events to the hook '{}': {e}", self.reader.name);
                    self.stop.sleep(Duration::from_secs(10));
                }
            }
        }
        // Another number of workers begins behind what all have done, and repeats nothing.
        if let Some((position, _)) = places
            && let Err(e) = self.settle(position)
        {
            tracing::warn!("cannot note how far the hook '{}' is: {e}", self.reader.name);
        }
        self.teller.end();
    }

    /// Moves the position to the end of the log, if nothing before that is for this worker.
    fn settle(&self, position: i64) -> weir_catalog::Result<()> {
        let last = self.catalog.events().last()?;
        match self.catalog.events().after(&self.reader, position, 1)?.is_empty() {
            true => self.catalog.events().set_position(&self.reader, last),
            false => Ok(()),
        }
    }

    /// Tells of the events after the position, and moves it. `places` are the position, and the one that was
    /// written last.
    fn tell_all(&mut self, (position, written): &mut (i64, i64)) -> weir_catalog::Result<usize> {
        let last = self.catalog.events().last()?;
        let events = self.catalog.events().after(&self.reader, *position, BATCH)?;
        let count = events.len();
        for event in events {
            if !self.teller.tell(&self.catalog, &event) {
                return Ok(count);
            }
            self.catalog.events().set_position(&self.reader, event.id)?;
            (*position, *written) = (event.id, event.id);
        }
        if count == 0 {
            *position = last.max(*position);
            if *position - *written > PASSED_OVER_MAX {
                self.catalog.events().set_position(&self.reader, *position)?;
                *written = *position;
            }
        }
        Ok(count)
    }
}
