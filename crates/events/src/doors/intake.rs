//! The batch of lines that all connections fill, and its commits.
//!
//! All of it lives in one thread. A connection adds its lines to the batch that is being filled; the
//! committer takes that batch, and the thread of the spool writes and syncs it. Meanwhile the next one is
//! filled. If that is full, connections wait, and read no more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use weir_ground::thread::spawn;

use crate::doors::coalescing::Coalescing;
use crate::record::ReceivedLine;
use crate::spool::{EventSpool, FrameRecords, SpoolError};

/// The committer writes a batch of this many bytes without waiting for the interval to end.
const WRITTEN_AT_BYTES: usize = 128 << 10;
/// Connections stop reading when the batch has this many bytes and the spool cannot write it.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// The most of a batch that one sender fills: a sender that floods leaves room for others.
const SHARE_BYTES_MAX: usize = BATCH_BYTES_MAX / 8;
/// How long to wait before a batch is tried again that could not be written.
const RETRY: Duration = Duration::from_millis(250);
/// Time between lines of the log about batches that cannot be written.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// The counts since the start of the server. Any thread may read them.
#[derive(Debug, Default)]
pub struct IntakeCounts {
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Connections that were refused, because there were too many.
    pub refused: AtomicU64,
    /// Lines that were committed.
    pub committed: AtomicU64,
    /// Lines that were refused: too long, or empty of all but an id.
    pub bad: AtomicU64,
    /// Lines of datagrams that were dropped, because no batch had room.
    pub dropped: AtomicU64,
    /// Commits.
    pub commits: AtomicU64,
}

impl IntakeCounts {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// The bytes of a batch that a sender has filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchShare {
    batch: u64,
    bytes: usize,
}

/// The batch that is being filled, and the news of those that were committed.
pub(crate) struct Intake {
    filling: RefCell<FrameRecords>,
    /// The number of the batch that is being filled.
    number: Cell<u64>,
    /// The number of the last batch that was committed.
    committed: watch::Sender<u64>,
    /// Wakes the committer: there is something to write.
    has_lines: Notify,
    /// Wakes connections: there is room.
    has_room: Notify,
    is_ending: Cell<bool>,
    /// The least time between two commits.
    interval: Duration,
    pub(crate) counts: Arc<IntakeCounts>,
    coalescing: Arc<Coalescing>,
}

impl Intake {
    pub(crate) fn new(
        interval: Duration,
        counts: Arc<IntakeCounts>,
        coalescing: Arc<Coalescing>,
    ) -> Rc<Intake> {
        Rc::new(Intake {
            filling: RefCell::default(),
            number: Cell::new(1),
            committed: watch::Sender::new(0),
            has_lines: Notify::new(),
            has_room: Notify::new(),
            is_ending: Cell::new(false),
            interval,
            counts,
            coalescing,
        })
    }

    /// Counts the bytes that a socket had.
    pub(crate) fn came(&self, bytes: usize) {
        self.coalescing.count(bytes);
    }

    /// Adds a line of the sender with `share` to the batch that is being filled. Returns its number, or
    /// `None` if it has no room.
    pub(crate) fn put(&self, received: &ReceivedLine<'_>, share: &mut BatchShare) -> Option<u64> {
        let mut filling = self.filling.borrow_mut();
        if share.batch != self.number.get() {
            *share = BatchShare { batch: self.number.get(), bytes: 0 };
        }
        let is_full = filling.bytes() >= BATCH_BYTES_MAX || share.bytes >= SHARE_BYTES_MAX;
        let before = filling.bytes();
        if is_full || !received.parts(|parts| filling.push(parts)) {
            return None;
        }
        share.bytes += filling.bytes() - before;
        if filling.len() == 1 || filling.bytes() >= WRITTEN_AT_BYTES {
            self.has_lines.notify_one();
        }
        Some(self.number.get())
    }

    /// Waits until a batch has room for the sender with `share`.
    pub(crate) async fn room(&self, share: BatchShare) {
        loop {
            let notified = self.has_room.notified();
            let has_share = share.batch != self.number.get() || share.bytes < SHARE_BYTES_MAX;
            if has_share && self.filling.borrow().bytes() < BATCH_BYTES_MAX {
                return;
            }
            notified.await;
        }
    }

    /// Returns the number of the last batch that was committed, as it changes.
    pub(crate) fn committed(&self) -> watch::Receiver<u64> {
        self.committed.subscribe()
    }

    /// Makes the committer write what there is, and end.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
        self.has_lines.notify_one();
    }

    /// Commits batches until the end. What cannot be written is tried again, for ever.
    pub(crate) async fn commit_all(&self, writer: SpoolWriter) {
        let mut spare = FrameRecords::default();
        let mut last: Option<Instant> = None;
        loop {
            while self.filling.borrow().is_empty() {
                if self.is_ending.get() {
                    return;
                }
                self.has_lines.notified().await;
            }
            // The first line after a quiet time is written at once.
            while let Some(next) = last.map(|last| last + self.interval)
                && Instant::now() < next
                && self.filling.borrow().bytes() < WRITTEN_AT_BYTES
                && !self.is_ending.get()
            {
                tokio::select! {
                    () = sleep_until(next) => {}
                    () = self.has_lines.notified() => {}
                }
            }
            last = Some(Instant::now());
            let batch = self.filling.replace(spare);
            let number = self.number.replace(self.number.get() + 1);
            self.has_room.notify_waiters();
            let count = u64::from(batch.len());
            self.coalescing.begin_commit(self.interval);
            let written = self.write(&writer, batch).await;
            self.coalescing.end_commit();
            let Some(written) = written else { return };
            spare = written;
            spare.clear();
            IntakeCounts::add(&self.counts.committed, count);
            IntakeCounts::add(&self.counts.commits, 1);
            let before = self.committed.send_replace(number);
            debug_assert_eq!(before + 1, number, "a batch is left out");
        }
    }

    /// Writes a batch, and returns it. Returns `None` if the thread of the spool is gone, or if nothing could
    /// be written at the end.
    async fn write(&self, writer: &SpoolWriter, mut batch: FrameRecords) -> Option<FrameRecords> {
        let mut told: Option<Instant> = None;
        loop {
            let error = match writer.append(batch).await? {
                (back, Ok(())) => {
                    if told.is_some() {
                        tracing::warn!("events are taken again");
                    }
                    return Some(back);
                }
                (back, Err(e)) => {
                    batch = back;
                    e
                }
            };
            if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                told = Some(Instant::now());
                tracing::error!("cannot keep events, senders wait: {error}");
            }
            if self.is_ending.get() {
                return None;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

type Written = (FrameRecords, Result<(), SpoolError>);
type WriteRequest = (FrameRecords, oneshot::Sender<Written>);

/// The thread that writes to the spool.
pub(crate) struct SpoolWriter(mpsc::Sender<WriteRequest>);

impl SpoolWriter {
    /// Starts the thread. It ends when the writer is dropped.
    pub(crate) fn start(mut spool: EventSpool) -> std::io::Result<SpoolWriter> {
        let (sender, requests) = mpsc::channel::<WriteRequest>();
        spawn("event spool", move || {
            for (batch, answer) in requests {
                let written = spool.append(&batch).map(|_| ());
                // Who asked may have ended.
                let _ = answer.send((batch, written));
            }
        })?;
        Ok(SpoolWriter(sender))
    }

    async fn append(&self, batch: FrameRecords) -> Option<Written> {
        let (sender, answer) = oneshot::channel();
        self.0.send((batch, sender)).ok()?;
        answer.await.ok()
    }
}
