//! Making deltas (gitformat-pack, "Deltified representation"): one object said as copies from another and new bytes.

use std::rc::Rc;

/// Matches shorter than this are not looked for: bytes hashed at a time.
const BLOCK: usize = 16;
/// Every so many bytes of a source are indexed; a match is found if it holds a whole indexed block.
const STRIDE: usize = 4;
/// Places of one hash that are compared; more would be a repetitive source.
const TRIED_MAX: usize = 16;
/// The longest copy of one instruction that all readers take (pack version 2).
const COPY_MAX: usize = 0x10000;
const INSERT_MAX: usize = 0x7f;
const NONE: u32 = u32::MAX;

/// An object that others may be said in terms of, indexed.
pub(crate) struct DeltaSource {
    data: Rc<Vec<u8>>,
    /// The last indexed place of each hash, and for each indexed place the one before of the same hash.
    heads: Vec<u32>,
    before: Vec<u32>,
    shift: u32,
}

fn hash(block: &[u8], shift: u32) -> usize {
    let (a, b) = block[..BLOCK].split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    ((word(a) ^ word(b).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}

impl DeltaSource {
    /// Indexes `data`, of less than 4 GiB.
    pub(crate) fn new(data: Rc<Vec<u8>>) -> Self {
        let places = data.len().saturating_sub(BLOCK - 1).div_ceil(STRIDE);
        let bits = usize::BITS - places.max(16).leading_zeros();
        let shift = 64 - bits;
        let mut heads = vec![NONE; 1 << bits];
        let mut before = vec![NONE; places];
        for (n, before) in before.iter_mut().enumerate() {
            let head = &mut heads[hash(&data[n * STRIDE..], shift)];
            *before = *head;
            *head = n as u32;
        }
        DeltaSource { data, heads, before, shift }
    }

    /// The longest match of what starts at `at` in `target`: its place in the source and its length; length 0 if none.
    fn longest(&self, target: &[u8], at: usize) -> (usize, usize) {
        let mut best = (0, 0);
        let mut place = self.heads[hash(&target[at..], self.shift)];
        for _ in 0..TRIED_MAX {
            if place == NONE {
                break;
            }
            let start = place as usize * STRIDE;
            let len = self.data[start..].iter().zip(&target[at..]).take_while(|(a, b)| a == b).count();
            if len > best.1 {
                best = (start, len);
            }
            place = self.before[place as usize];
        }
        if best.1 >= BLOCK { best } else { (0, 0) }
    }

    /// The delta that makes `target` of the source; `None` if it is longer than `bytes_max`.
    pub(crate) fn encode(&self, target: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(bytes_max.min(target.len() / 4) + 32);
        push_size(&mut out, self.data.len());
        push_size(&mut out, target.len());
        let (mut at, mut inserted) = (0, 0);
        while at + BLOCK <= target.len() {
            let (mut start, mut len) = self.longest(target, at);
            if len == 0 {
                at += 1;
                if out.len() + at - inserted > bytes_max {
                    return None;
                }
                continue;
            }
            // What precedes it may match as well.
            while at > inserted && start > 0 && target[at - 1] == self.data[start - 1] {
                (at, start, len) = (at - 1, start - 1, len + 1);
            }
            push_insert(&mut out, &target[inserted..at]);
            at += len;
            inserted = at;
            while len > 0 {
                let part = len.min(COPY_MAX);
                push_copy(&mut out, start, part);
                (start, len) = (start + part, len - part);
            }
            if out.len() > bytes_max {
                return None;
            }
        }
        push_insert(&mut out, &target[inserted..]);
        (out.len() <= bytes_max).then_some(out)
    }
}

fn push_size(out: &mut Vec<u8>, mut size: usize) {
    while size >= 0x80 {
        out.push(size as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
}

fn push_insert(out: &mut Vec<u8>, data: &[u8]) {
    for part in data.chunks(INSERT_MAX) {
        out.push(part.len() as u8);
        out.extend_from_slice(part);
    }
}

fn push_copy(out: &mut Vec<u8>, start: usize, len: usize) {
    let at = out.len();
    out.push(0x80);
    for i in 0..4 {
        let byte = (start >> (8 * i)) as u8;
        if byte != 0 {
            out[at] |= 1 << i;
            out.push(byte);
        }
    }
    // No length byte at all means COPY_MAX.
    for i in 0..2 {
        let byte = (len >> (8 * i)) as u8;
        if byte != 0 && len != COPY_MAX {
            out[at] |= 0x10 << i;
            out.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::apply_delta;

    fn source_of(data: &[u8]) -> DeltaSource {
        DeltaSource::new(Rc::new(data.to_vec()))
    }

    fn check(source: &[u8], target: &[u8]) -> usize {
        let delta = source_of(source).encode(target, usize::MAX >> 1).unwrap();
        let mut made = Vec::new();
        apply_delta(source, &delta, 1 << 30, &mut made).unwrap();
        assert!(made == target, "{} to {} bytes", source.len(), target.len());
        assert!(delta.len() < 12 || source_of(source).encode(target, delta.len() - 1).is_none());
        delta.len()
    }

    #[test]
    fn deltas_come_back() {
        let mut x = 1u64;
        let mut random = |len: usize| -> Vec<u8> {
            let mut next = || {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (x >> 56) as u8
            };
            (0..len).map(|_| next()).collect()
        };
        check(b"", b"");
        check(b"", b"something");
        check(b"something", b"");
        let long = random(300_000);
        assert!(check(&long, &long) < 40, "copies of 64 KiB");
        for len in [1, 15, 16, 17, 100, 5000] {
            let data = &long[..len];
            check(data, data);
            let mut changed = data.to_vec();
            changed.insert(len / 2, b'x');
            let size = check(data, &changed);
            assert!(len < 100 || size < 40, "{len}: {size}");
            check(&changed, data);
            check(data, &random(len));
        }
        let swapped = [&long[100_000..], &long[..100_000]].concat();
        assert!(check(&long, &swapped) < 60);
        // The same bytes over and over must not take for ever.
        check(&vec![b'a'; 200_000], &vec![b'a'; 150_001]);
    }
}
