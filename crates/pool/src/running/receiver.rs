//! Takes events from their spool into the catalog, and makes repositories due.

use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_catalog::clock::now;
use weir_catalog::{Catalog, ReceivedEvent, SpoolPosition, Verdict};
use weir_events::{EventSpool, Notice, ReceivedLine, SpoolReader};
use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::error::Result;
use crate::running::hint_finder::HintFinder;
use crate::running::pool::Pool;

/// How many events are taken in one transaction.
const BATCH: usize = 10_000;
/// How long to wait for a catalog that failed.
const RETRY: Duration = Duration::from_secs(1);
/// The time between two transactions under load.
const BETWEEN: Duration = Duration::from_millis(150);
/// How often the thread checks whether it is to stop.
const WAIT: Duration = Duration::from_millis(200);

/// The thread that takes events from a spool. When it is dropped, it takes what is there, and ends.
pub struct EventReceiver {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl EventReceiver {
    /// Starts to take what comes into `spool`. The sleepers on `wake` are nudged when a repository is due
    /// because of it.
    ///
    /// # Errors
    /// If the catalog or a thread cannot be had.
    pub fn start(pool: &Pool, spool: &mut EventSpool, wake: &Stop) -> Result<EventReceiver> {
        let catalog = pool.another_catalog()?;
        let id = format!("{:016x}", spool.id());
        let position = catalog.spool_position(&id)?;
        let stop = Stop::default();
        let worker = ReceiverWorker {
            catalog,
            reader: spool.reader(position),
            place: SpoolPosition { spool: id, position },
            finder: HintFinder::default(),
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
    finder: HintFinder,
    wake: Stop,
    stop: Stop,
}

impl ReceiverWorker {
    fn run(mut self) {
        loop {
            let mut events = Vec::new();
            let read = self.reader.read(BATCH, &mut |_, record| events.extend(unjudged(record)));
            match read {
                Ok(0) if self.stop.is_stopped() => return,
                Ok(0) => drop(self.reader.wait(WAIT)),
                Ok(read) => {
                    self.place.position = self.reader.position();
                    if !self.take(events) {
                        return;
                    }
                    // Under load, fewer and larger transactions: a single event waits for none.
                    if (2..BATCH).contains(&read) {
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

    /// Takes events into the catalog, as soon as it can. Returns false if it is to stop: they stay in the
    /// spool then.
    fn take(&mut self, mut events: Vec<ReceivedEvent>) -> bool {
        let mut is_told = false;
        while let Err(e) = self.try_to_take(&mut events) {
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
        if let Err(e) = self.catalog.sync_received(&self.place) {
            tracing::warn!("cannot sync the events in the catalog, the spool keeps them: {e}");
            return;
        }
        if let Err(e) = self.reader.release(self.place.position) {
            tracing::warn!("cannot delete what is done with from the spool of events: {e}");
        }
    }

    fn try_to_take(&mut self, events: &mut [ReceivedEvent]) -> Result<()> {
        let due = judge(&self.catalog, &mut self.finder, events)?;
        self.catalog.take_received(Some(&self.place), events, &due, now())?;
        if !due.is_empty() {
            self.wake.nudge();
        }
        Ok(())
    }
}

/// Says what becomes of each event. Returns the numbers of the repositories that are due.
fn judge(catalog: &Catalog, finder: &mut HintFinder, events: &mut [ReceivedEvent]) -> Result<Vec<i64>> {
    // Many events are about few repositories: each name is looked for once.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut wanted: Vec<Vec<usize>> = Vec::with_capacity(events.len());
    for event in events.iter_mut() {
        let mut of_event = Vec::new();
        match Notice::parse(event.line.as_bytes()) {
            Ok(notice) => {
                (event.verdict, event.subject) = (Verdict::Unknown, notice.names[0].clone().into_owned());
                for name in notice.names {
                    let next = places.len();
                    of_event.push(*places.entry(name.into_owned()).or_insert(next));
                }
            }
            Err(why) => (event.verdict, event.subject) = (Verdict::Bad, why),
        }
        wanted.push(of_event);
    }
    let mut names: Vec<&str> = vec![""; places.len()];
    places.iter().for_each(|(name, place)| names[*place] = name);
    let found = finder.find(catalog, &names)?;
    let mut due = Vec::new();
    for (event, of_event) in events.iter_mut().zip(wanted) {
        let Some(place) = of_event.into_iter().find(|place| !found[*place].is_empty()) else { continue };
        names[place].clone_into(&mut event.subject);
        event.verdict = Verdict::Due;
        due.extend(&found[place]);
    }
    due.sort_unstable();
    due.dedup();
    Ok(due)
}

/// Takes `events` again, as new ones. Returns them with what became of each now.
///
/// # Errors
/// If the catalog fails.
pub fn replay(catalog: &mut Catalog, events: &[ReceivedEvent]) -> Result<Vec<ReceivedEvent>> {
    let mut again = events.to_vec();
    for event in &mut again {
        event.at_ms = now().0.saturating_mul(1000);
        event.peer = format!("replay of {}", event.id);
    }
    let due = judge(catalog, &mut HintFinder::default(), &mut again)?;
    catalog.take_received(None, &again, &due, now())?;
    Ok(again)
}

/// Returns the event of a record, of which nothing is said yet.
fn unjudged(record: &[u8]) -> Option<ReceivedEvent> {
    let ReceivedLine { at_ms, peer, line } = ReceivedLine::parse(record)?;
    Some(ReceivedEvent {
        id: 0,
        at_ms: i64::try_from(at_ms).unwrap_or(i64::MAX),
        peer: peer.to_owned(),
        line: String::from_utf8_lossy(line).replace('\0', "\u{fffd}"),
        verdict: Verdict::Bad,
        subject: String::new(),
    })
}
