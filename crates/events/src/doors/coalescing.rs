//! Under load, waits before the thread looks for ready sockets: one look then finds many, and more than one
//! line in each.
//!
//! A look costs more than the lines of a socket (epoll_wait(2), and a switch of threads). Lines wait for the
//! next commit anyhow: a thread that looks again when that is due delays none of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the thread waits while the spool writes a batch: its senders wait for answers.
const WRITING_WAIT: Duration = Duration::from_millis(1);
/// The thread counts as under load until no line has come for the longest wait and this time.
const QUIET: Duration = Duration::from_millis(30);
/// The thread waits until about this many bytes have arrived, at all sockets together or at one of them. The
/// batch and the socket have room for more. A Unix socket holds some 200 writes, however short.
const BYTES_OF_ALL: usize = 768 << 10;
const BYTES_OF_ONE: usize = 2 << 10;

/// When the thread looks for ready sockets.
#[derive(Debug)]
pub(crate) struct Coalescing {
    began: Instant,
    state: Mutex<LookState>,
}

/// The bytes that senders sent since the thread last looked, and the time of the next commit. Times count
/// from the start of the server.
#[derive(Debug, Default)]
struct LookState {
    /// The longest wait.
    wait_max: Duration,
    bytes: usize,
    /// The number of bytes that the thread read from the fullest socket.
    largest: usize,
    /// When the thread looked last.
    looked: Duration,
    /// When the last lines came.
    busy: Option<Duration>,
    /// Before this, no batch is committed.
    due: Duration,
    is_writing: bool,
}

impl Coalescing {
    /// Returns the state of a thread that waits for at most `wait_max`.
    pub(crate) fn new(wait_max: Duration) -> Coalescing {
        Coalescing {
            began: Instant::now(),
            state: Mutex::new(LookState { wait_max, ..LookState::default() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LookState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the bytes of a socket.
    pub(crate) fn count(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes += bytes;
        state.largest = state.largest.max(bytes);
    }

    /// Notes that the spool writes a batch, and that the next one follows `interval` later.
    pub(crate) fn begin_commit(&self, interval: Duration) {
        let mut state = self.lock();
        state.is_writing = true;
        state.due = self.began.elapsed() + interval;
    }

    /// Notes that the spool has written the batch.
    pub(crate) fn end_commit(&self) {
        self.lock().is_writing = false;
    }

    /// Waits, if the thread is under load.
    pub(crate) fn before_wait(&self) {
        let wait = self.lock().wait(self.began.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }
}

impl LookState {
    /// Returns how long the thread waits, if it is `now`, and sets the counts of bytes to zero.
    fn wait(&mut self, now: Duration) -> Duration {
        let (bytes, largest) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.largest));
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let before = match bytes {
            0 => self.busy,
            _ => self.busy.replace(now),
        };
        if before.is_none_or(|before| now.saturating_sub(before) >= QUIET + self.wait_max) {
            return Duration::ZERO;
        }
        if self.is_writing {
            return WRITING_WAIT;
        }
        let fills = (bytes as f64 / BYTES_OF_ALL as f64).max(largest as f64 / BYTES_OF_ONE as f64);
        let until_full = if fills > 0.0 { passed.div_f64(fills) } else { self.wait_max };
        self.due.saturating_sub(now).min(until_full).min(self.wait_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns a state at 1000 ms, when lines came, and the next commit is due at `due`.
    fn busy(due: u64) -> LookState {
        let mut state = LookState { wait_max: MAX, due: ms(due), bytes: 100, ..LookState::default() };
        assert_eq!(state.wait(ms(1000)), Duration::ZERO, "the first line waits for nothing");
        state
    }

    #[test]
    fn a_thread_under_load_looks_when_a_commit_is_due() {
        let mut state = busy(1050);
        (state.bytes, state.largest) = (100, 100);
        assert_eq!(state.wait(ms(1010)), ms(40));
        assert_eq!(state.wait(ms(1050)), Duration::ZERO);
        state.is_writing = true;
        assert_eq!(state.wait(ms(1051)), WRITING_WAIT);
        // Nothing came for a while.
        assert_eq!(state.wait(ms(1200)), Duration::ZERO);
    }

    #[test]
    fn much_shortens_the_wait() {
        for (bytes, largest, wait) in [
            (100, 100, 50),
            (BYTES_OF_ALL * 2, 1000, 5),
            (BYTES_OF_ONE * 4, BYTES_OF_ONE * 4, 2),
            (10 * BYTES_OF_ALL, 1000, 1),
        ] {
            let mut state = busy(2000);
            (state.bytes, state.largest) = (bytes, largest);
            assert_eq!(state.wait(ms(1010)).as_millis(), wait, "{bytes} {largest}");
        }
    }
}
