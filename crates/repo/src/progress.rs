//! How far something long has come: written by whoever does it, read by whoever shows it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A phase of a visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Talking about what there is.
    #[default]
    Asking,
    /// Reading a pack: objects, and bytes of it.
    Receiving,
    /// Working out what deltas stand for: deltas.
    Resolving,
    /// Looking whether all that objects name is there.
    Connecting,
    /// Writing what has come into the archive.
    Writing,
    /// Making files that answers are faster with.
    Deriving,
    /// Fetching the files of Git LFS: objects, and bytes of them.
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

/// How far something has come. Numbers are those of the moment, each by itself.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Begins a phase of `total` things; 0, if nobody knows how many.
    pub fn begin(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// So many more are done.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// So many are done in all.
    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// So many bytes have come in all.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// So many more bytes have come.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    /// How many things of the phase are done, and of how many; 0, if nobody knows.
    pub fn count(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Bytes that have come in this phase.
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
        }
    }
}
