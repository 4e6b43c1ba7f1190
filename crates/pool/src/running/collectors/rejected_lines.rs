//! Lists the lines that tables and workers rejected.

use serde::Serialize;
use weir_catalog::{Catalog, RejectedEvent};
use weir_events::ReceivedLine;
use weir_ground::Timestamp;

use crate::error::Result;
use crate::running::received::without_passwords;

/// A line that a table or a worker rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectedLine {
    /// The number of the event.
    pub id: i64,
    /// The table or worker.
    pub collector: String,
    /// When it was rejected, in seconds since 1970.
    pub rejected: Timestamp,
    /// The reason.
    pub reason: String,
    /// Who sent it.
    pub peer: String,
    /// The line, without passwords.
    pub line: String,
}

/// Returns the last `max` lines that were rejected, by `collector` if it is given, oldest first.
///
/// # Errors
/// If the catalog fails.
pub fn rejected_lines(catalog: &Catalog, collector: Option<&str>, max: usize) -> Result<Vec<RejectedLine>> {
    let line = |event: RejectedEvent| {
        let ReceivedLine { peer, line, .. } = ReceivedLine::parse(&event.record)?;
        let line = without_passwords(&String::from_utf8_lossy(line));
        let RejectedEvent { collector, event: id, at: rejected, reason, .. } = event;
        Some(RejectedLine { id, collector, rejected, reason, peer: peer.to_owned(), line })
    };
    let mut lines: Vec<RejectedLine> =
        catalog.received().rejected(collector, max)?.into_iter().filter_map(line).collect();
    lines.reverse();
    Ok(lines)
}
