//! Logs what went wrong for clients: each sort of failure once in a while per address, and never many lines a
//! second.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time in which the same notice is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// Addresses remembered; beyond that they are forgotten all at once.
const REMEMBERED_MAX: usize = 4096;
/// Lines a second, whatever they say.
const LINES_MAX: u32 = 20;

/// The lines that were logged already.
#[derive(Default)]
pub(crate) struct Notices {
    state: Mutex<NoticeState>,
}

/// The address, and the sort of failure.
type NoticeKey = (Option<IpAddr>, &'static str);

#[derive(Default)]
struct NoticeState {
    /// When it was last logged, and how many times it has happened since.
    said: HashMap<NoticeKey, (Option<Instant>, u64)>,
    second: Option<Instant>,
    lines: u32,
    unsaid: u64,
}

impl Notices {
    /// Logs that a client at `address` was refused, or lost, for the reason `sort`.
    pub(crate) fn say(&self, address: Option<IpAddr>, sort: &'static str, detail: &dyn Display) {
        if let Some((times, unsaid)) = self.may_say(address, sort, Instant::now()) {
            let from = address.map_or("this machine".to_owned(), |a| a.to_string());
            tracing::info!(peer = %from, times, unsaid, "{sort}: {detail}");
        }
    }

    /// Returns how many times it happened since it was last logged, and how many lines of all sorts were left
    /// out; `None` if it is not to be logged now.
    fn may_say(&self, address: Option<IpAddr>, sort: &'static str, now: Instant) -> Option<(u64, u64)> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        if state.said.len() >= REMEMBERED_MAX {
            state.said.clear();
        }
        let (when, times) = state.said.entry((address, sort)).or_default();
        *times += 1;
        if when.is_some_and(|when| now.duration_since(when) < QUIET) {
            return None;
        }
        if state.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            (state.second, state.lines) = (Some(now), 0);
        }
        if state.lines >= LINES_MAX {
            state.unsaid += 1;
            return None;
        }
        state.lines += 1;
        *when = Some(now);
        Some((std::mem::take(times), std::mem::take(&mut state.unsaid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line() {
        let notices = Notices::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let one = Some(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(notices.may_say(one, "a", at(0)), Some((1, 0)));
        assert!((0..1000).all(|_| notices.may_say(one, "a", at(1)).is_none()));
        assert_eq!(notices.may_say(one, "b", at(1)), Some((1, 0)));
        assert_eq!(notices.may_say(one, "a", at(61)), Some((1001, 0)));
        let said = (0..100u8)
            .filter(|n| notices.may_say(Some([10, 0, 1, *n].into()), "a", at(70)).is_some())
            .count();
        assert_eq!(said, 20);
        assert_eq!(notices.may_say(one, "c", at(72)), Some((1, 80)));
    }
}
