//! A pack and its index, read in place.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_archive::Region;
use weir_git::{HashKind, Oid};

use crate::error::{Result, corrupt};
use crate::objects::entry::{EntryHead, Stored};
use crate::objects::index::Index;

/// The size of a pack's header in bytes: signature, version, count.
pub const PACK_HEADER_BYTES: u64 = 12;

/// A pack with its index.
#[derive(Debug)]
pub struct Pack {
    name: String,
    data: Region,
    index: Index,
    hash: HashKind,
    order: OnceLock<PackOrder>,
    /// The reverse index, if there is one of the right shape. It saves sorting, and is checked as it is read.
    reverse: Option<Region>,
    /// How often a rank was searched for in the reverse index.
    rank_searches: AtomicU32,
}

/// The bytes of a reverse index before its positions.
const REVERSE_HEADER_BYTES: usize = 12;
/// This many searches for ranks cost as much as the whole order.
const RANK_SEARCHES_MAX: u32 = 8192;

/// The objects of a pack, in pack order.
#[derive(Debug)]
pub struct PackOrder {
    /// Index positions by rank in the pack.
    pub index_by_rank: Vec<u32>,
    /// Ranks in the pack by index position.
    pub rank_by_index: Vec<u32>,
    /// Where entries start, by rank. The last value is where the last entry ends.
    offsets: Vec<u64>,
}

impl PackOrder {
    /// Returns where the entry of rank `rank` starts. For the number of entries it returns where the last one
    /// ends.
    #[inline]
    pub fn offset(&self, rank: u32) -> u64 {
        self.offsets[rank as usize]
    }

    /// Returns the rank of the entry that starts at `offset`.
    pub fn rank_at(&self, offset: u64) -> Option<u32> {
        let starts = &self.offsets[..self.index_by_rank.len()];
        starts.binary_search(&offset).ok().map(|rank| rank as u32)
    }
}

impl Pack {
    /// Opens a pack: checks the header, the index, and that they belong together. `name` has no suffix; it is
    /// used for messages and companion files.
    ///
    /// # Errors
    /// If the pack or its index is corrupt.
    pub fn open(name: &str, data: Region, index: Region, hash: HashKind) -> Result<Pack> {
        let index = Index::open(&format!("{name}.idx"), index, hash)?;
        let trailer = hash.len();
        if data.len() < 12 + trailer || data[..4] != *b"PACK" || !matches!(data[4..8], [0, 0, 0, 2 | 3]) {
            return corrupt(format!("{name}.pack"), "not a version 2 pack");
        }
        let count = u32::from_be_bytes(data[8..12].try_into().expect("four bytes"));
        if count != index.count() {
            return corrupt(
                format!("{name}.pack"),
                format!("it says {count} objects, its index {}", index.count()),
            );
        }
        if data[data.len() - trailer..] != *index.pack_checksum().as_bytes() {
            return corrupt(format!("{name}.idx"), "it belongs to another pack");
        }
        Ok(Pack {
            name: name.to_owned(),
            data,
            index,
            hash,
            order: OnceLock::new(),
            reverse: None,
            rank_searches: AtomicU32::new(0),
        })
    }

    /// Returns the name without suffix: `objects/pack/pack-<checksum>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole pack.
    pub fn data(&self) -> &Region {
        &self.data
    }

    /// Returns the index of the pack.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the trailing checksum of the pack.
    pub fn checksum(&self) -> Oid {
        self.index.pack_checksum()
    }

    /// Returns where the entries end: the length without the trailer.
    pub fn entries_end(&self) -> u64 {
        (self.data.len() - self.hash.len()) as u64
    }

    /// Returns the head of the entry at `offset`.
    ///
    /// # Errors
    /// If there is no entry at `offset`.
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
                    corrupt(
                        format!("{}.pack", self.name),
                        format!("the delta at {offset} has its base outside"),
                    )
                }
                _ => Ok(head),
            },
            None => corrupt(format!("{}.pack", self.name), format!("no entry at {offset}")),
        }
    }

    /// Returns the offset of the object at index position `position`.
    ///
    /// # Errors
    /// If the index is corrupt.
    #[inline]
    pub fn offset(&self, position: u32) -> Result<u64> {
        match self.index.offset(position) {
            Some(offset) if (PACK_HEADER_BYTES..self.entries_end()).contains(&offset) => Ok(offset),
            _ => corrupt(
                format!("{}.idx", self.name),
                format!("the offset of object {position} is outside the pack"),
            ),
        }
    }

    /// Checks whether each entry has the CRC-32 of the index. Reads the whole pack.
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

    /// Returns this pack with the reverse index (gitformat-pack, "pack-*.rev files") in `data`, if that has
    /// the right shape and checksum.
    pub(crate) fn with_reverse_index(self, data: Option<Region>) -> Pack {
        let end = REVERSE_HEADER_BYTES + self.index.count() as usize * 4;
        let is_of_it = |data: &Region| {
            data.len() == end + 2 * self.hash.len()
                && data[..8] == *b"RIDX\0\0\0\x01"
                && data[end..end + self.hash.len()] == *self.checksum().as_bytes()
        };
        let reverse = data.filter(is_of_it);
        Pack { reverse, ..self }
    }

    /// Returns the order of the reverse index, if it is correct.
    fn stored_order(&self) -> Result<Option<PackOrder>> {
        let n = self.index.count() as usize;
        let Some(data) = &self.reverse else { return Ok(None) };
        let positions = data[REVERSE_HEADER_BYTES..REVERSE_HEADER_BYTES + n * 4].chunks_exact(4);
        let index_by_rank: Vec<u32> =
            positions.map(|p| u32::from_be_bytes(p.try_into().expect("four bytes"))).collect();
        let mut offsets = Vec::with_capacity(n + 1);
        let mut rank_by_index = vec![0; n];
        for (rank, &position) in index_by_rank.iter().enumerate() {
            if position as usize >= n {
                return Ok(None);
            }
            let offset = self.offset(position)?;
            // Offsets must ascend, so no object is named twice and none is left out.
            if offsets.last().is_some_and(|last| *last >= offset) {
                return Ok(None);
            }
            offsets.push(offset);
            rank_by_index[position as usize] = rank as u32;
        }
        offsets.push(self.entries_end());
        Ok(Some(PackOrder { index_by_rank, rank_by_index, offsets }))
    }

    /// Returns index position and start of the object with rank `rank`, from the reverse index alone.
    #[inline]
    fn stored_place(&self, rank: u32) -> Option<(u32, u64)> {
        let at = REVERSE_HEADER_BYTES + rank as usize * 4;
        let position = u32::from_be_bytes(self.reverse.as_ref()?.get(at..at + 4)?.try_into().ok()?);
        let offset = (position < self.index.count()).then(|| self.offset(position).ok())??;
        Some((position, offset))
    }

    /// Returns index position, start and end of the object with rank `rank`, from the reverse index alone. It
    /// compares the object with the one before and the two after, so that no single wrong position passes. If
    /// their order is wrong it returns `None`. Then the caller builds the whole order, which finds the fault.
    #[inline]
    fn stored_extent(&self, rank: u32) -> Option<(u32, u64, u64)> {
        let count = self.index.count();
        if rank >= count {
            return None;
        }
        let before = if rank == 0 { PACK_HEADER_BYTES - 1 } else { self.stored_place(rank - 1)?.1 };
        let (position, start) = self.stored_place(rank)?;
        let start_of =
            |rank| if rank >= count { Some(self.entries_end()) } else { Some(self.stored_place(rank)?.1) };
        let (end, after) = (start_of(rank + 1)?, start_of(rank + 2)?);
        (before < start && start < end && (end < after || rank + 1 == count))
            .then_some((position, start, end))
    }

    /// Returns the first rank whose object starts at `offset` or later, according to the reverse index.
    fn stored_rank_from(&self, offset: u64) -> Option<u32> {
        if self.reverse.is_none() || self.rank_searches.fetch_add(1, Ordering::Relaxed) >= RANK_SEARCHES_MAX {
            return None;
        }
        let (mut low, mut high) = (0, self.index.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.stored_place(middle)?.1 < offset { low = middle + 1 } else { high = middle }
        }
        Some(low)
    }

    /// Returns index position, start and end of the object with rank `rank`. It uses the stored indexes until
    /// the whole order has been built.
    ///
    /// # Errors
    /// If the index is corrupt, or there is no such rank.
    #[inline]
    pub(crate) fn extent(&self, rank: u32) -> Result<(u32, u64, u64)> {
        if self.order.get().is_none()
            && let Some(extent) = self.stored_extent(rank)
        {
            return Ok(extent);
        }
        let order = self.order()?;
        match order.index_by_rank.get(rank as usize) {
            Some(&position) => Ok((position, order.offset(rank), order.offset(rank + 1))),
            None => corrupt(format!("{}.pack", self.name), format!("there is no object of rank {rank}")),
        }
    }

    /// Returns where the entries of the ranks `first..=last` start, and where the last one ends: one value
    /// more than ranks, ascending.
    ///
    /// # Errors
    /// If the index is corrupt, or there is no such rank.
    pub(crate) fn starts(&self, first: u32, last: u32) -> Result<Vec<u64>> {
        debug_assert!(first <= last, "ranks {first} to {last}");
        let ((_, start, _), (_, _, end)) = (self.extent(first)?, self.extent(last)?);
        let mut starts = Vec::with_capacity((last - first) as usize + 2);
        if self.order.get().is_none()
            && let Some(reverse) = &self.reverse
        {
            let positions =
                &reverse[REVERSE_HEADER_BYTES..].as_chunks::<4>().0[first as usize..=last as usize];
            let offsets = self.index.offsets();
            // These reads do not depend on each other. A wrong value breaks the order, which is checked
            // below.
            starts.extend(positions.iter().map(|p| {
                offsets.get(u32::from_be_bytes(*p) as usize).map_or(0, |o| u64::from(u32::from_be_bytes(*o)))
            }));
            starts.push(end);
            if starts[0] == start
                && starts.is_sorted_by(|a, b| a < b)
                && starts[starts.len() - 2] <= Index::SMALL_OFFSET_MAX
            {
                return Ok(starts);
            }
            starts.clear();
        }
        let order = self.order()?;
        starts.extend((first..=last).map(|rank| order.offset(rank)));
        starts.push(end);
        Ok(starts)
    }

    /// Returns the rank of the object at index position `position`, which must be below the count.
    ///
    /// # Errors
    /// If the index is corrupt.
    #[inline]
    pub(crate) fn rank(&self, position: u32) -> Result<u32> {
        debug_assert!(position < self.index.count(), "{position} of {}", self.index.count());
        if self.order.get().is_none()
            && let Some(rank) = self.stored_rank_from(self.offset(position)?)
            && self.stored_extent(rank).is_some_and(|(at, ..)| at == position)
        {
            return Ok(rank);
        }
        Ok(self.order()?.rank_by_index[position as usize])
    }

    /// Returns the order of objects in the pack. It is read or computed on first use.
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

    /// Returns the index position of the object whose entry starts at `offset`.
    ///
    /// # Errors
    /// If no object starts there.
    pub fn position_at(&self, offset: u64) -> Result<u32> {
        if self.order.get().is_none()
            && let Some((position, start)) =
                self.stored_rank_from(offset).and_then(|rank| self.stored_place(rank))
            && start == offset
        {
            return Ok(position);
        }
        let order = self.order()?;
        match order.rank_at(offset) {
            Some(rank) => Ok(order.index_by_rank[rank as usize]),
            None => corrupt(format!("{}.pack", self.name), format!("no object starts at {offset}")),
        }
    }
}

/// Returns the header of a pack of `count` objects.
pub fn pack_header(count: u32) -> [u8; 12] {
    let mut header = *b"PACK\0\0\0\x02\0\0\0\0";
    header[8..].copy_from_slice(&count.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::entry::push_whole_head;
    use crate::objects::index::{IndexEntry, write_index, write_reverse_index};

    fn region(data: &[u8]) -> Region {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, data).unwrap();
        // SAFETY: no other process can open a file without a name, and nothing writes to it any more.
        unsafe { Region::map(file.into(), data.len() as u64) }.unwrap()
    }

    /// A pack of `n` entries whose ids are not in pack order. Its reverse index is what `lie` makes of the
    /// right one.
    fn pack(n: u32, lie: impl Fn(&mut Vec<u32>)) -> (Pack, Vec<u32>, Vec<u64>) {
        let hash = HashKind::Sha1;
        let mut data = [b"PACK\0\0\0\x02".as_slice(), &n.to_be_bytes()].concat();
        let mut entries = Vec::new();
        let mut starts = Vec::new();
        for rank in 0..n {
            starts.push(data.len() as u64);
            let mut id = [0; 20];
            id[..4].copy_from_slice(&rank.wrapping_mul(2_654_435_761).to_be_bytes());
            entries.push(IndexEntry {
                oid: Oid::from_bytes(hash, &id).unwrap(),
                offset: data.len() as u64,
                crc32: 0,
            });
            push_whole_head(&mut data, weir_git::Kind::Blob, 1);
            data.extend(std::iter::repeat_n(7, 1 + rank as usize % 5));
        }
        starts.push(data.len() as u64);
        let checksum = Oid::from_bytes(hash, &[9; 20]).unwrap();
        data.extend_from_slice(checksum.as_bytes());
        let mut order: Vec<u32> = (0..n).collect();
        order.sort_by_key(|&rank| entries[rank as usize].oid);
        let mut positions = vec![0; n as usize];
        order.iter().zip(0..).for_each(|(&rank, position)| positions[rank as usize] = position);
        entries.sort_by_key(|e| e.oid);
        let mut told = positions.clone();
        lie(&mut told);
        let index = write_index(hash, entries.iter().copied(), &checksum);
        let reverse = write_reverse_index(hash, &told, &checksum);
        let pack = Pack::open("p", region(&data), region(&index), hash).unwrap();
        (pack.with_reverse_index(Some(region(&reverse))), positions, starts)
    }

    #[test]
    fn a_reverse_index_saves_the_order_and_one_that_lies_is_found_out() {
        let n = 100;
        type Lie = fn(&mut Vec<u32>);
        let lies: [Lie; 6] = [
            |_| (),
            |r| r.swap(3, 60),
            |r| r.swap(50, 51),
            |r| r[70] = 9,
            |r| r[0] = u32::MAX,
            |r| r.fill(0),
        ];
        for (i, lie) in lies.into_iter().enumerate() {
            for rank in 0..n {
                // Each rank is looked up first in a fresh pack: nothing is known from other lookups.
                let (p, positions, starts) = pack(n, lie);
                let expected = (positions[rank as usize], starts[rank as usize], starts[rank as usize + 1]);
                assert_eq!(p.extent(rank).unwrap(), expected, "lie {i}, rank {rank}");
                let (p, ..) = pack(n, lie);
                assert_eq!(p.rank(expected.0).unwrap(), rank, "lie {i}");
                let (p, ..) = pack(n, lie);
                assert_eq!(p.position_at(expected.1).unwrap(), expected.0, "lie {i}");
            }
            let (p, _, starts) = pack(n, lie);
            assert_eq!(p.starts(0, n - 1).unwrap(), starts, "lie {i}");
            assert_eq!(p.order.get().is_none(), i == 0, "only the true one was enough");
            assert!(p.extent(n).is_err() && p.position_at(13).is_err());
        }
    }
}
