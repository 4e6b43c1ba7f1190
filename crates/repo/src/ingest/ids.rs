//! The ids of a pack's objects by entry number, in one flat table that all threads write to.

use std::sync::atomic::{AtomicU32, Ordering};

use weir_git::{HashKind, Oid};

/// A table of 20 or 32 bytes per object. An id that is not known yet is null.
#[derive(Debug)]
pub(crate) struct Ids {
    hash: HashKind,
    words: Vec<AtomicU32>,
}

impl Ids {
    pub(crate) fn new(hash: HashKind) -> Ids {
        Ids { hash, words: Vec::new() }
    }

    fn words_per_id(&self) -> usize {
        self.hash.len() / size_of::<u32>()
    }

    /// Returns the number of ids.
    pub(crate) fn len(&self) -> usize {
        self.words.len() / self.words_per_id()
    }

    /// Makes room for `count` ids.
    pub(crate) fn grow(&mut self, count: usize) {
        let len = count * self.words_per_id();
        if self.words.len() < len {
            self.words.resize_with(len, AtomicU32::default);
        }
    }

    /// Sets the id of entry `n`. Only one thread sets it, and only once. Readers come after that thread has
    /// ended.
    pub(crate) fn set(&self, n: u32, oid: &Oid) {
        let per_id = self.words_per_id();
        let words = &self.words[n as usize * per_id..][..per_id];
        for (word, bytes) in words.iter().zip(oid.as_bytes().as_chunks().0) {
            word.store(u32::from_be_bytes(*bytes), Ordering::Relaxed);
        }
    }

    pub(crate) fn push(&mut self, oid: &Oid) {
        let n = self.len();
        self.grow(n + 1);
        self.set(n as u32, oid);
    }

    pub(crate) fn get(&self, n: u32) -> Oid {
        let per_id = self.words_per_id();
        let mut bytes = [0; 32];
        for (word, out) in self.words[n as usize * per_id..][..per_id].iter().zip(bytes.as_chunks_mut().0) {
            *out = word.load(Ordering::Relaxed).to_be_bytes();
        }
        Oid::from_bytes(self.hash, &bytes[..self.hash.len()]).expect("of its length")
    }

    /// Returns the first 64 bits of the id of entry `n`, in the order of ids.
    fn prefix(&self, n: u32) -> u64 {
        let at = n as usize * self.words_per_id();
        let word = |i: usize| u64::from(self.words[at + i].load(Ordering::Relaxed));
        word(0) << 32 | word(1)
    }

    /// Returns the numbers of all entries in ascending order of id, and of number where ids are equal: 4
    /// bytes per object.
    pub(crate) fn order(&self) -> Vec<u32> {
        let count = self.len();
        // Ids are uniform. After one pass into buckets of some thirty, the rest of the sorting stays in the
        // processor's cache.
        let bits = (usize::BITS - count.leading_zeros()).saturating_sub(5).clamp(1, 20);
        let bucket = |n: u32| (self.prefix(n) >> (64 - bits)) as usize;
        let mut ends = vec![0u32; (1 << bits) + 1];
        for n in 0..count as u32 {
            ends[bucket(n) + 1] += 1;
        }
        for i in 1..ends.len() {
            ends[i] += ends[i - 1];
        }
        let mut order = vec![0u32; count];
        for n in 0..count as u32 {
            let end = &mut ends[bucket(n)];
            order[*end as usize] = n;
            *end += 1;
        }
        let mut start = 0;
        for &end in &ends[..1 << bits] {
            let of_one = &mut order[start..end as usize];
            of_one.sort_unstable_by(|&a, &b| {
                self.prefix(a)
                    .cmp(&self.prefix(b))
                    .then_with(|| self.get(a).cmp(&self.get(b)))
                    .then(a.cmp(&b))
            });
            start = end as usize;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_in_order() {
        for (hash, count) in [(HashKind::Sha1, 0u32), (HashKind::Sha1, 1), (HashKind::Sha256, 5000)] {
            let mut ids = Ids::new(hash);
            let oid = |n: u32| {
                let mut bytes = [0; 32];
                // Some share 64 bits, some are equal.
                bytes[..4].copy_from_slice(&(n / 4).wrapping_mul(0x9e37_79b9).to_be_bytes());
                bytes[10] = (n % 4 / 2) as u8;
                Oid::from_bytes(hash, &bytes[..hash.len()]).unwrap()
            };
            for n in 0..count / 2 {
                ids.push(&oid(n));
            }
            ids.grow(count as usize);
            for n in count / 2..count {
                assert!(ids.get(n).is_null());
                ids.set(n, &oid(n));
            }
            let mut expected: Vec<(Oid, u32)> = (0..count).map(|n| (oid(n), n)).collect();
            expected.sort_unstable();
            let order: Vec<(Oid, u32)> = ids.order().into_iter().map(|n| (ids.get(n), n)).collect();
            assert!(order == expected && ids.len() == count as usize);
        }
    }
}
