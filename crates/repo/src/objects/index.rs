//! Pack indices, versions 1 and 2 (gitformat-pack), and reverse indices, version 1.

use std::io::Write;
use std::sync::Arc;

use weir_archive::Region;
use weir_git::{HashKind, Oid, plain_sha};

use crate::error::{Result, corrupt};

const HEADER_BYTES: usize = 8 + 256 * 4;

/// A pack index, read in place. Positions are ranks of ids in ascending order.
#[derive(Clone, Debug)]
pub struct Index {
    data: Region,
    hash: HashKind,
    count: u32,
}

const MAGIC: &[u8] = b"\xfftOc";

/// Returns an index of version 1 as one of version 2, in a temporary file.
fn from_version_1(name: &str, data: &[u8], hash: HashKind) -> Result<Region> {
    let (fan_out, entry) = (256 * 4, 4 + hash.len());
    let entries = data.get(fan_out..data.len().saturating_sub(2 * hash.len())).unwrap_or_default();
    if entries.len() % entry != 0 || data.len() < fan_out + 2 * hash.len() {
        return corrupt(name, "not a pack index");
    }
    let count = entries.len() / entry;
    if be32(data, fan_out - 4) as usize != count {
        return corrupt(name, "not a pack index");
    }
    let list: Vec<IndexEntry> = entries
        .chunks_exact(entry)
        .map(|entry| IndexEntry {
            oid: Oid::from_bytes(hash, &entry[4..]).expect("of its length"),
            offset: u64::from(be32(entry, 0)),
            crc32: 0,
        })
        .collect();
    if !list.is_sorted_by(|a, b| a.oid < b.oid) {
        return corrupt(name, "its ids are out of order");
    }
    let end = data.len() - 2 * hash.len();
    let checksum = Oid::from_bytes(hash, &data[end..end + hash.len()]).expect("of its length");
    let written = write_index(hash, list.into_iter(), &checksum);
    let mut file = tempfile::tempfile()?;
    file.write_all(&written)?;
    // SAFETY: no other process can open the file, and this one writes no more to it.
    Ok(unsafe { Region::map(Arc::new(file), written.len() as u64)? })
}

fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

impl Index {
    /// Opens an index and checks its shape: header, fan-out and length. Ids and offsets are checked where
    /// they are used. An index of version 1 is written anew as one of version 2, without checksums.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] with `name` in it, if the shape is wrong.
    pub fn open(name: &str, data: Region, hash: HashKind) -> Result<Index> {
        let data = if data.starts_with(MAGIC) { data } else { from_version_1(name, &data, hash)? };
        if data.len() < HEADER_BYTES + 2 * hash.len() || data[..8] != *b"\xfftOc\0\0\0\x02" {
            return corrupt(name, "not a version 2 pack index");
        }
        let mut previous = 0;
        for i in 0..256 {
            let n = be32(&data, 8 + i * 4);
            if n < previous {
                return corrupt(name, "its fan-out table decreases");
            }
            previous = n;
        }
        let count = previous;
        let fixed = HEADER_BYTES as u64 + u64::from(count) * (hash.len() as u64 + 8) + 2 * hash.len() as u64;
        let len = data.len() as u64;
        // At most one 64-bit offset per object follows.
        if len < fixed || !(len - fixed).is_multiple_of(8) || (len - fixed) / 8 > u64::from(count) {
            return corrupt(name, format!("{len} bytes are not right for {count} objects"));
        }
        Ok(Index { data, hash, count })
    }

    /// Returns the number of objects.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the raw id at `position`, which must be below [`Index::count`].
    #[inline]
    pub fn raw_id(&self, position: u32) -> &[u8] {
        debug_assert!(position < self.count, "{position} of {}", self.count);
        let len = self.hash.len();
        let at = HEADER_BYTES + position as usize * len;
        &self.data[at..at + len]
    }

    /// Returns the id at `position`.
    pub fn oid(&self, position: u32) -> Oid {
        Oid::from_bytes(self.hash, self.raw_id(position)).expect("of its length")
    }

    /// Returns the offset in the pack of the object at `position`; `None` if the index is corrupt there.
    #[inline]
    pub fn offset(&self, position: u32) -> Option<u64> {
        let n = self.count as usize;
        let table = HEADER_BYTES + n * (self.hash.len() + 4);
        let value = be32(&self.data, table + position as usize * 4);
        if value & 0x8000_0000 == 0 {
            return Some(u64::from(value));
        }
        let at = table + n * 4 + (value & 0x7fff_ffff) as usize * 8;
        let end = self.data.len() - 2 * self.hash.len();
        (at + 8 <= end).then(|| u64::from_be_bytes(self.data[at..at + 8].try_into().expect("eight bytes")))
    }

    /// The largest offset that [`Index::offsets`] holds itself.
    pub(crate) const SMALL_OFFSET_MAX: u64 = 0x7fff_ffff;

    /// Returns the table of offsets in the pack by position, big-endian. Offsets above
    /// [`Index::SMALL_OFFSET_MAX`] are replaced by places in another table.
    pub(crate) fn offsets(&self) -> &[[u8; 4]] {
        let n = self.count as usize;
        let table = HEADER_BYTES + n * (self.hash.len() + 4);
        self.data[table..table + n * 4].as_chunks().0
    }

    /// Returns the CRC-32 of the entry at `position`.
    pub fn crc32(&self, position: u32) -> u32 {
        be32(&self.data, HEADER_BYTES + self.count as usize * self.hash.len() + position as usize * 4)
    }

    /// Returns the position of the raw id `id`.
    #[inline]
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        let first_eight = |id: &[u8]| u64::from_be_bytes(id[..8].try_into().expect("eight bytes"));
        let key = first_eight(id);
        let is_below = |position: u32| first_eight(self.raw_id(position)) < key;
        let (mut low, mut high) = self.fan_out(id[0]);
        let end = high;
        if low < high {
            // Ids are uniform: the place is within some dozen of the guess.
            let guess = low + ((u64::from(high - low) * (key << 8 >> 32)) >> 32) as u32;
            let mut stride = 8;
            if is_below(guess) {
                low = guess + 1;
                while stride < high - low {
                    if !is_below(low + stride) {
                        high = low + stride;
                        break;
                    }
                    low += stride + 1;
                    stride *= 2;
                }
            } else {
                high = guess;
                while stride < high - low {
                    if is_below(high - stride) {
                        low = high - stride + 1;
                        break;
                    }
                    high -= stride;
                    stride *= 2;
                }
            }
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_below(middle) { low = middle + 1 } else { high = middle }
        }
        (low..end).take_while(|&p| first_eight(self.raw_id(p)) == key).find(|&p| self.raw_id(p) == id)
    }

    /// Returns the positions of ids whose hexadecimal starts with `prefix` (4 or more digits), at most `max`.
    pub fn find_prefix(&self, prefix: &str, max: usize) -> Vec<u32> {
        let Ok(first) = u8::from_str_radix(prefix.get(..2).unwrap_or(""), 16) else { return Vec::new() };
        let (low, high) = self.fan_out(first);
        (low..high).filter(|&p| self.oid(p).to_hex().starts_with(prefix)).take(max).collect()
    }

    fn fan_out(&self, first: u8) -> (u32, u32) {
        let low = if first == 0 { 0 } else { be32(&self.data, 8 + (usize::from(first) - 1) * 4) };
        (low, be32(&self.data, 8 + usize::from(first) * 4))
    }

    /// Returns the checksum of the pack that this index belongs to.
    pub fn pack_checksum(&self) -> Oid {
        let len = self.hash.len();
        let at = self.data.len() - 2 * len;
        Oid::from_bytes(self.hash, &self.data[at..at + len]).expect("of its length")
    }

    /// Returns the whole file.
    pub fn data(&self) -> &Region {
        &self.data
    }

    /// Returns the size of the index file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.data.len() as u64
    }
}

/// The index's data of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The id of the object.
    pub oid: Oid,
    /// Where its entry starts in the pack.
    pub offset: u64,
    /// The CRC-32 of the entry as it is stored.
    pub crc32: u32,
}

/// Writes a version 2 index of `entries`, which are in ascending order of id.
pub fn write_index<I>(hash: HashKind, entries: I, pack_checksum: &Oid) -> Vec<u8>
where
    I: ExactSizeIterator<Item = IndexEntry> + Clone,
{
    debug_assert!(entries.clone().is_sorted_by(|a, b| a.oid < b.oid), "an index has each id once, ascending");
    debug_assert!(entries.clone().all(|entry| entry.oid.kind() == hash), "ids of another hash");
    let n = entries.len();
    let mut out = Vec::with_capacity(HEADER_BYTES + n * (hash.len() + 8) + 2 * hash.len());
    out.extend_from_slice(b"\xfftOc\0\0\0\x02");
    let fan_out = out.len();
    out.resize(HEADER_BYTES, 0);
    let mut counts = [0u32; 256];
    for e in entries.clone() {
        counts[usize::from(e.oid.as_bytes()[0])] += 1;
        out.extend_from_slice(e.oid.as_bytes());
    }
    let mut sum = 0;
    for (slot, count) in out[fan_out..HEADER_BYTES].as_chunks_mut().0.iter_mut().zip(counts) {
        sum += count;
        *slot = sum.to_be_bytes();
    }
    for e in entries.clone() {
        out.extend_from_slice(&e.crc32.to_be_bytes());
    }
    let mut large = Vec::new();
    for e in entries {
        if e.offset < 0x8000_0000 {
            out.extend_from_slice(&(e.offset as u32).to_be_bytes());
        } else {
            out.extend_from_slice(&(0x8000_0000 | (large.len() as u32 / 8)).to_be_bytes());
            large.extend_from_slice(&e.offset.to_be_bytes());
        }
    }
    out.extend_from_slice(&large);
    out.extend_from_slice(pack_checksum.as_bytes());
    append_checksum(hash, &mut out);
    out
}

/// Writes a version 1 reverse index: positions in the index, in the order of the pack.
pub fn write_reverse_index(hash: HashKind, order: &[u32], pack_checksum: &Oid) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + order.len() * 4 + 2 * hash.len());
    out.extend_from_slice(b"RIDX\0\0\0\x01\0\0\0");
    out.push(hash.format_id());
    for position in order {
        out.extend_from_slice(&position.to_be_bytes());
    }
    out.extend_from_slice(pack_checksum.as_bytes());
    append_checksum(hash, &mut out);
    out
}

/// Appends the checksum of everything in `out`, as at the end of git's files.
pub(crate) fn append_checksum(hash: HashKind, out: &mut Vec<u8>) {
    let mut sum = plain_sha(hash);
    sum.update(out);
    out.extend_from_slice(sum.finish().as_bytes());
}
