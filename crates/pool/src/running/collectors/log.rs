//! Reads the log of events from outside, for a table or a worker.

use std::time::Duration;

use weir_catalog::clock::now;
use weir_catalog::{ReceivedBatch, RejectedEvent};

/// How often to look for new events.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long to wait for a database that failed.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// Rejected events that are tried again at once.
pub(super) const AGAIN: usize = 1000;

/// Returns the events of `batches` with numbers above `position`: their numbers and records. Tells of events
/// that are gone.
pub(super) fn events_of<'b>(
    name: &str,
    batches: &'b [ReceivedBatch],
    position: i64,
) -> impl Iterator<Item = (i64, &'b [u8])> + use<'b> {
    if let Some(first) = batches.first().map(|batch| batch.first)
        && position > 0
        && first > position + 1
    {
        let gone = first - position - 1;
        tracing::error!("{gone} events were deleted before '{name}' took them: see events.keep");
    }
    let all = batches.iter().flat_map(ReceivedBatch::events);
    all.filter(move |(id, ..)| *id > position).map(|(id, record, _)| (id, record))
}

/// Returns an event that `collector` did not take.
pub(super) fn rejected(collector: &str, event: i64, record: &[u8], reason: String) -> RejectedEvent {
    RejectedEvent { collector: collector.to_owned(), event, record: record.to_vec(), at: now(), reason }
}
