//! The state that the writer and the reader of a spool share.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A segment, as far as it may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentEnd {
    /// The number of its first record.
    pub(crate) first: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// The records that wait for the reader.
#[derive(Debug)]
pub(crate) struct WaitingRecords {
    /// The segments, oldest first. The last one grows.
    pub(crate) segments: VecDeque<SegmentEnd>,
    /// The number of the last record.
    pub(crate) last: u64,
    /// Whether the writer is gone.
    pub(crate) is_closed: bool,
}

impl WaitingRecords {
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// The records that wait, with the signal that wakes the reader.
#[derive(Debug)]
pub(crate) struct SharedState {
    state: Mutex<WaitingRecords>,
    pub(crate) changed: Condvar,
}

impl SharedState {
    pub(crate) fn new(waiting: WaitingRecords) -> SharedState {
        SharedState { state: Mutex::new(waiting), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, WaitingRecords> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
