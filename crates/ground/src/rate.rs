//! The least throughput that a peer must have.

use std::time::{Duration, Instant};

/// The time over which it is measured.
const WINDOW: Duration = Duration::from_secs(30);

/// Checks that a peer moves at least so many bytes a second, over half a minute at a time.
#[derive(Clone, Copy, Debug)]
pub struct MinRate {
    bytes_per_second_min: u64,
    waited: Duration,
    bytes: u64,
    /// Bytes that were counted in an earlier window and do not count.
    debt: u64,
    since: Instant,
}

impl MinRate {
    /// Returns a check that begins now; 0 sets no minimum.
    pub fn new(bytes_per_second_min: u64) -> MinRate {
        MinRate { bytes_per_second_min, waited: Duration::ZERO, bytes: 0, debt: 0, since: Instant::now() }
    }

    /// Counts bytes that were moved.
    pub fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Takes back bytes that were counted and do not count.
    pub fn take_back(&mut self, bytes: u64) {
        self.debt += bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns how many bytes were counted since the window began.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the window is over and the peer was too slow in it, by the clock.
    pub fn is_too_slow(&mut self) -> bool {
        let waited = self.since.elapsed();
        self.ends(waited)
    }

    /// Adds `waited` to the time spent waiting for the peer. Returns whether the window is over and the peer
    /// was too slow in it, by that time alone.
    pub fn is_too_slow_after(&mut self, waited: Duration) -> bool {
        self.waited += waited;
        self.ends(self.waited)
    }

    fn ends(&mut self, waited: Duration) -> bool {
        if waited < WINDOW {
            return false;
        }
        let rate = self.bytes.saturating_sub(self.debt) / waited.as_secs().max(1);
        let debt = self.debt.saturating_sub(self.bytes);
        *self = MinRate { debt, ..MinRate::new(self.bytes_per_second_min) };
        rate < self.bytes_per_second_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_judged_as_a_whole() {
        let mut rate = MinRate::new(100);
        rate.moved(2999);
        assert!(!rate.is_too_slow_after(Duration::from_secs(29)), "the window is not over");
        assert!(rate.is_too_slow_after(Duration::from_secs(1)));
        rate.moved(3000);
        assert!(!rate.is_too_slow_after(Duration::from_secs(30)));
        assert!(rate.is_too_slow_after(Duration::from_secs(31)), "nothing came since");
        assert!(!MinRate::new(0).is_too_slow_after(Duration::from_secs(31)));
    }
}
