//! Asks running work to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Asks all holders of a copy to stop: they finish what is under way and start nothing new.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<StopFlag>);

#[derive(Debug, Default)]
struct StopFlag {
    /// Can be read without the lock.
    is_stopped: AtomicBool,
    /// How often somebody nudged.
    nudges: Mutex<u64>,
    changed: Condvar,
    /// Whose stop counts, too, and when this one comes by itself.
    until: Option<(Stop, Instant)>,
}

impl Stop {
    /// Requests the stop, and wakes all sleepers.
    pub fn stop(&self) {
        let _nudges = self.lock();
        self.0.is_stopped.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }

    /// Returns a stop that comes with this one, and by itself after `time`. Nobody sleeps on it.
    pub fn within(&self, time: Duration) -> Stop {
        let until = Instant::now().checked_add(time).map(|until| (self.clone(), until));
        Stop(Arc::new(StopFlag { until, ..StopFlag::default() }))
    }

    /// Returns whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        let has_come = |(stop, until): &(Stop, Instant)| stop.is_stopped() || Instant::now() >= *until;
        self.0.is_stopped.load(Ordering::Relaxed) || self.0.until.as_ref().is_some_and(has_come)
    }

    /// Sleeps for `time`, or until a stop is requested; returns whether none was.
    pub fn sleep(&self, time: Duration) -> bool {
        let slept = self.0.changed.wait_timeout_while(self.lock(), time, |_| !self.is_stopped());
        drop(slept.unwrap_or_else(PoisonError::into_inner));
        !self.is_stopped()
    }

    /// Wakes who sleeps in [`Stop::sleep_until_nudged`]: there is something to do.
    pub fn nudge(&self) {
        *self.lock() += 1;
        self.0.changed.notify_all();
    }

    /// Sleeps for `time`, or until a stop is requested or somebody nudges. `seen` is the number of nudges
    /// that the sleeper has seen: one that came while it was busy counts.
    pub fn sleep_until_nudged(&self, time: Duration, seen: &mut u64) {
        let is_quiet = |nudges: &mut u64| *nudges == *seen && !self.is_stopped();
        let slept = self.0.changed.wait_timeout_while(self.lock(), time, is_quiet);
        *seen = *slept.unwrap_or_else(PoisonError::into_inner).0;
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.0.nudges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the flag itself, for code that can only watch a flag.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_little_time_stops_alone() {
        let stop = Stop::default();
        assert!(stop.within(Duration::ZERO).is_stopped() && !stop.is_stopped());
        let later = stop.within(Duration::from_secs(3600));
        assert!(!later.is_stopped());
        stop.stop();
        assert!(later.is_stopped());
    }

    #[test]
    fn who_sleeps_is_woken() {
        let stop = Stop::default();
        assert!(stop.sleep(Duration::from_millis(1)));
        let copy = stop.clone();
        let sleeper = std::thread::spawn(move || copy.sleep(Duration::from_secs(3600)));
        stop.stop();
        assert!(!sleeper.join().unwrap());
        let start = Instant::now();
        let mut seen = 0;
        let nudged = Stop::default();
        nudged.nudge();
        nudged.sleep_until_nudged(Duration::from_secs(3600), &mut seen);
        assert_eq!(seen, 1, "one that came before");
        nudged.sleep_until_nudged(Duration::from_millis(1), &mut seen);
        assert!(!stop.sleep(Duration::from_secs(3600)) && start.elapsed() < Duration::from_secs(60));
    }
}
