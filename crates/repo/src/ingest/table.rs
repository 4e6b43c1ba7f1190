//! The table of a pack's objects: ids, places and checksums, from which its index is written.

use weir_git::Oid;

use super::ids::Ids;
use super::stream::{EntryBase, PackEntry};
use crate::objects::index::IndexEntry;

/// The objects of an accepted pack: about 40 bytes each.
pub struct PackTable {
    ids: Ids,
    /// In the order of the pack.
    entries: Vec<PackEntry>,
    /// The numbers of entries in ascending order of id.
    order: Vec<u32>,
}

impl PackTable {
    /// Makes a table. `entries` are in pack order, and `order` sorts their ids, which are distinct.
    pub(crate) fn new(ids: Ids, entries: Vec<PackEntry>, order: Vec<u32>) -> PackTable {
        debug_assert_eq!(entries.len(), order.len());
        debug_assert!(
            entries.is_sorted_by_key(|entry| entry.offset),
            "entries in another order than the pack's"
        );
        debug_assert!(order.is_sorted_by(|&a, &b| ids.get(a) < ids.get(b)), "ids out of order, or twice");
        PackTable { ids, entries, order }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&self, number: u32) -> IndexEntry {
        let PackEntry { offset, crc32, .. } = self.entries[number as usize];
        IndexEntry { oid: self.ids.get(number), offset, crc32 }
    }

    /// Returns all objects in ascending order of id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = IndexEntry> + Clone + '_ {
        self.order.iter().map(|&number| self.entry(number))
    }

    /// Returns the object `oid`, if the pack has it.
    pub fn get(&self, oid: &Oid) -> Option<IndexEntry> {
        let position = self.order.binary_search_by(|&number| self.ids.get(number).cmp(oid)).ok()?;
        Some(self.entry(self.order[position]))
    }

    /// Returns the positions in the order of ids, in pack order: the content of a reverse index.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let mut positions = vec![0; self.order.len()];
        for (position, &number) in self.order.iter().enumerate() {
            positions[number as usize] = position as u32;
        }
        positions
    }

    /// Adds an object behind all others. It is found only after [`PackTable::sort`] was called.
    pub(crate) fn push(&mut self, entry: IndexEntry) {
        self.ids.push(&entry.oid);
        // The base no longer matters.
        self.entries.push(PackEntry::new(entry.offset, entry.crc32, EntryBase::Id(0)));
    }

    /// Sorts added objects in.
    pub(crate) fn sort(&mut self) {
        self.order = self.ids.order();
    }
}
