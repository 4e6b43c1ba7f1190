//! Where the bytes of an incoming pack go: memory while it is small, then a file.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use weir_archive::Region;

/// Packs up to this size stay in memory.
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// Gives the file that a large pack goes to; called at most a few times a pack, each time for a new file.
pub type SpillFn<'a> = &'a dyn Fn() -> io::Result<File>;

/// A pack being written.
pub(crate) struct Spool<'a> {
    memory: Vec<u8>,
    file: Option<File>,
    len: u64,
    spill: SpillFn<'a>,
}

impl<'a> Spool<'a> {
    pub(crate) fn new(spill: SpillFn<'a>) -> Spool<'a> {
        Spool { memory: Vec::new(), file: None, len: 0, spill }
    }

    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + data.len() > MEMORY_BYTES_MAX {
            let file = (self.spill)()?;
            file.write_all_at(&self.memory, 0)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &self.file {
            Some(file) => file.write_all_at(data, self.len)?,
            None => self.memory.extend_from_slice(data),
        }
        self.len += data.len() as u64;
        Ok(())
    }

    pub(crate) fn finish(self) -> io::Result<PackData> {
        match self.file {
            None => Ok(PackData(Data::Memory(self.memory))),
            Some(file) => PackData::mapped(Arc::new(file), self.len),
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

impl Deref for PackData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Data::Memory(m) => m,
            Data::File(r) => r,
        }
    }
}
