//! How much of a map counts as this process's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_archive::Region;

/// What the system maps at one fault, in bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks that stay.
const BLOCKS_MAX: usize = (48 << 20) / BLOCK_BYTES;

/// A region that is read in no order, of which only some 48 MiB stay this process's memory at a time.
pub(crate) struct Resident {
    region: Region,
    /// Which blocks were read since the last that were let go.
    read: Vec<AtomicBool>,
    read_count: AtomicUsize,
}

impl Resident {
    pub(crate) fn new(region: Region) -> Resident {
        let blocks = region.len().div_ceil(BLOCK_BYTES);
        // Small ones are never let go.
        let noted = if blocks > BLOCKS_MAX { blocks } else { 0 };
        Resident {
            region,
            read: (0..noted).map(|_| AtomicBool::new(false)).collect(),
            read_count: AtomicUsize::new(0),
        }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Notes that `range` was read. If much was, its pages go back to the system, whose cache they stay in:
    /// what is read again costs a fault.
    pub(crate) fn was_read(&self, range: Range<usize>) {
        if self.read.is_empty() || range.is_empty() {
            return;
        }
        let mut count = 0;
        for block in &self.read[range.start / BLOCK_BYTES..=(range.end - 1) / BLOCK_BYTES] {
            // Most were read before: a look costs no other core its cache line.
            if !block.load(Ordering::Relaxed) && !block.swap(true, Ordering::Relaxed) {
                count += 1;
            }
        }
        if count > 0 && self.read_count.fetch_add(count, Ordering::Relaxed) + count > BLOCKS_MAX {
            self.read_count.store(0, Ordering::Relaxed);
            self.read.iter().for_each(|block| block.store(false, Ordering::Relaxed));
            self.region.release_pages(0..self.region.len());
        }
    }
}
