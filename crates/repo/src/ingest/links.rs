//! Gathers the ids that the objects of a pack name, as the pack is read.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use weir_git::{HashKind, Kind, Oid, OidSet, link_targets, tag_target};

use crate::error::{Error, Result};

/// These stand in place of an entry's number: an empty slot, and an id whose object is known to be here.
const EMPTY: u32 = u32::MAX;
const ANSWERED: u32 = u32::MAX - 1;
/// The number of ids for which a part has room at first.
const SLOTS_MIN: usize = 64;
/// The number of parts, for packs that several threads work on.
const PARTS: usize = 256;

/// The distinct ids that are named, each with an entry that names it. All threads add to it. About 36 bytes
/// per id.
pub(crate) struct Named {
    hash: HashKind,
    /// The maker of a pack does not know these keys, so cannot choose ids that collide.
    keys: [u64; 4],
    parts: Vec<Mutex<LinksPart>>,
}

/// Ids by open addressing: each slot has an id and a number.
#[derive(Default)]
struct LinksPart {
    slots: Vec<u8>,
    count: usize,
}

impl LinksPart {
    fn number(&self, slot: usize, width: usize) -> u32 {
        u32::from_le_bytes(self.slots[(slot + 1) * width - 4..][..4].try_into().expect("four bytes"))
    }

    /// Returns the slot that has `id`, or is free for it, and the slot's number.
    fn find(&self, id: &[u8], hash: u64, width: usize) -> (usize, u32) {
        let count = self.slots.len() / width;
        let mut slot = ((u128::from(hash << 8) * count as u128) >> 64) as usize;
        loop {
            let number = self.number(slot, width);
            if number == EMPTY || self.slots[slot * width..][..id.len()] == *id {
                return (slot, number);
            }
            slot = if slot + 1 == count { 0 } else { slot + 1 };
        }
    }

    fn put(&mut self, slot: usize, id: &[u8], number: u32, width: usize) {
        let slot = &mut self.slots[slot * width..][..width];
        slot[..id.len()].copy_from_slice(id);
        slot[width - 4..].copy_from_slice(&number.to_le_bytes());
    }

    /// Grows the table by half.
    fn grow(&mut self, width: usize, hash: impl Fn(&[u8]) -> u64) {
        let count = self.slots.len() / width;
        let larger =
            LinksPart { slots: vec![0xff; (count + count / 2).max(SLOTS_MIN) * width], count: self.count };
        let old = std::mem::replace(self, larger);
        for (slot, data) in old.slots.chunks_exact(width).enumerate() {
            let number = old.number(slot, width);
            if number != EMPTY {
                let id = &data[..width - 4];
                let (free, _) = self.find(id, hash(id), width);
                self.put(free, id, number, width);
            }
        }
    }
}

impl Named {
    /// Makes an empty set for a pack of `object_count` objects.
    pub(crate) fn new(hash: HashKind, object_count: u32) -> Named {
        let random = RandomState::new();
        let parts = if object_count < PARTS as u32 * SLOTS_MIN as u32 { 1 } else { PARTS };
        Named {
            hash,
            keys: [0, 1, 2, 3].map(|n| random.hash_one(n)),
            parts: (0..parts).map(|_| Mutex::default()).collect(),
        }
    }

    /// Hashes an id: multiplies its words, each mixed with a key, and folds the products. All bytes of the id
    /// take part. The upper bits choose the part, the others the place in it.
    fn hash(&self, id: &[u8]) -> u64 {
        let word = |at: usize, key: usize| {
            let bytes = id[at..at + 8].try_into().expect("eight bytes");
            u128::from(u64::from_le_bytes(bytes) ^ self.keys[key])
        };
        let products = [word(0, 0) * word(8, 1), word(id.len() - 8, 2) * word(id.len() - 16, 3)];
        let [first, last] = products.map(|product| (product >> 64) as u64 ^ product as u64);
        first ^ last.rotate_left(32)
    }

    fn part(&self, hash: u64) -> &Mutex<LinksPart> {
        &self.parts[if self.parts.len() == 1 { 0 } else { (hash >> 56) as usize }]
    }

    fn width(&self) -> usize {
        self.hash.len() + 4
    }

    /// Adds the raw id `id`, which entry `number` names.
    fn add(&self, id: &[u8], number: u32) {
        let (hash, width) = (self.hash(id), self.width());
        let mut part = self.part(hash).lock().expect("not poisoned");
        // At most four fifths of the slots are taken.
        if part.slots.len() / width * 4 <= part.count * 5 {
            part.grow(width, |id| self.hash(id));
        }
        let (slot, known) = part.find(id, hash, width);
        if known == EMPTY {
            part.put(slot, id, number, width);
            part.count += 1;
        }
    }

    /// Notes that the object `oid` is here. Returns whether an object names it.
    pub(crate) fn answer(&self, oid: &Oid) -> bool {
        let (id, width) = (oid.as_bytes(), self.width());
        let hash = self.hash(id);
        let mut part = self.part(hash).lock().expect("not poisoned");
        if part.slots.is_empty() {
            return false;
        }
        let (slot, known) = part.find(id, hash, width);
        if known != EMPTY {
            part.put(slot, id, ANSWERED, width);
        }
        known != EMPTY
    }

    /// Calls `tell` for each named id that was not answered, with the number of an entry that names it.
    pub(crate) fn unanswered(&self, mut tell: impl FnMut(Oid, u32)) {
        let width = self.width();
        for part in &self.parts {
            let part = part.lock().expect("not poisoned");
            for (slot, data) in part.slots.chunks_exact(width).enumerate() {
                let number = part.number(slot, width);
                if number < ANSWERED {
                    tell(Oid::from_bytes(self.hash, &data[..width - 4]).expect("of its length"), number);
                }
            }
        }
    }
}

/// Gathers distinct ids. Consecutive trees name mostly the same ids. So a small direct-mapped cache of recent
/// ids answers nearly all of the hundreds of millions of lookups for a large history.
pub(crate) struct Links<'a> {
    hash: HashKind,
    shallow: &'a OidSet,
    recent: Vec<[u8; 32]>,
    /// The tags, and what each points at.
    pub(crate) tags: Vec<(Oid, Oid)>,
}

impl<'a> Links<'a> {
    pub(crate) fn new(hash: HashKind, object_count: u32, shallow: &'a OidSet) -> Links<'a> {
        let slots = (object_count as usize / 4).next_power_of_two().clamp(64, 1 << 16);
        // Each slot starts with an id that belongs to another slot, so no lookup matches it.
        let other = |slot: usize| {
            let mut id = [0; 32];
            id[2..4].copy_from_slice(&(!(slot as u16)).to_le_bytes());
            id
        };
        Links { hash, shallow, recent: (0..slots).map(other).collect(), tags: Vec::new() }
    }

    /// Adds everything that the object of entry `number` names to `named`.
    pub(crate) fn add(
        &mut self,
        named: &Named,
        number: u32,
        oid: &Oid,
        kind: Kind,
        data: &[u8],
    ) -> Result<()> {
        let (hash, mask, id_len) = (self.hash, self.recent.len() - 1, self.hash.len());
        let recent = &mut self.recent;
        let mut note = |id: &[u8]| {
            let slot = &mut recent[usize::from(u16::from_le_bytes([id[2], id[3]])) & mask];
            // Constant lengths make this two or four loads, not a call.
            let is_recent = match <&[u8; 20]>::try_from(id) {
                Ok(id) => slot[..20] == *id,
                Err(_) => slot[..id_len] == *id,
            };
            if !is_recent {
                slot[..id_len].copy_from_slice(id);
                named.add(id, number);
            }
        };
        let parsed = if kind == Kind::Commit && self.shallow.contains(oid) {
            weir_git::commit_links(hash, data).map(|links| note(links.tree.as_bytes()))
        } else {
            link_targets(hash, kind, data, note)
        };
        let fail = |source| Error::Object { oid: *oid, source };
        if kind == Kind::Tag {
            self.tags.push((*oid, tag_target(hash, data).map_err(fail)?.0));
        }
        parsed.map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_named_are_answered_or_told() {
        for (hash, count, at) in
            [(HashKind::Sha1, 10u32, 4), (HashKind::Sha1, 100_000, 16), (HashKind::Sha256, 100_000, 20)]
        {
            let oid = |n: u32| {
                // Alike but for a few bits, as a forger's ids would be.
                let mut bytes = [0; 32];
                bytes[at..at + 4].copy_from_slice(&n.to_be_bytes());
                Oid::from_bytes(hash, &bytes[..hash.len()]).unwrap()
            };
            let named = Named::new(hash, count);
            assert!(!named.answer(&oid(0)));
            std::thread::scope(|scope| {
                for first in 0..2 {
                    let named = &named;
                    scope.spawn(move || {
                        (first..count).chain(0..count / 2).for_each(|n| named.add(oid(n).as_bytes(), n))
                    });
                }
            });
            for n in 0..count {
                assert_eq!(named.answer(&oid(2 * n)), 2 * n < count, "{n}");
            }
            let mut told = Vec::new();
            named.unanswered(|oid, number| told.push((oid, number)));
            told.sort_unstable();
            assert_eq!(told, (0..count).filter(|n| n % 2 == 1).map(|n| (oid(n), n)).collect::<Vec<_>>());
        }
    }
}
