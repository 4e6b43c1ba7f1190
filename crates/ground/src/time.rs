//! Timestamps, and the clock that tells the time.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment in seconds since 1970 (POSIX time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time that is later than every other.
    pub const NEVER: Timestamp = Timestamp(i64::MAX);

    /// Returns the seconds as archives and git write them; a time before 1970 becomes 0.
    pub fn as_u64(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// Returns the time from `earlier` to this, or zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
}

/// Converts seconds since 1970 as archives and git write them; what is too large becomes
/// [`Timestamp::NEVER`].
impl From<u64> for Timestamp {
    fn from(seconds: u64) -> Timestamp {
        Timestamp(i64::try_from(seconds).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Adds seconds; stops at the latest time that can be represented.
impl Add<i64> for Timestamp {
    type Output = Timestamp;

    fn add(self, seconds: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(seconds))
    }
}

/// Subtracts seconds; stops at the earliest time that can be represented.
impl Sub<i64> for Timestamp {
    type Output = Timestamp;

    fn sub(self, seconds: i64) -> Timestamp {
        Timestamp(self.0.saturating_sub(seconds))
    }
}

/// The seconds between two moments.
impl Sub for Timestamp {
    type Output = i64;

    fn sub(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Tells the time: the machine's, or one that a test sets.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds since 1970, if the clock is set and not the machine's.
    set: Option<Arc<AtomicI64>>,
    /// Seconds to add to the machine's clock.
    behind_s: Option<&'static AtomicI64>,
}

impl Clock {
    /// Returns a clock that stands at `now` until it is moved.
    pub fn set_to(now: Timestamp) -> Clock {
        Clock { set: Some(Arc::new(AtomicI64::new(now.0.saturating_mul(1000)))), behind_s: None }
    }

    /// Returns the machine's clock plus `behind_s` seconds. The clock follows later changes of `behind_s`.
    pub fn corrected(behind_s: &'static AtomicI64) -> Clock {
        Clock { set: None, behind_s: Some(behind_s) }
    }

    /// Moves a clock that was set, and all its copies. Does not change the machine's.
    pub fn advance(&self, time: Duration) {
        if let Some(set) = &self.set {
            set.fetch_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
    }

    /// Returns the time in whole seconds.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.now_ms().div_euclid(1000))
    }

    /// Returns the time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        if let Some(set) = &self.set {
            return set.load(Ordering::Relaxed);
        }
        let behind_ms = self.behind_s.map_or(0, |s| s.load(Ordering::Relaxed).saturating_mul(1000));
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
            .saturating_add(behind_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_moves_only_when_told() {
        let clock = Clock::set_to(Timestamp(100));
        let copy = clock.clone();
        assert_eq!(copy.now(), Timestamp(100));
        clock.advance(Duration::from_millis(2500));
        assert_eq!((copy.now(), copy.now_ms()), (Timestamp(102), 102_500));
        let machine = Clock::default();
        machine.advance(Duration::from_secs(1 << 40));
        assert!(machine.now() < Timestamp(1 << 40) && machine.now() > Timestamp(1_700_000_000));
        static BEHIND_S: AtomicI64 = AtomicI64::new(1000);
        let passed = Clock::corrected(&BEHIND_S).now() - machine.now();
        assert!((1000..1010).contains(&passed), "{passed}");
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Timestamp::NEVER + 1, Timestamp::NEVER);
        assert_eq!(Timestamp(7) - Timestamp(5), 2);
        assert_eq!(Timestamp(5).since(Timestamp(7)), Duration::ZERO);
        assert_eq!(Timestamp(-3).as_u64(), 0);
    }
}
