//! Turns for work on objects so large that a machine has room for only one such task at a time. Without them,
//! clients or upstreams that come together would need that memory several times.

use std::sync::{Condvar, Mutex, PoisonError};

/// The most bytes of objects that a task may hold without a turn.
pub(crate) const LARGE_BYTES: u64 = 128 << 20;

static IS_TAKEN: Mutex<bool> = Mutex::new(false);
static GIVEN_BACK: Condvar = Condvar::new();

/// The turn of one task; given back when dropped. A thread that holds it waits for no other turn, and not for
/// the network.
pub(crate) struct LargeTurn(());

impl LargeTurn {
    /// Waits for the turn, if a task on `bytes` needs it.
    pub(crate) fn for_bytes(bytes: u64) -> Option<LargeTurn> {
        (bytes > LARGE_BYTES).then(|| {
            let mut taken = IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
            while *taken {
                taken = GIVEN_BACK.wait(taken).unwrap_or_else(PoisonError::into_inner);
            }
            *taken = true;
            LargeTurn(())
        })
    }
}

impl Drop for LargeTurn {
    fn drop(&mut self) {
        *IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = false;
        GIVEN_BACK.notify_one();
    }
}
