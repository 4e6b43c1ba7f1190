//! Buffers that outlive one pack. A worker takes in one small pack after the other, and returning memory to
//! the system each time costs more than the work done in it.

use std::cell::RefCell;

/// Larger buffers go back to the system.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// The most buffers that a thread keeps.
const KEPT_MAX: usize = 4;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer, with the memory of an earlier buffer of this thread if there is one.
pub(super) fn take() -> Vec<u8> {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Keeps a buffer's memory for later buffers of this thread.
pub(super) fn give(mut buffer: Vec<u8>) {
    if (1..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
        buffer.clear();
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(buffer);
            }
        });
    }
}
