//! Takes events from their spool into the catalog, and makes repositories due.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_catalog::{Catalog, ReceivedBatch, SpoolPosition};
use weir_events::{EventSpool, ReceivedLine, SpoolReader, now_ms};
use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::error::Result;
use crate::running::delays::EventDelays;
use crate::running::judge::EventJudge;
use crate::running::pool::Pool;
use crate::running::received::{REPLAYED, ReceivedEvent, Verdict};

/// How many events, and bytes of them, are taken in one transaction, or a few more.
const BATCH: usize = 10_000;
const BATCH_BYTES: usize = 1 << 20;
/// The time between two transactions under load.
const BETWEEN: Duration = Duration::from_millis(150);
/// How long to wait for a catalog that failed.
const RETRY: Duration = Duration::from_secs(1);
/// How often the thread checks whether it is to stop.
const WAIT: Duration = Duration::from_millis(200);

/// The thread that takes events from a spool. When it is dropped, it takes what is there, and ends.
pub struct EventReceiver {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl EventReceiver {
    /// Starts to take what comes into `spool`. The sleepers on `wake` are nudged when a repository is due
    /// because of it, and `delays` learns of it.
    ///
    /// # Errors
    /// If the catalog or a thread cannot be had.
    pub fn start(
        pool: &Pool,
        spool: &mut EventSpool,
        wake: &Stop,
        delays: &Arc<EventDelays>,
    ) -> Result<EventReceiver> {
        let catalog = pool.another_catalog()?;
        let id = format!("{:016x}", spool.id());
        let position = catalog.received().spool_position(&id)?;
        let stop = Stop::default();
        let worker = ReceiverWorker {
            catalog,
            reader: spool.reader(position),
            place: SpoolPosition { spool: id, position },
            judge: EventJudge::new(pool),
            delays: delays.clone(),
            wake: wake.clone(),
            stop: stop.clone(),
        };
        let thread = spawn("received", move || worker.run())?;
        Ok(EventReceiver { stop, thread: Some(thread) })
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct ReceiverWorker {
    catalog: Catalog,
    reader: SpoolReader,
    place: SpoolPosition,
    judge: EventJudge,
    delays: Arc<EventDelays>,
    wake: Stop,
    stop: Stop,
}

impl ReceiverWorker {
    fn run(mut self) {
        let mut batch = ReceivedBatch::default();
        loop {
            batch.clear();
            match self.read(&mut batch) {
                Ok(()) if batch.is_empty() => {
                    if self.stop.is_stopped() {
                        return;
                    }
                    self.release();
                    self.reader.wait(WAIT);
                }
                Ok(()) => {
                    self.place.position = self.reader.position();
                    if !self.take(&mut batch) {
                        return;
                    }
                    // Under load, fewer and larger transactions: a single event waits for none.
                    if batch.len() > 1 && !is_large(&batch) {
                        self.stop.sleep(BETWEEN);
                    }
                }
                Err(e) => {
                    tracing::error!("cannot read the spool of events: {e}");
                    if !self.stop.sleep(RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// Reads the next batch.
    fn read(&mut self, batch: &mut ReceivedBatch) -> std::result::Result<(), weir_events::SpoolError> {
        while !is_large(batch) {
            if self.reader.read(1, &mut |_, record| batch.push(record, 0))? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Takes events into the catalog, as soon as it can. Returns false if it is to stop: they stay in the
    /// spool then.
    fn take(&mut self, batch: &mut ReceivedBatch) -> bool {
        let mut is_told = false;
        while let Err(e) = self.try_to_take(batch) {
            if !std::mem::replace(&mut is_told, true) {
                tracing::error!("cannot take events into the catalog, they wait in the spool: {e}");
            }
            if !self.stop.sleep(RETRY) {
                return false;
            }
        }
        if is_told {
            tracing::warn!("events are taken into the catalog again");
        }
        self.release();
        true
    }

    /// Deletes the segments of the spool that are done with, once the catalog surely has what was in them.
    fn release(&mut self) {
        if !self.reader.can_release(self.place.position) {
            return;
        }
        if let Err(e) = self.catalog.received().sync(&self.place) {
            tracing::warn!("cannot sync the events in the catalog, the spool keeps them: {e}");
            return;
        }
        if let Err(e) = self.reader.release(self.place.position) {
            tracing::warn!("cannot delete what is done with from the spool of events: {e}");
        }
    }

    fn try_to_take(&mut self, batch: &mut ReceivedBatch) -> Result<()> {
        let judged = self.judge.judge(&self.catalog, batch)?;
        // A visit may begin as soon as the repository is due.
        self.delays.came(&judged.due_since);
        self.catalog.received().take(Some(&self.place), batch, &judged.effect)?;
        if !judged.effect.due.is_empty() {
            self.wake.nudge();
        }
        Ok(())
    }
}

/// Returns whether a batch is as large as one transaction takes.
fn is_large(batch: &ReceivedBatch) -> bool {
    batch.len() >= BATCH || batch.records.len() >= BATCH_BYTES
}

/// Takes `events` again, as new ones. Returns how many of them name a repository now.
///
/// # Errors
/// If the catalog fails.
pub fn replay(pool: &mut Pool, events: &[ReceivedEvent]) -> Result<usize> {
    let at_ms = now_ms();
    let peers: Vec<String> = events.iter().map(|event| format!("{REPLAYED}{}", event.id)).collect();
    let lines = events.iter().zip(&peers);
    take_lines(pool, lines.map(|(event, peer)| ReceivedLine { at_ms, peer, line: &event.raw }))
}

/// Takes lines into the catalog. Returns how many of them name a repository.
pub(crate) fn take_lines<'l>(
    pool: &mut Pool,
    lines: impl Iterator<Item = ReceivedLine<'l>>,
) -> Result<usize> {
    let mut batch = ReceivedBatch::default();
    lines.for_each(|line| batch.push(&line.to_bytes(), 0));
    if batch.is_empty() {
        return Ok(0);
    }
    let judged = EventJudge::new(pool).judge(&pool.catalog, &mut batch)?;
    pool.catalog.received().take(None, &batch, &judged.effect)?;
    let names_one = |verdict: &&u8| [Verdict::Due as u8, Verdict::Added as u8].contains(*verdict);
    Ok(batch.verdicts.iter().filter(names_one).count())
}
