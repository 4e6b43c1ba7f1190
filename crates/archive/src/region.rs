//! A part of a file, mapped: what packs and indices are read from in place.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};

/// Some bytes of a file that is open and mapped. Cheap to clone; dereferences to the bytes.
#[derive(Clone)]
pub struct Region {
    file: Arc<File>,
    map: Option<Arc<Mmap>>,
    /// Of the map.
    range: Range<usize>,
    /// Where the map starts in the file.
    map_offset: u64,
}

impl Region {
    /// Maps the first `len` bytes of `file`, which nobody may shorten below that while the region lives. For archives
    /// this holds because committed bytes are never cut (only the tail after them is, by the one writer); for packs of
    /// a git directory because git writes them once and only ever unlinks them.
    ///
    /// # Errors
    /// Of the system; `UnexpectedEof` if the file is shorter.
    pub fn map(file: Arc<File>, len: u64) -> io::Result<Region> {
        Region::map_at(file, 0, len)
    }

    /// Maps `len` bytes from `offset` on, under the same condition.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn map_at(file: Arc<File>, offset: u64, len: u64) -> io::Result<Region> {
        let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        if file.metadata()?.len() < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 {
            return Ok(Region { file, map: None, range: 0..0, map_offset: offset });
        }
        // SAFETY: the mapped bytes stay in the file while the map lives (see above), so no access faults; they are only
        // read, and whoever opened the file does not write to this part of it.
        let map = unsafe { MmapOptions::new().offset(offset).len(len).map(&*file)? };
        Ok(Region { file, map: Some(Arc::new(map)), range: 0..len, map_offset: offset })
    }

    /// The part `range` of this region; `None` if it reaches outside.
    pub fn slice(&self, range: Range<u64>) -> Option<Region> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        if start > end || end > self.range.len() {
            return None;
        }
        Some(Region { range: self.range.start + start..self.range.start + end, ..self.clone() })
    }

    /// Lets go of the pages that hold `range`: they stay in the system's cache and come back when they are read, but count
    /// no longer as this process's memory. Only a hint.
    pub fn release_pages(&self, range: Range<usize>) {
        const PAGE_BYTES: usize = 4096;
        let Some(map) = &self.map else { return };
        let start = (self.range.start + range.start).next_multiple_of(PAGE_BYTES);
        let end = (self.range.start + range.end.min(self.range.len())) / PAGE_BYTES * PAGE_BYTES;
        if start < end {
            // SAFETY: the map is of a file, shared and only read: pages dropped here are read from the file again.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    /// The file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where this region starts in its file, in bytes.
    pub fn file_offset(&self) -> u64 {
        self.map_offset + self.range.start as u64
    }
}

impl Deref for Region {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], |m| &m[self.range.clone()])
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes at {})", self.range.len(), self.file_offset())
    }
}
