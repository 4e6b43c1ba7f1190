//! Memory for large files.

use std::mem::MaybeUninit;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// Asks the kernel for the pages of `spare`, to which the caller is about to write, in one call: it gives
/// them twice as fast as one by one at the first write to each.
pub fn populate(spare: &mut [MaybeUninit<u8>]) {
    let page = page_size();
    let before = spare.as_ptr().align_offset(page);
    let len = spare.len().saturating_sub(before) / page * page;
    if len > 0 {
        let start = spare[before..].as_mut_ptr();
        // SAFETY: the pages are in memory that the caller has for itself, and keep what is in them. An older
        // kernel (before 5.14) refuses, and gives the pages later.
        let _ = unsafe { madvise(start.cast(), len, Advice::LinuxPopulateWrite) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_vector_stays() {
        for len in [0, 1, 4095, 4096, 70_000] {
            let mut data = vec![7_u8; len];
            populate(data.spare_capacity_mut());
            data.reserve(100_000);
            populate(data.spare_capacity_mut());
            data.extend_from_slice(&[8; 100_000]);
            assert!(data[..len].iter().all(|byte| *byte == 7) && data[len..].iter().all(|byte| *byte == 8));
        }
    }
}
