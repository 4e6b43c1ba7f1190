//! The progress of a long task: the task writes it, and other threads read it to show it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A phase of a visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Negotiating what to fetch.
    #[default]
    Asking,
    /// Reading a pack; counts objects, and bytes of the pack.
    Receiving,
    /// Resolving deltas; counts deltas.
    Resolving,
    /// Checking that all objects that are named are there.
    Connecting,
    /// Writing the received data into the archive.
    Writing,
    /// Making the files that make answers faster.
    Deriving,
    /// Fetching Git LFS objects; counts them, and their bytes.
    Lfs,
    /// Compacting the archive.
    Compacting,
}

const PHASES: [Phase; 8] = [
    Phase::Asking,
    Phase::Receiving,
    Phase::Resolving,
    Phase::Connecting,
    Phase::Writing,
    Phase::Deriving,
    Phase::Lfs,
    Phase::Compacting,
];

/// The progress of a task. Each number is current by itself.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
    /// The latest progress message of the upstream; empty if there is none.
    said: Mutex<String>,
}

/// The most characters that are kept of what an upstream says.
const SAID_CHARS_MAX: usize = 60;

impl Progress {
    /// Begins a phase of `total` things; 0 if the number is not known.
    pub fn begin(&self, phase: Phase, total: u64) {
        self.say("");
        self.done.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Adds to the number of things that are done.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Sets the number of things that are done.
    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Sets the number of bytes received.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Adds to the number of bytes received.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets what the upstream says of its own progress. The start of a long text is kept.
    pub fn say(&self, text: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.clear();
        said.extend(text.chars().take(SAID_CHARS_MAX));
    }

    /// Returns what the upstream said last in this phase; empty if nothing.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    /// Returns how many things of the phase are done, and of how many; 0 if the total is not known.
    pub fn count(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Returns the bytes received in this phase.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_told_as_it_was_begun() {
        let progress = Progress::default();
        assert_eq!(progress.phase(), Phase::Asking);
        for phase in PHASES {
            progress.begin(phase, 7);
            progress.add(2);
            progress.add_bytes(3);
            assert_eq!((progress.phase(), progress.count(), progress.bytes()), (phase, (2, 7), 3));
            assert_eq!(progress.said(), "");
            progress.say(&"x".repeat(1000));
            assert_eq!(progress.said(), "x".repeat(SAID_CHARS_MAX));
        }
    }
}
