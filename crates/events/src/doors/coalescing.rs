//! Under load, waits a little before the thread looks for ready sockets: one look then finds many.
//!
//! A look costs more than the lines of a socket (epoll_wait(2), and a switch of threads). Lines wait for a
//! commit anyhow, so that this delays none by much.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the thread waits.
const WAIT: Duration = Duration::from_millis(15);
/// The thread is under load if lines came in two looks with less time between.
const QUIET: Duration = Duration::from_millis(30);

/// The lines that came, and when the thread looked last.
#[derive(Debug)]
pub(crate) struct Coalescing {
    began: Instant,
    lines: AtomicU64,
    /// The number of lines at the last look, and the time of the last look with lines, in microseconds.
    seen: AtomicU64,
    busy_us: AtomicU64,
}

impl Default for Coalescing {
    fn default() -> Coalescing {
        let began = Instant::now();
        Coalescing { began, lines: AtomicU64::new(0), seen: AtomicU64::new(0), busy_us: AtomicU64::new(0) }
    }
}

impl Coalescing {
    /// Counts a line.
    pub(crate) fn count(&self) {
        // Only one thread counts.
        self.lines.store(self.lines.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Waits, if the thread is under load.
    pub(crate) fn before_wait(&self) {
        let lines = self.lines.load(Ordering::Relaxed);
        if self.seen.swap(lines, Ordering::Relaxed) == lines {
            return;
        }
        let now_us = self.began.elapsed().as_micros() as u64;
        let before_us = self.busy_us.swap(now_us, Ordering::Relaxed);
        if before_us > 0 && now_us - before_us < QUIET.as_micros() as u64 {
            std::thread::sleep(WAIT);
        }
    }
}
