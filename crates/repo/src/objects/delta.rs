//! Makes deltas (gitformat-pack, "Deltified representation"): an object is expressed as copies from another
//! and new bytes.

use std::cmp::Ordering;
use std::rc::Rc;

use weir_git::{HashKind, TreeIter, tree_entry_len};

use crate::objects::tree_diff::{common_bytes, common_entries, tree_order};

/// The number of bytes that are hashed at a time. Shorter matches are not found.
const BLOCK: usize = 16;
/// A source is indexed at every multiple of this; a match is found if it holds a whole indexed block.
const STRIDE: usize = 4;
/// The most places of one hash that are compared; only repetitive sources have more.
const TRIED_MAX: usize = 16;
/// The longest copy of one instruction that all readers accept (pack version 2).
const COPY_MAX: usize = 0x10000;
const INSERT_MAX: usize = 0x7f;
const NONE: u32 = u32::MAX;

/// An indexed object that deltas may build on.
pub(crate) struct DeltaSource {
    data: Rc<Vec<u8>>,
    /// The last indexed place of each hash, and for each indexed place the previous place with the same hash.
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

    /// Finds the longest match of the bytes at `at` in `target`. Returns its place in the source and its
    /// length; length 0 if there is none.
    fn longest(&self, target: &[u8], at: usize) -> (usize, usize) {
        let mut best = (0, 0);
        let mut place = self.heads[hash(&target[at..], self.shift)];
        for _ in 0..TRIED_MAX {
            if place == NONE {
                break;
            }
            let start = place as usize * STRIDE;
            let len = common_bytes(&self.data[start..], &target[at..]);
            if len > best.1 {
                best = (start, len);
            }
            place = self.before[place as usize];
        }
        if best.1 >= BLOCK { best } else { (0, 0) }
    }

    /// Returns the delta that makes `target` of the source; `None` if it is longer than `bytes_max`.
    pub(crate) fn encode(&self, target: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(bytes_max.min(target.len() / 4) + 32);
        push_size(&mut out, self.data.len());
        push_size(&mut out, target.len());
        self.encode_part(target, 0, bytes_max, &mut out)?;
        Some(out)
    }

    /// Appends to `out` the instructions that make `target` of the source. The source starts `shift` bytes
    /// into the delta's base. Returns `None` if `out` gets longer than `bytes_max`.
    fn encode_part(&self, target: &[u8], shift: usize, bytes_max: usize, out: &mut Vec<u8>) -> Option<()> {
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
            // The bytes before the match may match as well.
            while at > inserted && start > 0 && target[at - 1] == self.data[start - 1] {
                (at, start, len) = (at - 1, start - 1, len + 1);
            }
            push_insert(out, &target[inserted..at]);
            at += len;
            inserted = at;
            push_copies(out, shift + start, len);
            if out.len() > bytes_max {
                return None;
            }
        }
        push_insert(out, &target[inserted..]);
        (out.len() <= bytes_max).then_some(())
    }
}

/// A change no longer than this is inserted without a search for matches in it.
const SMALL_CHANGE_BYTES: usize = 96;
/// How many bytes of the source around a change are searched for matches.
const MARGIN_BYTES: usize = 512;

/// Returns the delta that makes `target` of `source`; `None` if it is longer than `bytes_max`. The common
/// start and end of both are not searched.
pub(crate) fn delta_of(source: &[u8], target: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let start = common_bytes(source, target);
    let end = common_end(&source[start..], &target[start..]);
    let changed = &target[start..target.len() - end];
    let mut out = Vec::with_capacity(changed.len().min(bytes_max) + 32);
    push_size(&mut out, source.len());
    push_size(&mut out, target.len());
    push_copies(&mut out, 0, start);
    if changed.len() <= SMALL_CHANGE_BYTES {
        push_insert(&mut out, changed);
    } else {
        let from = start.saturating_sub(MARGIN_BYTES);
        let to = (source.len() - end + MARGIN_BYTES).min(source.len());
        DeltaSource::new(Rc::new(source[from..to].to_vec()))
            .encode_part(changed, from, bytes_max, &mut out)?;
    }
    push_copies(&mut out, source.len() - end, end);
    (out.len() <= bytes_max).then_some(out)
}

/// Returns the length of the common end of both.
fn common_end(a: &[u8], b: &[u8]) -> usize {
    const WORD: usize = 32;
    let words = a.rchunks_exact(WORD).zip(b.rchunks_exact(WORD)).take_while(|(a, b)| a == b).count() * WORD;
    let (a, b) = (&a[..a.len() - words], &b[..b.len() - words]);
    words + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Copies shorter than this take more than what they copy.
const COPY_MIN: usize = 8;

/// Returns the delta that makes the tree `target` of the tree `source`. Their entries are in one order, so
/// nothing is searched. Returns `None` if the delta is longer than `bytes_max`, or if a tree is malformed.
pub(crate) fn tree_delta(hash: HashKind, source: &[u8], target: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes_max.min(512) + 32);
    push_size(&mut out, source.len());
    push_size(&mut out, target.len());
    let (mut old, mut new, mut inserted) = (0, 0, 0);
    while new < target.len() {
        let differ = common_bytes(&source[old..], &target[new..]);
        let alike = common_entries(hash, &target[new..], differ);
        let fresh = TreeIter::new(hash, &target[new + alike..]).next();
        let stale = TreeIter::new(hash, &source[old + alike..]).next();
        let len_at = |data: &[u8], at: usize| tree_entry_len(hash, &data[at..]);
        // How far the copy goes, and how many bytes are passed on either side.
        let (copied, passed_old, passed_new) = match (stale, fresh) {
            (_, None) => (alike, alike, alike),
            (None, Some(_)) => (alike, alike, alike + len_at(target, new + alike)?),
            (Some(stale), Some(fresh)) => {
                let after_old = alike + len_at(source, old + alike)?;
                let after_new = alike + len_at(target, new + alike)?;
                match tree_order(&stale.ok()?, &fresh.ok()?) {
                    Ordering::Less => (alike, after_old, alike),
                    Ordering::Greater => (alike, alike, after_new),
                    // The copy mostly covers mode and name, and the first bytes of the id.
                    Ordering::Equal => (differ.min(after_old).min(after_new), after_old, after_new),
                }
            }
        };
        if copied >= COPY_MIN {
            push_insert(&mut out, &target[inserted..new]);
            push_copies(&mut out, old, copied);
            inserted = new + copied;
        }
        (old, new) = (old + passed_old, new + passed_new);
        if out.len() + new.saturating_sub(inserted) > bytes_max {
            return None;
        }
    }
    push_insert(&mut out, &target[inserted..]);
    (out.len() <= bytes_max).then_some(out)
}

fn push_copies(out: &mut Vec<u8>, mut start: usize, mut len: usize) {
    while len > 0 {
        let part = len.min(COPY_MAX);
        push_copy(out, start, part);
        (start, len) = (start + part, len - part);
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
    use crate::objects::entry::apply_delta;

    fn source_of(data: &[u8]) -> DeltaSource {
        DeltaSource::new(Rc::new(data.to_vec()))
    }

    fn check(source: &[u8], target: &[u8]) -> usize {
        let delta = source_of(source).encode(target, usize::MAX >> 1).unwrap();
        let mut made = Vec::new();
        apply_delta(source, &delta, 1 << 30, &mut made).unwrap();
        assert!(made == target, "{} to {} bytes", source.len(), target.len());
        let other = delta_of(source, target, usize::MAX >> 1).unwrap();
        apply_delta(source, &other, 1 << 30, &mut made).unwrap();
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
        // The same bytes over and over must not take too long.
        check(&vec![b'a'; 200_000], &vec![b'a'; 150_001]);
    }

    #[test]
    fn deltas_of_trees_come_back() {
        let mut x = 7u64;
        let mut random = |n: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) as usize % n
        };
        let write = |entries: &std::collections::BTreeMap<String, u8>| -> Vec<u8> {
            entries
                .iter()
                .flat_map(|(name, id)| [b"100644 ", name.as_bytes(), b"\0", &[*id; 20]].concat())
                .collect()
        };
        let mut entries = std::collections::BTreeMap::new();
        for n in 0..200u8 {
            entries.insert(format!("file{}", u32::from(n) * 7 % 1000), n);
        }
        for round in 0..300 {
            let before = write(&entries);
            for _ in 0..random(4) {
                let name = format!("file{}", random(1000));
                match random(3) {
                    0 => drop(entries.remove(&name)),
                    _ => drop(entries.insert(name, random(256) as u8)),
                }
            }
            if round % 50 == 0 {
                entries.clear();
            }
            let after = write(&entries);
            let delta = tree_delta(HashKind::Sha1, &before, &after, usize::MAX >> 1).unwrap();
            let mut made = Vec::new();
            apply_delta(&before, &delta, 1 << 30, &mut made).unwrap();
            assert!(made == after, "round {round}");
            assert!(round % 50 == 0 || delta.len() < 250, "round {round}: {} bytes", delta.len());
        }
        assert_eq!(tree_delta(HashKind::Sha1, b"", b"no tree", 1000), None);
    }
}
