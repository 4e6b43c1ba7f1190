//! A finer fan-out over the ids of a pack index, for a reader that looks up most of them.
//!
//! A search in the index itself reads three or four cache lines, one after the other. With a fan-out of a few
//! ids each it reads one, and the memory answers for many ids in parallel.

use crate::objects::index::Index;

/// A part of the fan-out with more ids than this is searched as the index itself is. Ids are hashes, so that
/// only a peer who makes them up gets there.
const PART_IDS_MAX: u32 = 32;

/// Finds ids in a pack index. Takes about 1.3 bytes an id.
pub(crate) struct IdFinder<'o> {
    index: &'o Index,
    /// `starts[top]..starts[top + 1]` are the positions of the ids that start with the bits `top`.
    starts: Vec<u32>,
    shift: u32,
}

#[inline]
fn first_eight(id: &[u8]) -> u64 {
    u64::from_be_bytes(id[..8].try_into().expect("eight bytes"))
}

impl<'o> IdFinder<'o> {
    /// Reads all ids of `index`.
    pub(crate) fn new(index: &'o Index) -> IdFinder<'o> {
        let bits = (u32::BITS - index.count().leading_zeros()).saturating_sub(2).max(1);
        let shift = u64::BITS - bits;
        let mut starts = vec![0u32; (1 << bits) + 1];
        for position in 0..index.count() {
            starts[(first_eight(index.raw_id(position)) >> shift) as usize + 1] += 1;
        }
        for n in 1..starts.len() {
            starts[n] += starts[n - 1];
        }
        IdFinder { index, starts, shift }
    }

    #[inline]
    fn part(&self, id: &[u8]) -> (u32, u32) {
        let top = (first_eight(id) >> self.shift) as usize;
        (self.starts[top], self.starts[top + 1])
    }

    /// Returns the position of the raw id `id`.
    #[inline]
    pub(crate) fn find(&self, id: &[u8]) -> Option<u32> {
        let (low, high) = self.part(id);
        if high - low > PART_IDS_MAX {
            return self.index.find(id);
        }
        let key = first_eight(id);
        (low..high).find(|&at| {
            let other = self.index.raw_id(at);
            first_eight(other) == key && other[8..] == id[8..]
        })
    }

    /// Reads the place where `id` would be, so that it is in the processor's cache. Returns some byte of it.
    #[inline]
    pub(crate) fn touch(&self, id: &[u8]) -> u8 {
        let (low, _) = self.part(id);
        self.index.raw_id(low.min(self.index.count() - 1))[0]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use weir_archive::Region;
    use weir_git::HashKind;

    use super::*;

    /// Returns an index of `ids`, in the order in which they are given.
    fn index_of(ids: &[[u8; 20]]) -> Index {
        let mut data = b"\xfftOc\0\0\0\x02".to_vec();
        for first in 0..=255u8 {
            let below = ids.iter().filter(|id| id[0] <= first).count() as u32;
            data.extend(below.to_be_bytes());
        }
        ids.iter().for_each(|id| data.extend(id));
        data.resize(data.len() + ids.len() * 8 + 40, 0);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        // SAFETY: nobody else has the file.
        let region = unsafe { Region::map(file.into(), data.len() as u64) }.unwrap();
        Index::open("test", region, HashKind::Sha1).unwrap()
    }

    #[test]
    fn ids_are_found_where_the_index_has_them() {
        let mut ids: Vec<[u8; 20]> = (0..5000u64)
            .map(|n| {
                let mut id = [n as u8; 20];
                id[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
                id
            })
            .collect();
        // Ids that a peer made up to fall into one part.
        ids.extend((0..200u8).map(|n| {
            let mut id = [7; 20];
            id[19] = n;
            id
        }));
        ids.sort_unstable();
        for count in [1, 2, 3, ids.len()] {
            let index = index_of(&ids[..count]);
            let finder = IdFinder::new(&index);
            for (at, id) in ids.iter().enumerate() {
                let expected = (at < count).then_some(at as u32);
                assert_eq!((finder.find(id), index.find(id)), (expected, expected));
                finder.touch(id);
            }
        }
        // An index whose ids are out of order finds some or none, and never panics.
        ids.reverse();
        let index = index_of(&ids);
        let finder = IdFinder::new(&index);
        for id in &ids {
            assert!(finder.find(id).is_none_or(|at| index.raw_id(at) == id));
        }
    }
}
