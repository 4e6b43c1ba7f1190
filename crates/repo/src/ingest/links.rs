//! Which ids the objects of a pack name, gathered while they pass by.

use weir_git::{HashKind, Kind, Oid, OidMap, OidSet, link_targets, tag_target};

use crate::error::{Error, Result};

/// Gathers distinct ids. Trees that follow each other name mostly the same ids, so a small direct-mapped cache of recent
/// ones answers nearly all of the hundreds of millions of questions a large history asks.
pub(crate) struct Links<'a> {
    hash: HashKind,
    shallow: &'a OidSet,
    recent: Vec<[u8; 32]>,
    /// Id to the number of an entry that names it.
    pub(crate) named: OidMap<u32>,
    /// Tags, and what each points at.
    pub(crate) tags: Vec<(Oid, Oid)>,
}

impl<'a> Links<'a> {
    pub(crate) fn new(hash: HashKind, object_count: u32, shallow: &'a OidSet) -> Links<'a> {
        let slots = (object_count as usize / 4).next_power_of_two().clamp(64, 1 << 16);
        Links {
            hash,
            shallow,
            recent: vec![[0; 32]; slots],
            named: OidMap::with_capacity_and_hasher(object_count.min(1 << 16) as usize, Default::default()),
            tags: Vec::new(),
        }
    }

    /// Takes note of everything the object names.
    pub(crate) fn add(&mut self, entry: u32, oid: &Oid, kind: Kind, data: &[u8]) -> Result<()> {
        let (hash, mask, id_len) = (self.hash, self.recent.len() - 1, self.hash.len());
        let (recent, named) = (&mut self.recent, &mut self.named);
        let mut note = |id: &[u8]| {
            let slot = &mut recent[usize::from(u16::from_le_bytes([id[2], id[3]])) & mask];
            // Lengths known beforehand make this two or four loads, not a call.
            let is_recent = match <&[u8; 20]>::try_from(id) {
                Ok(id) => slot[..20] == *id,
                Err(_) => slot[..id_len] == *id,
            };
            if !is_recent {
                slot[..id_len].copy_from_slice(id);
                named.entry(Oid::from_bytes(hash, id).expect("of its length")).or_insert(entry);
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

    /// Joins what another thread gathered.
    pub(crate) fn absorb(&mut self, mut other: Links<'_>) {
        self.tags.append(&mut other.tags);
        if self.named.len() < other.named.len() {
            let mine = std::mem::replace(&mut self.named, other.named);
            self.named.extend(mine);
        } else {
            self.named.extend(other.named);
        }
    }
}
