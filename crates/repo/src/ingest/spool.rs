//! Where the bytes of an incoming pack go: memory while it is small, then a file.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use weir_archive::Region;

use super::buffers;

/// Packs up to this size stay in memory.
const MEMORY_BYTES_MAX: u64 = 1 << 20;

/// A place for a pack that outgrew the one before.
pub struct SpillPlace {
    /// An empty file, ours alone.
    pub file: File,
    /// Bytes it may take; beyond that another place is asked for.
    pub bytes_max: u64,
}

/// Gives the place that a pack of more than the given number of bytes goes to. Asked again if that is outgrown or full.
pub type SpillFn<'a> = &'a dyn Fn(u64) -> io::Result<SpillPlace>;

/// A pack being written.
pub(crate) struct Spool<'a> {
    memory: Vec<u8>,
    place: Option<SpillPlace>,
    len: u64,
    spill: SpillFn<'a>,
}

impl<'a> Spool<'a> {
    pub(crate) fn new(spill: SpillFn<'a>) -> Spool<'a> {
        Spool { memory: buffers::take(), place: None, len: 0, spill }
    }

    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let end = self.len + data.len() as u64;
        match &self.place {
            None if end > MEMORY_BYTES_MAX => self.move_on(end)?,
            Some(place) if end > place.bytes_max => self.move_on(end)?,
            _ => {}
        }
        match &self.place {
            None => self.memory.extend_from_slice(data),
            Some(place) => match place.file.write_all_at(data, self.len) {
                Ok(()) => {}
                // A full ramdisk is no reason to fail: the next place may have room. The last one says no itself.
                Err(e) if e.kind() == io::ErrorKind::StorageFull && place.bytes_max != u64::MAX => {
                    self.move_on(place.bytes_max.max(end) + 1)?;
                    let place = self.place.as_ref().expect("just set");
                    place.file.write_all_at(data, self.len)?;
                }
                Err(e) => return Err(e),
            },
        }
        self.len = end;
        Ok(())
    }

    /// Moves what is there to a place for `bytes` and more.
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
            None => Ok(PackData(Data::Memory(self.memory))),
            Some(place) => PackData::mapped(Arc::new(place.file), self.len),
        }
    }
}

/// All that `reader` has.
pub(crate) fn spool_reader(reader: &mut dyn io::Read, spill: SpillFn<'_>) -> io::Result<PackData> {
    let mut spool = Spool::new(spill);
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
pub struct PackData(Data);

enum Data {
    Memory(Vec<u8>),
    /// The file is ours alone and only grows: nobody cuts it under the map.
    File(Region),
}

impl PackData {
    fn mapped(file: Arc<File>, len: u64) -> io::Result<PackData> {
        Ok(PackData(Data::File(Region::map(file, len)?)))
    }

    pub(crate) fn new_memory(data: Vec<u8>) -> PackData {
        PackData(Data::Memory(data))
    }

    /// Writes `data` at `offset`, which may be the end: then the pack grows.
    pub(crate) fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        match &mut self.0 {
            Data::Memory(m) => {
                let (start, end) = (offset as usize, offset as usize + data.len());
                if m.len() < end {
                    m.resize(end, 0);
                }
                m[start..end].copy_from_slice(data);
            }
            Data::File(region) => {
                let file = region.file().clone();
                let len = region.len() as u64;
                // Unmapped before it is written to, so that no `&[u8]` sees bytes change.
                *region = Region::map(file.clone(), 0)?;
                file.write_all_at(data, offset)?;
                *region = Region::map(file, len.max(offset + data.len() as u64))?;
            }
        }
        Ok(())
    }
}

impl Drop for PackData {
    fn drop(&mut self) {
        if let Data::Memory(memory) = &mut self.0 {
            buffers::give(std::mem::take(memory));
        }
    }
}

impl Deref for PackData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Data::Memory(m) => m,
            Data::File(r) => r,
        }
    }
}
