//! The bytes that a query writes to temporary files: rows that it sorts and groups, and tables in between.
//! SQLite itself counts them only when a sort is over.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The system's account of the bytes that this thread has written (proc(5), "/proc/pid/io").
const ACCOUNT: &str = "/proc/thread-self/io";
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The bytes that this thread writes from now on. A query that runs writes nothing but temporary files.
#[derive(Clone, Debug)]
pub(super) struct Spill {
    before: u64,
    bytes_max: Arc<AtomicU64>,
    looked_at: Instant,
}

impl Spill {
    /// Returns the account of this thread, which may write `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Spill {
        Spill { before: written(), bytes_max: Arc::new(bytes_max.into()), looked_at: Instant::now() }
    }

    /// Lets the thread write `bytes` more: those of rows that it prints meanwhile.
    pub(super) fn allow(&self, bytes: u64) {
        self.bytes_max.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns whether more was written than may be. Looks from time to time.
    pub(super) fn look(&mut self) -> bool {
        if self.looked_at.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked_at = Instant::now();
        self.is_too_large()
    }

    /// Returns whether more was written than may be.
    pub(super) fn is_too_large(&self) -> bool {
        written().saturating_sub(self.before) > self.bytes_max.load(Ordering::Relaxed)
    }
}

/// Returns the bytes that this thread has written; 0, if the system keeps no account.
fn written() -> u64 {
    let account = fs::read_to_string(ACCOUNT).unwrap_or_default();
    let line = account.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}
