//! Reads the events that senders sent from the catalog.

use std::collections::HashSet;

use serde::Serialize;
use weir_catalog::{Catalog, ReceivedBatch};
use weir_events::{Notice, ReceivedLine};

use crate::error::Result;

/// How many events are searched for deliveries of webhooks.
/// The peer of an event that was taken again, before its number.
pub(crate) const REPLAYED: &str = "replay of ";
const DELIVERIES: usize = 10_000;
/// How many batches are read at once.
const BATCHES: usize = 32;

/// The verdict on an event from outside. The catalog stores the numbers: none ever gets another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A repository is due because of it.
    Due = 1,
    /// It names no repository that is mirrored here.
    Unknown = 2,
    /// It cannot be understood.
    Bad = 3,
    /// It names no repository that is mirrored here, but a table or a worker takes it.
    Collected = 4,
    /// It names a repository that is mirrored from now on, because `events.add` wants it.
    Added = 5,
}

impl Verdict {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Due => "due",
            Verdict::Unknown => "unknown",
            Verdict::Bad => "bad",
            Verdict::Collected => "collected",
            Verdict::Added => "added",
        }
    }

    fn of(number: u8) -> Verdict {
        match number {
            1 => Verdict::Due,
            2 => Verdict::Unknown,
            4 => Verdict::Collected,
            5 => Verdict::Added,
            _ => Verdict::Bad,
        }
    }
}

/// An event from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceivedEvent {
    /// Its number: later ones have higher numbers.
    pub id: i64,
    /// When it came, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who sent it.
    pub peer: String,
    /// The line, without passwords. Bytes that are not UTF-8 are replaced.
    pub line: String,
    /// The line as it came.
    #[serde(skip)]
    pub raw: Vec<u8>,
    /// The verdict.
    pub verdict: Verdict,
    /// The repository that the line names; if the line is bad, the reason; if it is collected, the line.
    pub subject: String,
}

impl ReceivedEvent {
    /// Reads a record of a batch; `None`, if a newer version wrote it.
    fn read((id, record, verdict): (i64, &[u8], u8)) -> Option<ReceivedEvent> {
        let ReceivedLine { at_ms, peer, line } = ReceivedLine::parse(record)?;
        let (peer, verdict) = (peer.to_owned(), Verdict::of(verdict));
        let shown = without_passwords(&String::from_utf8_lossy(line));
        let subject = match verdict {
            Verdict::Collected => shown.clone(),
            _ => Notice::parse(line)
                .map_or_else(|why| why.to_string(), |notice| without_passwords(notice.subject())),
        };
        Some(ReceivedEvent { id, at_ms, peer, line: shown, raw: line.to_owned(), verdict, subject })
    }
}

/// Returns `text` without the users, passwords and queries of URLs in it.
pub(crate) fn without_passwords(text: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        clean.push_str(before);
        let end = after.find(|c: char| c == '/' || c == '"' || c.is_whitespace()).unwrap_or(after.len());
        rest = after[..end].rfind('@').map_or(after, |at| &after[at + 1..]);
        // A query may be a token.
        let ends_url = |c: char| c == '"' || c == ',' || c.is_whitespace();
        let url = rest.find(ends_url).unwrap_or(rest.len());
        if let Some(query) = rest[..url].find('?') {
            clean.push_str(&rest[..query]);
            clean.push_str("?***");
            rest = &rest[url..];
        }
    }
    clean + rest
}

/// Returns the last `max` events from outside with numbers above `after`, oldest first; of one verdict, if it
/// is given.
///
/// # Errors
/// If the catalog fails.
pub fn received(
    catalog: &Catalog,
    after: i64,
    verdict: Option<Verdict>,
    max: usize,
) -> Result<Vec<ReceivedEvent>> {
    let (mut found, mut before) = (Vec::new(), i64::MAX);
    loop {
        let batches = catalog.received().before(before, BATCHES)?;
        let Some(last) = batches.last() else { break };
        before = last.first;
        for batch in &batches {
            let is_wanted = |&(id, _, of): &(i64, &[u8], u8)| {
                id > after && verdict.is_none_or(|wanted| Verdict::of(of) == wanted)
            };
            let events: Vec<_> = batch.events().filter(is_wanted).collect();
            let left = max - found.len();
            found.extend(events.into_iter().rev().take(left).filter_map(ReceivedEvent::read));
        }
        if found.len() >= max || before <= after {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

/// Returns the event from outside with number `id`.
///
/// # Errors
/// If the catalog fails.
pub fn received_one(catalog: &Catalog, id: i64) -> Result<Option<ReceivedEvent>> {
    let batches: Vec<ReceivedBatch> = catalog.received().before(id.saturating_add(1), 1)?;
    let mut events = batches.iter().flat_map(ReceivedBatch::events);
    Ok(events.find(|(found, ..)| *found == id).and_then(ReceivedEvent::read))
}

/// Returns the last `max` events that failed, oldest first: they named no repository, or could not be
/// understood. Those that were taken again do not count, nor those that were so with success.
///
/// # Errors
/// If the catalog fails.
pub fn failed_events(catalog: &Catalog, max: usize) -> Result<Vec<ReceivedEvent>> {
    let again = |event: &ReceivedEvent| event.peer.strip_prefix(REPLAYED)?.parse::<i64>().ok();
    let has_failed = |event: &ReceivedEvent| matches!(event.verdict, Verdict::Unknown | Verdict::Bad);
    let (mut failed, mut done) = (Vec::new(), HashSet::new());
    for event in received(catalog, 0, None, max)? {
        match again(&event) {
            Some(of) if !has_failed(&event) => drop(done.insert(of)),
            Some(_) => {}
            None if has_failed(&event) => failed.push(event),
            None => {}
        }
    }
    failed.retain(|event| !done.contains(&event.id));
    Ok(failed)
}

/// Returns the lines of the last deliveries of webhooks.
///
/// # Errors
/// If the catalog fails.
pub fn recent_deliveries(catalog: &Catalog) -> Result<Vec<String>> {
    let events = received(catalog, 0, None, DELIVERIES)?;
    // Lines that came in another way may only look like deliveries.
    let is_delivery = |e: &ReceivedEvent| e.peer.starts_with("http") || e.peer.starts_with("sweep ");
    Ok(events.into_iter().filter(is_delivery).map(|e| e.line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("https://user:secret@h/x.git", "https://h/x.git"),
            ("push https://u:a@b@h/x and ssh://g@h:22/y", "push https://h/x and ssh://h:22/y"),
            ("{\"url\":\"https://u:p@h\"}", "{\"url\":\"https://h\"}"),
            ("a@b", "a@b"),
            ("https://h/a@b", "https://h/a@b"),
            ("://", "://"),
            ("push https://u:p@h/x?token=t refs", "push https://h/x?*** refs"),
            ("{\"url\":\"https://h/x?a=b\",\"n\":\"?\"}", "{\"url\":\"https://h/x?***\",\"n\":\"?\"}"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
