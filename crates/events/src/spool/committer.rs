//! A thread that writes the events of other threads to a spool, several in one sync.
//!
//! While one batch is written and synced, the next is filled. Each event costs its sender's thread a lock,
//! and one wake when it is on disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use weir_ground::thread::spawn;

use crate::record::{ReceivedLine, now_ms};
use crate::spool::frame::FrameRecords;
use crate::spool::writer::EventSpool;

/// The least time between two commits.
const INTERVAL: Duration = Duration::from_millis(3);
/// The maximum size of a batch, in bytes. The committer refuses events while the batch is full.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Time between lines of the log about batches that cannot be written.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// A thread that commits events. When it is dropped, it commits the current batch, and ends.
pub struct EventCommitter {
    intake: EventIntake,
    thread: Option<JoinHandle<()>>,
}

/// The way of other threads into the spool of an [`EventCommitter`].
#[derive(Clone)]
pub struct EventIntake(Arc<CommitterState>);

/// The error that an event is not on disk, and perhaps will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotCommitted;

#[derive(Default)]
struct CommitterState {
    filling: Mutex<FillingBatch>,
    changed: Condvar,
}

/// The current batch, and the senders that wait for its commit.
#[derive(Default)]
struct FillingBatch {
    records: FrameRecords,
    waiting: Vec<oneshot::Sender<()>>,
    is_ending: bool,
}

impl CommitterState {
    fn lock(&self) -> MutexGuard<'_, FillingBatch> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventCommitter {
    /// Starts to commit events to `spool`.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(spool: EventSpool) -> std::io::Result<EventCommitter> {
        let state = Arc::new(CommitterState::default());
        let of_thread = state.clone();
        let thread = spawn("event commits", move || commit_all(&of_thread, spool))?;
        Ok(EventCommitter { intake: EventIntake(state), thread: Some(thread) })
    }

    /// Returns a way into the spool.
    pub fn intake(&self) -> EventIntake {
        self.intake.clone()
    }
}

impl Drop for EventCommitter {
    fn drop(&mut self) {
        self.intake.0.lock().is_ending = true;
        self.intake.0.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl EventIntake {
    /// Puts a line of `peer` into the spool, and returns when it is on disk.
    ///
    /// # Errors
    /// If it cannot be written, there is no room, or the thread ends before.
    pub async fn put(&self, peer: &str, line: &[u8]) -> Result<(), NotCommitted> {
        let (committed, is_committed) = oneshot::channel();
        {
            let mut filling = self.0.lock();
            let received = ReceivedLine { at_ms: now_ms(), peer, line };
            let is_full = filling.is_ending || filling.records.bytes() >= BATCH_BYTES_MAX;
            if is_full || !received.parts(|parts| filling.records.push(parts)) {
                return Err(NotCommitted);
            }
            filling.waiting.push(committed);
            if filling.waiting.len() == 1 {
                self.0.changed.notify_one();
            }
        }
        is_committed.await.map_err(|_| NotCommitted)
    }
}

/// Commits batches until the end.
fn commit_all(state: &CommitterState, mut spool: EventSpool) {
    let (mut spare, mut last, mut told) = (FrameRecords::default(), None::<Instant>, None::<Instant>);
    loop {
        let mut filling = state.lock();
        while filling.records.is_empty() {
            if filling.is_ending {
                return;
            }
            filling = state.changed.wait(filling).unwrap_or_else(PoisonError::into_inner);
        }
        let pause = last.map_or(Duration::ZERO, |last| INTERVAL.saturating_sub(last.elapsed()));
        if !pause.is_zero() && !filling.is_ending {
            drop(filling);
            std::thread::sleep(pause);
            filling = state.lock();
        }
        last = Some(Instant::now());
        let batch = std::mem::replace(&mut filling.records, std::mem::take(&mut spare));
        let waiting = std::mem::take(&mut filling.waiting);
        drop(filling);
        match spool.append(&batch) {
            Ok(_) => {
                if told.take().is_some() {
                    tracing::warn!("events are kept again");
                }
                for sender in waiting {
                    // Who asked may have gone.
                    let _ = sender.send(());
                }
            }
            // Who waits is told by dropping the other end: nothing of the batch was appended.
            Err(e) if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) => {
                told = Some(Instant::now());
                tracing::error!("cannot keep events, senders are told to come again: {e}");
            }
            Err(_) => {}
        }
        spare = batch;
        spare.clear();
    }
}
