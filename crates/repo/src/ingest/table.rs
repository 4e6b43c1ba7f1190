//! What a pack holds: ids, places and checksums, from which its index is written.

use weir_git::Oid;

use super::ids::Ids;
use super::stream::{EntryBase, PackEntry};
use crate::objects::index::IndexEntry;

/// The objects of a pack that was accepted: about 40 bytes each.
pub struct PackTable {
    ids: Ids,
    /// In the order of the pack.
    entries: Vec<PackEntry>,
    /// Numbers of entries in ascending order of id.
    order: Vec<u32>,
}

impl PackTable {
    /// `entries` are in the order of the pack, and `order` is of their ids, of which no two are equal.
    pub(crate) fn new(ids: Ids, entries: Vec<PackEntry>, order: Vec<u32>) -> PackTable {
        PackTable { ids, entries, order }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&self, number: u32) -> IndexEntry {
        let PackEntry { offset, crc32, .. } = self.entries[number as usize];
        IndexEntry { oid: self.ids.get(number), offset, crc32 }
    }

    /// All objects in ascending order of id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = IndexEntry> + Clone + '_ {
        self.order.iter().map(|&number| self.entry(number))
    }

    /// The object called `oid`, if it is one of them.
    pub fn get(&self, oid: &Oid) -> Option<IndexEntry> {
        let position = self.order.binary_search_by(|&number| self.ids.get(number).cmp(oid)).ok()?;
        Some(self.entry(self.order[position]))
    }

    /// Places in the order of ids, in the order of the pack: what a reverse index says.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let mut positions = vec![0; self.order.len()];
        for (position, &number) in self.order.iter().enumerate() {
            positions[number as usize] = position as u32;
        }
        positions
    }

    /// Adds an object that stands behind all others. It is found once [`PackTable::sort`] was called.
    pub(crate) fn push(&mut self, entry: IndexEntry) {
        self.ids.push(&entry.oid);
        // What it builds on matters to nobody any more.
        self.entries.push(PackEntry::new(entry.offset, entry.crc32, EntryBase::Id(0)));
    }

    /// Puts what was added where it belongs.
    pub(crate) fn sort(&mut self) {
        self.order = self.ids.order();
    }
}
