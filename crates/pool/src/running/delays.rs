//! Measures the time from an event to the end of the visit that it has caused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use weir_catalog::{EventKind, PoolEvent};
use weir_events::now_ms;
use weir_serve::Histogram;

/// The upper bounds of the buckets, in milliseconds.
const BOUNDS_MS: [u64; 14] =
    [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000];
/// The most repositories that are waited for at a time.
const WAITING_MAX: usize = 100_000;

/// The delays of events that this process took and whose visits it made.
#[derive(Debug)]
pub struct EventDelays {
    waiting: Mutex<WaitingEvents>,
    /// The delays.
    pub(crate) delays: Histogram<{ BOUNDS_MS.len() }>,
}

impl Default for EventDelays {
    fn default() -> EventDelays {
        EventDelays { waiting: Mutex::default(), delays: Histogram::new(BOUNDS_MS) }
    }
}

/// The time of the first event of each repository, in milliseconds since 1970.
#[derive(Debug, Default)]
struct WaitingEvents {
    /// Those whose visit has not begun.
    due: HashMap<i64, u64>,
    /// Those that are being visited.
    running: HashMap<i64, u64>,
}

impl EventDelays {
    /// Notes that events made repositories due, at times in milliseconds since 1970.
    pub(crate) fn came(&self, events: &[(i64, u64)]) {
        let mut waiting = self.lock();
        for (id, at_ms) in events {
            if waiting.due.len() < WAITING_MAX {
                let first = waiting.due.entry(*id).or_insert(*at_ms);
                *first = (*first).min(*at_ms);
            }
        }
    }

    /// Notes that a visit of repository `id` begins.
    pub fn visit_began(&self, id: i64) {
        let mut waiting = self.lock();
        if let Some(at_ms) = waiting.due.remove(&id) {
            let first = waiting.running.entry(id).or_insert(at_ms);
            *first = (*first).min(at_ms);
        }
    }

    /// Counts the delay, if `event` is the end of a visit that an event has caused. After a failure, the next
    /// visit counts.
    pub fn happened(&self, event: &PoolEvent) {
        let Some(id) = event.subject.as_ref().map(|subject| subject.id) else { return };
        let mut waiting = self.lock();
        match event.kind {
            EventKind::Update(_) | EventKind::Unchanged(_) => {
                if let Some(at_ms) = waiting.running.remove(&id) {
                    drop(waiting);
                    self.delays.observe(now_ms().saturating_sub(at_ms));
                }
            }
            EventKind::Failed(_) => {
                if let Some(at_ms) = waiting.running.remove(&id) {
                    waiting.due.insert(id, at_ms);
                }
            }
            _ => {}
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WaitingEvents> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use weir_catalog::{ArchiveUpdate, EventSubject, VisitFailure};
    use weir_ground::{FailureClass, Timestamp};

    use super::*;

    fn event(kind: EventKind) -> PoolEvent {
        let subject = EventSubject { id: 7, name: "n".to_owned(), url: "u".to_owned() };
        PoolEvent { time: Timestamp(0), subject: Some(subject), kind }
    }

    #[test]
    fn a_delay_lasts_until_a_visit_that_began_later_ends_well() {
        let delays = EventDelays::default();
        let update = event(EventKind::Update(ArchiveUpdate::default()));
        let failed = event(EventKind::Failed(VisitFailure {
            class: FailureClass::Network,
            error: String::new(),
            host: None,
            failed_before: None,
            exceeded: None,
            seconds: 0.0,
        }));
        let count = || delays.delays.cumulative().0.last().unwrap().1;
        delays.visit_began(7);
        delays.came(&[(7, now_ms() - 300), (7, now_ms())]);
        delays.happened(&update);
        assert_eq!(count(), 0, "the visit had begun before");
        delays.visit_began(7);
        delays.happened(&failed);
        assert_eq!(count(), 0);
        delays.visit_began(7);
        delays.happened(&update);
        delays.happened(&update);
        let (buckets, sum) = delays.delays.cumulative();
        assert_eq!((buckets[4], buckets[14]), ((0.25, 0), (f64::INFINITY, 1)));
        assert!((0.3..5.0).contains(&sum), "{sum}");
    }
}
