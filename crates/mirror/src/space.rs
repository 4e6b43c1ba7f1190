//! Watches the room for archives. Visits stop before the disk is full or the archives take more than they
//! may, and continue when there is room.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::scratch::free_bytes;
use crate::throttle::Cause;

/// The maximum age of the catalog's sum of all archives; bytes appended meanwhile are added to it. While
/// visits pause because of it, it is refreshed sooner, as the operator may be making room.
const SUM_AGE_MAX: Duration = Duration::from_secs(600);
const PAUSED_SUM_AGE_MAX: Duration = Duration::from_secs(15);

/// The room for archives.
#[derive(Debug)]
pub struct Space {
    store: PathBuf,
    free_bytes_min: u64,
    bytes_max: Option<u64>,
    /// The bytes of all archives, and when they were summed.
    used: Mutex<(u64, Option<Instant>)>,
    paused_until_ms: AtomicU64,
}

impl Space {
    /// Creates the limits of the folder `store`: `free_bytes_min` of its disk stay free, and all archives
    /// take `bytes_max` at most.
    pub fn new(store: PathBuf, free_bytes_min: u64, bytes_max: Option<u64>) -> Space {
        Space {
            store,
            free_bytes_min,
            bytes_max,
            used: Mutex::new((0, None)),
            paused_until_ms: AtomicU64::new(0),
        }
    }

    /// Returns whether the caller should call [`Space::set_used`]. The sum reads every repository in the
    /// catalog.
    pub(crate) fn wants_sum(&self) -> bool {
        let (used, at) = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let age_max =
            if self.bytes_max.is_some_and(|max| used >= max) { PAUSED_SUM_AGE_MAX } else { SUM_AGE_MAX };
        self.bytes_max.is_some() && at.is_none_or(|at| at.elapsed() > age_max)
    }

    /// Returns whether all archives together have a limit, so that their size must be known.
    pub fn is_limited(&self) -> bool {
        self.bytes_max.is_some()
    }

    /// Sets the bytes that all archives take, as the catalog knows them.
    pub fn set_used(&self, bytes: u64) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = (bytes, Some(Instant::now()));
    }

    /// Adds bytes that were appended since.
    pub fn add_used(&self, bytes: u64) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).0 += bytes;
    }

    /// Returns why nothing may be fetched, if there is a reason.
    pub fn shortage(&self) -> Option<Cause> {
        // If the free space cannot be read, the disk is not taken for full.
        if free_bytes(&self.store).is_some_and(|free| free < self.free_bytes_min) {
            return Some(Cause::LowSpace);
        }
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).0;
        self.bytes_max.is_some_and(|max| used >= max).then_some(Cause::Quota)
    }

    /// Returns whether `bytes` more can be written and enough space stays free.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        free_bytes(&self.store).is_none_or(|free| free >= self.free_bytes_min.saturating_add(bytes))
    }

    /// Starts a pause for lack of space until `until_ms`; returns false if one lasts already at `now_ms`.
    pub(crate) fn pauses_from(&self, now_ms: u64, until_ms: u64) -> bool {
        let before = self.paused_until_ms.load(Ordering::Relaxed);
        before <= now_ms
            && self
                .paused_until_ms
                .compare_exchange(before, until_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Ends such a pause; returns whether there was one.
    pub(crate) fn goes_on(&self) -> bool {
        self.paused_until_ms.swap(0, Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_said_and_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let space = |free, max| Space::new(dir.path().to_owned(), free, max);
        assert_eq!(space(0, None).shortage(), None);
        assert_eq!(space(u64::MAX, None).shortage(), Some(Cause::LowSpace));
        let quota = space(0, Some(100));
        assert!(quota.wants_sum() && !space(0, None).wants_sum());
        quota.set_used(60);
        assert!(!quota.wants_sum());
        assert_eq!(quota.shortage(), None);
        quota.add_used(40);
        assert_eq!(quota.shortage(), Some(Cause::Quota));
        assert!(quota.pauses_from(10, 20) && !quota.pauses_from(15, 25) && quota.pauses_from(20, 30));
        assert!(quota.goes_on() && !quota.goes_on());
        assert_eq!(Space::new(dir.path().join("nowhere"), u64::MAX, None).shortage(), None);
    }
}
