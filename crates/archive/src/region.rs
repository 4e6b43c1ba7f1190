//! A mapped part of a file, from which packs and indices are read in place.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};

use crate::fault::Noted;

/// Some bytes of an open and mapped file. Cheap to clone; dereferences to the bytes.
#[derive(Clone)]
pub struct Region {
    file: Arc<File>,
    map: Option<Arc<Mapped>>,
    /// Bytes of the region within the map. The map starts at the first byte of the file.
    range: Range<usize>,
}

/// A map, and the mark that some of it could not be read. The mark is dropped first.
struct Mapped {
    noted: Noted,
    bytes: Mmap,
}

impl Region {
    /// Maps the first `len` bytes of `file`. Bytes that the disk cannot read, or that are truncated later,
    /// read as zeroes; [`Region::check`] then returns an error.
    ///
    /// # Errors
    /// If a system call fails; `UnexpectedEof` if the file is shorter.
    ///
    /// # Safety
    /// No process may write to these bytes while the region, or one that was cut from it, lives. For archives
    /// this holds because committed bytes are never changed; for packs of a git directory because git writes
    /// them once and only ever unlinks them.
    pub unsafe fn map(file: Arc<File>, len: u64) -> io::Result<Region> {
        if file.metadata()?.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 {
            return Ok(Region { file, map: None, range: 0..0 });
        }
        // SAFETY: the caller guarantees that no process writes to the mapped bytes. `fault` handles an access
        // that faults.
        let bytes = unsafe { MmapOptions::new().len(len).map(&*file)? };
        let mapped = Mapped { noted: Noted::new(bytes.as_ptr(), bytes.len()), bytes };
        Ok(Region { file, map: Some(Arc::new(mapped)), range: 0..len })
    }

    /// Returns the part `range` of this region; `None` if it reaches outside.
    pub fn slice(&self, range: Range<u64>) -> Option<Region> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        if start > end || end > self.range.len() {
            return None;
        }
        Some(Region { range: self.range.start + start..self.range.start + end, ..self.clone() })
    }

    /// Checks whether everything that was read of the map so far could be read. Callers check before they use
    /// what they have read: bytes that cannot be read are zeroes.
    ///
    /// # Errors
    /// If something could not be read. Then nothing that comes from this map may be used.
    pub fn check(&self) -> io::Result<()> {
        match &self.map {
            // The error that the system gives for a block that it cannot read.
            Some(mapped) if mapped.noted.is_marked() => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }

    /// Releases the pages that hold `range`. They stay in the system's cache and come back when they are
    /// read, but no longer count as memory of this process. It is only a hint.
    pub fn release_pages(&self, range: Range<usize>) {
        const PAGE_BYTES: usize = 4096;
        let Some(map) = &self.map else { return };
        let start = (self.range.start + range.start).next_multiple_of(PAGE_BYTES);
        let end = (self.range.start + range.end.min(self.range.len())) / PAGE_BYTES * PAGE_BYTES;
        if start < end {
            // SAFETY: the map is of a file, shared and only read: pages dropped here are read from the file
            // again.
            let _ = unsafe {
                map.bytes.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns where this region starts in its file, in bytes.
    pub fn file_offset(&self) -> u64 {
        self.range.start as u64
    }
}

impl Deref for Region {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], |m| &m.bytes[self.range.clone()])
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes at {})", self.range.len(), self.file_offset())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_cut_off_under_a_map_reads_as_zeroes_and_is_told() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&[7; 3 * 4096], 0).unwrap();
        let map = |len| {
            // SAFETY: no process writes to the file. The test truncates it, which `fault` handles.
            unsafe { Region::map(file.clone(), len) }.unwrap()
        };
        let (region, other) = (map(3 * 4096), map(4096));
        assert!(region.iter().all(|b| *b == 7) && region.check().is_ok());
        file.set_len(4096).unwrap();
        let part = region.slice(2 * 4096..3 * 4096).unwrap();
        // On another thread, as in a server.
        let sum = std::thread::spawn(move || part.iter().map(|b| u64::from(*b)).sum::<u64>()).join().unwrap();
        assert_eq!(sum, 0);
        assert_eq!(region.check().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(other[..4096].iter().all(|b| *b == 7) && other.check().is_ok());
        // Other maps get the slot afterwards, and are not marked.
        drop(region);
        let many: Vec<Region> = (0..3000).map(|_| map(4096)).collect();
        assert!(many.iter().all(|region| region[0] == 7 && region.check().is_ok()));
    }
}
