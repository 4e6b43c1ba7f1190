//! A file on another machine of which the parts that were read are kept in a file here.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that are read at a time: about what a fast network carries while a request goes there and back.
pub(crate) const PART_BYTES: u64 = 256 << 10;
const _: () = assert!(PART_BYTES.is_power_of_two(), "offsets are divided by it");
/// Parts that are read ahead at most, of a reader that has read as many in a row.
const AHEAD_MAX: usize = 16;
/// Bytes of a checksum in the file of checksums; 0 stands for a part that is not there.
const SUM_BYTES: usize = 4;
/// How often a reader asks again because a connection broke off.
const TRIES_MAX: u32 = 3;

/// Reads bytes of a file on another machine.
pub(crate) trait ReadRange: Send + Sync {
    /// Returns the bytes in `range`. A caller who is `patient` can wait until the machine is there again.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read_range(&self, range: Range<u64>, patient: bool) -> io::Result<Box<dyn Read + Send>>;
}

/// Whether a part is kept here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartState {
    Absent,
    /// Somebody reads it.
    Coming,
    /// An earlier process has kept it, with this checksum.
    Unchecked(u32),
    Kept,
}

/// A file on another machine, read in parts.
pub(crate) struct FetchedFile {
    bytes: u64,
    kept: File,
    sums: File,
    parts: Mutex<Vec<PartState>>,
    changed: Condvar,
    source: Box<dyn ReadRange>,
    /// Bytes that are known, and may not be those of the other machine any more.
    known: Vec<(u64, Vec<u8>)>,
}

impl FetchedFile {
    /// Returns the file of `bytes` bytes that `source` reads. Its parts are kept in the file `kept`, their
    /// checksums in `sums`; an earlier process may have written both.
    ///
    /// # Errors
    /// If these cannot be read.
    pub(crate) fn open(
        bytes: u64,
        kept: File,
        sums: File,
        source: Box<dyn ReadRange>,
        known: Vec<(u64, Vec<u8>)>,
    ) -> io::Result<FetchedFile> {
        let count = bytes.div_ceil(PART_BYTES) as usize;
        let mut stored = Vec::new();
        (&sums).take((count * SUM_BYTES) as u64).read_to_end(&mut stored)?;
        stored.resize(count * SUM_BYTES, 0);
        let part = |sum: &[u8; SUM_BYTES]| match u32::from_le_bytes(*sum) {
            0 => PartState::Absent,
            sum => PartState::Unchecked(sum),
        };
        let parts = Mutex::new(stored.as_chunks().0.iter().map(part).collect());
        Ok(FetchedFile { bytes, kept, sums, parts, changed: Condvar::new(), source, known })
    }

    fn parts(&self) -> MutexGuard<'_, Vec<PartState>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, parts: &Range<usize>) -> Range<u64> {
        parts.start as u64 * PART_BYTES..(parts.end as u64 * PART_BYTES).min(self.bytes)
    }

    /// Reads the bytes at `offset`. Returns the parts that a reader who goes on will want next.
    ///
    /// # Errors
    /// If they cannot be read, or are not in the file.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if buffer.is_empty() {
            return Ok(0..0);
        }
        let (first, last) = ((offset / PART_BYTES) as usize, ((end - 1) / PART_BYTES) as usize);
        let mut loose = Vec::new();
        let mut part = first;
        while part <= last {
            part = self.have(part..last + 1, true, &mut |part, data| loose.push((part, data.to_vec())))?;
        }
        if loose.is_empty() {
            self.kept.read_exact_at(buffer, offset)?;
        } else {
            // The disk takes nothing: what was read is in memory only.
            for part in first..=last {
                let (at, to) = (self.range(&(part..part + 1)), &mut *buffer);
                let wanted = at.start.max(offset)..at.end.min(end);
                let to = &mut to[(wanted.start - offset) as usize..(wanted.end - offset) as usize];
                match loose.iter().find(|(number, _)| *number == part) {
                    Some((_, data)) => {
                        let from = (wanted.start - at.start) as usize;
                        to.copy_from_slice(&data[from..from + to.len()]);
                    }
                    None => self.kept.read_exact_at(to, wanted.start)?,
                }
            }
        }
        Ok(self.next(first, last))
    }

    /// Returns the absent parts behind `last`, as many as lie in a row before `first`.
    fn next(&self, first: usize, last: usize) -> Range<usize> {
        let parts = self.parts();
        let before =
            parts[..first].iter().rev().take(AHEAD_MAX).take_while(|part| **part != PartState::Absent);
        let end = (last + 1 + before.count()).min(parts.len());
        let Some(at) = parts[last + 1..end].iter().position(|part| *part == PartState::Absent) else {
            return 0..0;
        };
        let start = last + 1 + at;
        start..(start + end - last - 1).min(parts.len())
    }

    /// Reads parts ahead that are absent.
    ///
    /// # Errors
    /// If they cannot be read now.
    pub(crate) fn read_ahead(&self, wanted: Range<usize>) -> io::Result<()> {
        let mut part = wanted.start;
        while part < wanted.end {
            part = self.have(part..wanted.end, false, &mut |_, _| {})?;
        }
        Ok(())
    }

    /// Returns some parts in a row, the first that are absent from the part `from` on; `None` if there are
    /// none.
    pub(crate) fn absent(&self, from: usize) -> Option<Range<usize>> {
        let parts = self.parts();
        let start = from + parts.get(from..)?.iter().position(|part| *part == PartState::Absent)?;
        let count =
            parts[start..].iter().take(AHEAD_MAX / 4).take_while(|part| **part == PartState::Absent).count();
        Some(start..start + count)
    }

    /// Makes sure that the first of `wanted` is kept, and those behind it that are as absent. Calls `loose`
    /// with what was read and cannot be kept. Returns the number behind.
    fn have(
        &self,
        wanted: Range<usize>,
        patient: bool,
        loose: &mut dyn FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        debug_assert!(!wanted.is_empty(), "no part is wanted");
        let first = wanted.start;
        let mut parts = self.parts();
        loop {
            match parts[first] {
                PartState::Kept => return Ok(first + 1),
                PartState::Coming if !patient => return Ok(first + 1),
                PartState::Coming => parts = self.changed.wait(parts).unwrap_or_else(PoisonError::into_inner),
                PartState::Unchecked(sum) => {
                    parts[first] = PartState::Coming;
                    drop(parts);
                    let range = self.range(&(first..first + 1));
                    let mut data = vec![0; (range.end - range.start) as usize];
                    let is_read = self.kept.read_exact_at(&mut data, range.start).is_ok();
                    let is_sound = is_read && sum_of(&data) == sum;
                    parts = self.parts();
                    parts[first] = if is_sound { PartState::Kept } else { PartState::Absent };
                    self.changed.notify_all();
                }
                PartState::Absent => {
                    let count =
                        parts[first..wanted.end].iter().take_while(|part| **part == PartState::Absent);
                    let coming = first..first + count.count();
                    parts[coming.clone()].fill(PartState::Coming);
                    drop(parts);
                    self.fetch(coming.clone(), patient, loose)?;
                    return Ok(coming.end);
                }
            }
        }
    }

    /// Reads the parts `coming`, which are marked so, and keeps each as it arrives.
    fn fetch(
        &self,
        coming: Range<usize>,
        patient: bool,
        loose: &mut dyn FnMut(usize, &[u8]),
    ) -> io::Result<()> {
        let is_marked = |part: &PartState| *part == PartState::Coming;
        debug_assert!(self.parts()[coming.clone()].iter().all(is_marked), "somebody else may read it, too");
        let settle = |parts: Range<usize>, as_what: PartState| {
            self.parts()[parts].fill(as_what);
            self.changed.notify_all();
        };
        let mut rest = coming.clone();
        let mut tries = 0;
        let mut read = |rest: &mut Range<usize>, mut reader: Box<dyn Read + Send>| -> io::Result<()> {
            for part in rest.clone() {
                let range = self.range(&(part..part + 1));
                let mut data = vec![0; (range.end - range.start) as usize];
                reader.read_exact(&mut data)?;
                self.patch(range.start, &mut data);
                let is_kept = self.keep(part, range.start, &data).is_ok();
                if !is_kept {
                    loose(part, &data);
                }
                rest.start = part + 1;
                settle(part..part + 1, if is_kept { PartState::Kept } else { PartState::Absent });
            }
            Ok(())
        };
        let done = loop {
            let range = self.range(&rest);
            match self.source.read_range(range, patient).map(|reader| read(&mut rest, reader)) {
                Ok(Ok(())) => break Ok(()),
                // The connection broke off.
                Ok(Err(_)) if patient && tries < TRIES_MAX => tries += 1,
                Ok(Err(e)) | Err(e) => break Err(e),
            }
        };
        settle(rest, PartState::Absent);
        done
    }

    fn keep(&self, part: usize, at: u64, data: &[u8]) -> io::Result<()> {
        self.kept.write_all_at(data, at)?;
        self.sums.write_all_at(&sum_of(data).to_le_bytes(), (part * SUM_BYTES) as u64)
    }

    /// Writes the known bytes over those of `data`, which begins at `start`.
    fn patch(&self, start: u64, data: &mut [u8]) {
        let end = start + data.len() as u64;
        for (at, bytes) in &self.known {
            let both = start.max(*at)..end.min(at + bytes.len() as u64);
            if both.start < both.end {
                let from = (both.start - at) as usize;
                let to = (both.start - start) as usize;
                let len = (both.end - both.start) as usize;
                data[to..to + len].copy_from_slice(&bytes[from..from + len]);
            }
        }
    }
}

fn sum_of(data: &[u8]) -> u32 {
    crc32fast::hash(data).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    /// Bytes on a machine that may be away, and how often it was asked.
    struct Far {
        data: Vec<u8>,
        is_away: AtomicBool,
        asked: AtomicU64,
    }

    impl ReadRange for Arc<Far> {
        fn read_range(&self, range: Range<u64>, _: bool) -> io::Result<Box<dyn Read + Send>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.is_away.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let part = self.data[range.start as usize..range.end as usize].to_vec();
            Ok(Box::new(io::Cursor::new(part)))
        }
    }

    const BYTES: u64 = 20 * PART_BYTES + 1000;

    fn far() -> Arc<Far> {
        let data = (0..BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        Arc::new(Far { data, is_away: AtomicBool::new(false), asked: AtomicU64::new(0) })
    }

    fn open(folder: &std::path::Path, far: &Arc<Far>) -> FetchedFile {
        let file = |name: &str| {
            let path = folder.join(name);
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        };
        FetchedFile::open(BYTES, file("kept"), file("sums"), Box::new(Arc::clone(far)), Vec::new()).unwrap()
    }

    fn check(file: &FetchedFile, far: &Far, offset: u64, len: usize) -> Range<usize> {
        let mut buffer = vec![0; len];
        let next = file.read(offset, &mut buffer).unwrap();
        assert_eq!(buffer, far.data[offset as usize..offset as usize + len]);
        next
    }

    #[test]
    fn parts_are_asked_for_once_also_by_a_later_process() {
        let folder = tempfile::tempdir().unwrap();
        let far = far();
        let asked = || far.asked.load(Ordering::Relaxed);
        let file = open(folder.path(), &far);
        check(&file, &far, 10, 100);
        check(&file, &far, PART_BYTES - 50, 100);
        check(&file, &far, BYTES - 30, 30);
        assert_eq!(asked(), 3);
        // Two that are absent, in one request.
        check(&file, &far, 4 * PART_BYTES + 1, 2 * PART_BYTES as usize - 1);
        assert_eq!(asked(), 4);
        drop(file);
        far.is_away.store(true, Ordering::Relaxed);
        let file = open(folder.path(), &far);
        check(&file, &far, 5 * PART_BYTES - 20, 40);
        assert_eq!(asked(), 4);
        assert!(file.read(8 * PART_BYTES, &mut [0; 10]).is_err());
        far.is_away.store(false, Ordering::Relaxed);
        check(&file, &far, 8 * PART_BYTES, 10);
        assert!(file.read(BYTES - 5, &mut [0; 6]).is_err(), "behind the end");
        // What the disk has lost is asked for again.
        File::options().write(true).open(folder.path().join("kept")).unwrap().set_len(PART_BYTES).unwrap();
        let file = open(folder.path(), &far);
        check(&file, &far, 5 * PART_BYTES - 20, 40);
        check(&file, &far, 0, 40);
        assert_eq!(asked(), 6 + 2);
    }

    #[test]
    fn who_reads_on_is_read_ahead_for() {
        let folder = tempfile::tempdir().unwrap();
        let far = far();
        let file = open(folder.path(), &far);
        assert_eq!(check(&file, &far, 0, 100), 0..0);
        assert_eq!(check(&file, &far, PART_BYTES, 100), 2..3);
        file.read_ahead(2..3).unwrap();
        assert_eq!(check(&file, &far, 2 * PART_BYTES, 100), 3..5);
        file.read_ahead(3..5).unwrap();
        assert_eq!(check(&file, &far, 3 * PART_BYTES, 100), 5..8);
        assert_eq!(check(&file, &far, 15 * PART_BYTES, 100), 0..0);
        assert_eq!(file.absent(0), Some(5..9));
        assert_eq!(file.absent(15), Some(16..20));
        assert_eq!(file.absent(100), None);
    }

    #[test]
    fn a_full_disk_only_costs_time() {
        let far = far();
        let full = || File::options().read(true).write(true).open("/dev/full").unwrap();
        let sums = tempfile::tempfile().unwrap();
        let file = FetchedFile::open(BYTES, full(), sums, Box::new(Arc::clone(&far)), Vec::new()).unwrap();
        for _ in 0..2 {
            check(&file, &far, PART_BYTES - 50, 100);
        }
        assert_eq!(far.asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn known_bytes_take_the_place_of_others() {
        let far = far();
        let temporary = || tempfile::tempfile().unwrap();
        let known = vec![(0, b"PACK".to_vec()), (PART_BYTES - 2, b"1234".to_vec())];
        let file =
            FetchedFile::open(BYTES, temporary(), temporary(), Box::new(Arc::clone(&far)), known).unwrap();
        let mut buffer = [0; 6];
        file.read(0, &mut buffer).unwrap();
        assert_eq!(buffer, [&b"PACK"[..], &far.data[4..6]].concat()[..]);
        let at = PART_BYTES as usize;
        file.read(PART_BYTES - 3, &mut buffer).unwrap();
        assert_eq!(buffer, [&far.data[at - 3..at - 2], b"1234", &far.data[at + 2..at + 3]].concat()[..]);
    }
}
