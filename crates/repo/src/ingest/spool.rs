//! Holds the bytes of an incoming pack: in memory while it is small, then in a file.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_archive::Region;

use super::buffers;
use crate::arriving::ArrivingPack;
use crate::objects::resident::Resident;

/// Packs up to this size stay in memory.
const MEMORY_BYTES_MAX: u64 = 1 << 20;
/// A pack takes its share of a limit in pieces of this many bytes.
const SHARE_BYTES: u64 = 4 << 20;
/// The size of the pieces in which a pack is read from start to end.
const PIECE_BYTES: usize = 8 << 20;

/// A place for a pack that outgrew the place before.
pub struct SpillPlace {
    /// An empty file that no other process has.
    pub file: Arc<File>,
    /// The most bytes the file may take; for more, another place is asked for.
    pub bytes_max: u64,
    /// The share of a limit for all packs in that place. Once the limit is used up, another place is asked
    /// for, too.
    pub share: Option<QuotaShare>,
}

impl SpillPlace {
    /// Returns a place for which weir sets no limit.
    pub fn unlimited(file: File) -> SpillPlace {
        SpillPlace { file: Arc::new(file), bytes_max: u64::MAX, share: None }
    }

    /// Returns whether the pack may have `bytes` here.
    fn has_room(&mut self, bytes: u64) -> bool {
        bytes <= self.bytes_max && self.share.as_mut().is_none_or(|share| share.grow(bytes))
    }
}

/// The bytes that all packs in one folder may take together.
#[derive(Debug)]
pub struct Quota {
    used: AtomicU64,
    max: u64,
}

impl Quota {
    /// Makes a quota of `max` bytes.
    pub fn new(max: u64) -> Arc<Quota> {
        Arc::new(Quota { used: AtomicU64::new(0), max })
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Takes `bytes` for one pack; returns `None` if fewer are left.
    pub fn share(self: &Arc<Quota>, bytes: u64) -> Option<QuotaShare> {
        let bytes = bytes.max(1).checked_next_multiple_of(SHARE_BYTES)?;
        self.take(bytes).then(|| QuotaShare { quota: self.clone(), bytes })
    }
}

/// The share of one pack in a [`Quota`]; dropping it gives the bytes back.
pub struct QuotaShare {
    quota: Arc<Quota>,
    bytes: u64,
}

impl QuotaShare {
    fn grow(&mut self, bytes: u64) -> bool {
        let Some(wanted) = bytes.checked_next_multiple_of(SHARE_BYTES) else { return false };
        let more = wanted.saturating_sub(self.bytes);
        let has = more == 0 || self.quota.take(more);
        if has {
            self.bytes += more;
        }
        has
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        self.quota.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the place for a pack of more than the given number of bytes. It is called again if that place is
/// outgrown or full.
pub type SpillFn<'a> = &'a (dyn Fn(u64) -> io::Result<SpillPlace> + Sync);

/// A pack being written.
pub(crate) struct PackSpool<'a> {
    memory: Vec<u8>,
    place: Option<SpillPlace>,
    len: u64,
    spill: SpillFn<'a>,
    /// Those who send the pack on meanwhile.
    arriving: Option<&'a ArrivingPack>,
}

impl<'a> PackSpool<'a> {
    pub(crate) fn new(spill: SpillFn<'a>, arriving: Option<&'a ArrivingPack>) -> PackSpool<'a> {
        PackSpool { memory: buffers::take(), place: None, len: 0, spill, arriving }
    }

    /// Returns the number of bytes written.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let end = self.len + data.len() as u64;
        let fits = self.place.as_mut().map_or(end <= MEMORY_BYTES_MAX, |place| place.has_room(end));
        if !fits {
            self.move_on(end)?;
        }
        match &self.place {
            None => self.memory.extend_from_slice(data),
            Some(place) => match place.file.write_all_at(data, self.len) {
                Ok(()) => {}
                // A full ramdisk is no reason to fail: the next place may have room. If the last place is
                // full, its error is returned.
                Err(e) if e.kind() == io::ErrorKind::StorageFull && place.bytes_max != u64::MAX => {
                    self.move_on(place.bytes_max.max(end) + 1)?;
                    let place = self.place.as_ref().expect("just set");
                    place.file.write_all_at(data, self.len)?;
                }
                Err(e) => return Err(e),
            },
        }
        self.len = end;
        if let (Some(arriving), Some(place)) = (self.arriving, &self.place) {
            arriving.grew(&place.file, end);
        }
        Ok(())
    }

    /// Moves the data to a place for `bytes` and more.
    fn move_on(&mut self, bytes: u64) -> io::Result<()> {
        let next = (self.spill)(bytes)?;
        match self.place.take() {
            None => {
                next.file.write_all_at(&self.memory, 0)?;
                buffers::give(std::mem::take(&mut self.memory));
            }
            Some(old) => {
                let mut buf = vec![0; 1 << 20];
                let mut at = 0;
                while at < self.len {
                    let n = (self.len - at).min(buf.len() as u64) as usize;
                    old.file.read_exact_at(&mut buf[..n], at)?;
                    next.file.write_all_at(&buf[..n], at)?;
                    at += n as u64;
                }
            }
        }
        self.place = Some(next);
        Ok(())
    }

    pub(crate) fn finish(self) -> io::Result<PackData> {
        match self.place {
            None => {
                if let Some(arriving) = self.arriving {
                    arriving.is(&self.memory);
                }
                Ok(PackData { data: SpooledData::Memory(self.memory), _share: None })
            }
            Some(place) => {
                // SAFETY: no other process can open a file without a name, and `write_at` below unmaps it
                // first.
                let region = unsafe { Region::map(place.file, self.len)? };
                let share = place.share.map(Arc::new);
                if let (Some(arriving), Some(share)) = (self.arriving, &share) {
                    arriving.hold(share.clone());
                }
                Ok(PackData { data: SpooledData::File(Resident::new(region)), _share: share })
            }
        }
    }
}

/// Spools everything that `reader` returns.
pub(crate) fn spool_reader(reader: &mut dyn io::Read, spill: SpillFn<'_>) -> io::Result<PackData> {
    let mut spool = PackSpool::new(spill, None);
    let mut piece = vec![0; 64 << 10];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return spool.finish(),
            Ok(n) => spool.write(&piece[..n])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The bytes of a pack, in memory or in an unnamed file.
pub struct PackData {
    data: SpooledData,
    _share: Option<Arc<QuotaShare>>,
}

enum SpooledData {
    Memory(Vec<u8>),
    /// The file belongs to this process and only grows, so the map is never cut short.
    File(Resident),
}

impl PackData {
    /// Writes `data` at `offset`. If `offset` is the end, the pack grows.
    pub(crate) fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        match &mut self.data {
            SpooledData::Memory(m) => {
                let (start, end) = (offset as usize, offset as usize + data.len());
                if m.len() < end {
                    m.resize(end, 0);
                }
                m[start..end].copy_from_slice(data);
            }
            SpooledData::File(resident) => {
                let file = resident.region().file().clone();
                let len = resident.region().len() as u64;
                // The file is unmapped before it is written to, so that no `&[u8]` sees bytes change.
                // SAFETY: the region is empty.
                *resident = Resident::new(unsafe { Region::map(file.clone(), 0)? });
                file.write_all_at(data, offset)?;
                // SAFETY: no other process can open a file without a name, and this method writes only while
                // it is not mapped.
                let region = unsafe { Region::map(file, len.max(offset + data.len() as u64))? };
                *resident = Resident::new(region);
            }
        }
        Ok(())
    }

    /// Notes that `range` was read, in any order: see [`Resident::was_read`].
    pub(crate) fn was_read(&self, range: Range<usize>) {
        if let SpooledData::File(resident) = &self.data {
            resident.was_read(range);
        }
    }

    /// Checks that everything read so far could be read: where the disk fails, the map reads as zeroes.
    ///
    /// # Errors
    /// If a part could not be read.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.data {
            SpooledData::Memory(_) => Ok(()),
            SpooledData::File(resident) => resident.region().check(),
        }
    }

    /// Calls `take` with all bytes in order, piece by piece, and releases the pages of each piece.
    ///
    /// # Errors
    /// If `take` fails.
    pub(crate) fn in_pieces<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut start = 0;
        for piece in self.chunks(PIECE_BYTES) {
            take(piece)?;
            if let SpooledData::File(resident) = &self.data {
                resident.region().release_pages(start..start + piece.len());
            }
            start += piece.len();
        }
        Ok(())
    }
}

impl Drop for PackData {
    fn drop(&mut self) {
        if let SpooledData::Memory(memory) = &mut self.data {
            buffers::give(std::mem::take(memory));
        }
    }
}

impl Deref for PackData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.data {
            SpooledData::Memory(m) => m,
            SpooledData::File(resident) => resident.region(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_share_a_limit_and_those_beyond_it_go_elsewhere() {
        let quota = Quota::new(3 * SHARE_BYTES);
        let used = || quota.used.load(Ordering::Relaxed) / SHARE_BYTES;
        let place = |bytes| {
            let file = Arc::new(tempfile::tempfile()?);
            let share = quota.share(bytes);
            Ok(if share.is_some() {
                SpillPlace { file, bytes_max: 4 * SHARE_BYTES, share }
            } else {
                SpillPlace { file, bytes_max: u64::MAX, share: None }
            })
        };
        let pack = |bytes: u64| spool_reader(&mut io::Read::take(io::repeat(7), bytes), &place).unwrap();
        let first = pack(SHARE_BYTES + 1);
        assert_eq!(used(), 2);
        let second = pack(3 << 20);
        assert_eq!(used(), 3);
        let third = pack(2 * SHARE_BYTES);
        assert_eq!((used(), third.len() as u64), (3, 2 * SHARE_BYTES), "there is no room left");
        drop(first);
        assert_eq!(used(), 1);
        // Outgrown on the way: the share that was taken is given back.
        let fourth = pack(4 * SHARE_BYTES);
        assert_eq!((used(), fourth.len() as u64, fourth.iter().all(|b| *b == 7)), (1, 4 * SHARE_BYTES, true));
        drop((second, third, fourth));
        assert_eq!(used(), 0);
    }
}
