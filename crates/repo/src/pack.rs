//! A pack and its index, read in place.

use std::sync::OnceLock;

use weir_archive::Region;
use weir_git::{HashKind, Oid};

use crate::entry::{EntryHead, Stored};
use crate::error::{Result, corrupt};
use crate::index::Index;

/// Bytes of a pack's header: signature, version, count.
pub const PACK_HEADER_BYTES: u64 = 12;

/// A pack with its index.
#[derive(Debug)]
pub struct Pack {
    name: String,
    data: Region,
    index: Index,
    hash: HashKind,
    order: OnceLock<PackOrder>,
    /// The reverse index, if there is one: it saves sorting, and is checked as it is read.
    reverse: Option<Region>,
}

/// The objects of a pack in the order they lie in it.
#[derive(Debug)]
pub struct PackOrder {
    /// Index positions by rank in the pack.
    pub index_by_rank: Vec<u32>,
    /// Ranks in the pack by index position.
    pub rank_by_index: Vec<u32>,
    /// Where entries start, by rank; the last one is where all end.
    offsets: Vec<u64>,
}

impl PackOrder {
    /// Where the entry of the object with rank `rank` starts; where all end, for one more than the last.
    #[inline]
    pub fn offset(&self, rank: u32) -> u64 {
        self.offsets[rank as usize]
    }
}

impl Pack {
    /// Checks header, index and that they belong together. `name` is without suffix, for messages and companions.
    ///
    /// # Errors
    /// If one is corrupt.
    pub fn open(name: &str, data: Region, index: Region, hash: HashKind) -> Result<Pack> {
        let index = Index::open(&format!("{name}.idx"), index, hash)?;
        let trailer = hash.len();
        if data.len() < 12 + trailer || data[..4] != *b"PACK" || !matches!(data[4..8], [0, 0, 0, 2 | 3]) {
            return corrupt(format!("{name}.pack"), "not a version 2 pack");
        }
        let count = u32::from_be_bytes(data[8..12].try_into().expect("four bytes"));
        if count != index.count() {
            return corrupt(format!("{name}.pack"), format!("it says {count} objects, its index {}", index.count()));
        }
        if data[data.len() - trailer..] != *index.pack_checksum().as_bytes() {
            return corrupt(format!("{name}.idx"), "it belongs to another pack");
        }
        Ok(Pack { name: name.to_owned(), data, index, hash, order: OnceLock::new(), reverse: None })
    }

    /// The name without suffix: `objects/pack/pack-<checksum>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole pack.
    pub fn data(&self) -> &Region {
        &self.data
    }

    /// Its index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Its trailing checksum.
    pub fn checksum(&self) -> Oid {
        self.index.pack_checksum()
    }

    /// Where entries end: the length without the trailer.
    pub fn entries_end(&self) -> u64 {
        (self.data.len() - self.hash.len()) as u64
    }

    /// The head of the entry at `offset`.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn entry(&self, offset: u64) -> Result<EntryHead> {
        let end = self.entries_end();
        let head = (PACK_HEADER_BYTES..end)
            .contains(&offset)
            .then(|| EntryHead::parse(self.hash, &self.data[offset as usize..end as usize]))
            .flatten();
        match head {
            Some(head) => match head.stored {
                Stored::OfsDelta(distance) if distance == 0 || distance > offset - PACK_HEADER_BYTES => {
                    corrupt(format!("{}.pack", self.name), format!("the delta at {offset} has its base outside"))
                }
                _ => Ok(head),
            },
            None => corrupt(format!("{}.pack", self.name), format!("no entry at {offset}")),
        }
    }

    /// The offset of the object at index position `position`.
    ///
    /// # Errors
    /// If the index is corrupt.
    #[inline]
    pub fn offset(&self, position: u32) -> Result<u64> {
        match self.index.offset(position) {
            Some(offset) if (PACK_HEADER_BYTES..self.entries_end()).contains(&offset) => Ok(offset),
            _ => corrupt(format!("{}.idx", self.name), format!("the offset of object {position} is outside the pack")),
        }
    }

    /// Whether each entry's CRC-32 is what the index says. Reads all of the pack.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn crcs_match(&self) -> Result<bool> {
        let order = self.order()?;
        for rank in 0..self.index.count() {
            let (start, end) = (order.offset(rank), order.offset(rank + 1));
            let position = order.index_by_rank[rank as usize];
            let entry = self.data.get(start as usize..end as usize);
            if entry.map(crc32fast::hash) != Some(self.index.crc32(position)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// This pack with the reverse index in `data`.
    pub(crate) fn with_reverse_index(self, data: Option<Region>) -> Pack {
        Pack { reverse: data, ..self }
    }

    /// The order that the reverse index (gitformat-pack, "pack-*.rev files") tells, if it tells the truth.
    fn stored_order(&self) -> Result<Option<PackOrder>> {
        const HEADER_BYTES: usize = 12;
        let n = self.index.count() as usize;
        let Some(data) = &self.reverse else { return Ok(None) };
        if data.len() != HEADER_BYTES + n * 4 + 2 * self.hash.len() || data[..8] != *b"RIDX\0\0\0\x01" {
            return Ok(None);
        }
        let positions = data[HEADER_BYTES..HEADER_BYTES + n * 4].chunks_exact(4);
        let index_by_rank: Vec<u32> = positions.map(|p| u32::from_be_bytes(p.try_into().expect("four bytes"))).collect();
        let mut offsets = Vec::with_capacity(n + 1);
        let mut rank_by_index = vec![0; n];
        for (rank, &position) in index_by_rank.iter().enumerate() {
            if position as usize >= n {
                return Ok(None);
            }
            let offset = self.offset(position)?;
            // Ever further: so none is named twice, and none left out.
            if offsets.last().is_some_and(|last| *last >= offset) {
                return Ok(None);
            }
            offsets.push(offset);
            rank_by_index[position as usize] = rank as u32;
        }
        offsets.push(self.entries_end());
        Ok(Some(PackOrder { index_by_rank, rank_by_index, offsets }))
    }

    /// The order of objects in the pack; read or computed when first asked for.
    ///
    /// # Errors
    /// If the index is corrupt.
    pub fn order(&self) -> Result<&PackOrder> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        if let Some(order) = self.stored_order()? {
            return Ok(self.order.get_or_init(|| order));
        }
        let n = self.index.count();
        let mut by_offset = Vec::with_capacity(n as usize);
        for position in 0..n {
            by_offset.push((self.offset(position)?, position));
        }
        by_offset.sort_unstable();
        let offsets = by_offset.iter().map(|entry| entry.0).chain([self.entries_end()]).collect();
        let index_by_rank: Vec<u32> = by_offset.into_iter().map(|(_, position)| position).collect();
        let mut rank_by_index = vec![0; n as usize];
        for (rank, &position) in index_by_rank.iter().enumerate() {
            rank_by_index[position as usize] = rank as u32;
        }
        Ok(self.order.get_or_init(|| PackOrder { index_by_rank, rank_by_index, offsets }))
    }

    /// The index position of the object with rank `rank`.
    ///
    /// # Errors
    /// If the index is corrupt, or there is no such rank.
    pub(crate) fn index_position(&self, rank: u32) -> Result<u32> {
        let position = self.order()?.index_by_rank.get(rank as usize).copied();
        position.map_or_else(|| corrupt(format!("{}.pack", self.name), format!("there is no object of rank {rank}")), Ok)
    }

    /// Where the entry of the object with rank `rank` ends.
    ///
    /// # Errors
    /// If the index is corrupt.
    pub fn entry_end(&self, rank: u32) -> Result<u64> {
        let order = self.order()?;
        Ok(order.offsets.get(rank as usize + 1).copied().unwrap_or(self.entries_end()))
    }

    /// The index position of the object whose entry starts at `offset`.
    ///
    /// # Errors
    /// If no object's does.
    pub fn position_at(&self, offset: u64) -> Result<u32> {
        let order = self.order()?;
        match order.offsets[..order.index_by_rank.len()].binary_search(&offset) {
            Ok(rank) => Ok(order.index_by_rank[rank]),
            Err(_) => corrupt(format!("{}.pack", self.name), format!("no object starts at {offset}")),
        }
    }
}
