//! Limits how much of a map counts as this process's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_archive::Region;

/// The bytes that the system maps at one fault.
const BLOCK_BYTES: usize = 64 << 10;
/// The most blocks that stay in memory.
const BLOCKS_MAX: usize = (48 << 20) / BLOCK_BYTES;

/// A region that is read in any order, of which only some 48 MiB stay this process's memory at a time.
pub(crate) struct Resident {
    region: Region,
    /// The blocks that were read since pages were last released.
    read: Vec<AtomicBool>,
    read_count: AtomicUsize,
}

impl Resident {
    pub(crate) fn new(region: Region) -> Resident {
        let blocks = region.len().div_ceil(BLOCK_BYTES);
        // Pages of a small region are never released.
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

    /// Notes that `range` was read. If much was read, the pages go back to the system. They stay in its
    /// cache, so reading them again costs a fault.
    pub(crate) fn was_read(&self, range: Range<usize>) {
        if self.read.is_empty() || range.is_empty() {
            return;
        }
        let mut count = 0;
        for block in &self.read[range.start / BLOCK_BYTES..=(range.end - 1) / BLOCK_BYTES] {
            // Most blocks were read before. A plain load leaves the cache line with other cores.
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
