//! Names of entries by number, so that steps are small and are compared by number.

use indexmap::IndexSet;
use weir_git::OidBuildHasher;

/// Numbers names, from 0 up.
#[derive(Default)]
pub(crate) struct NameTable(IndexSet<Box<[u8]>, OidBuildHasher>);

impl NameTable {
    /// Returns the number of `name`, and gives it one if it has none.
    #[inline]
    pub(crate) fn number(&mut self, name: &[u8]) -> u32 {
        match self.0.get_index_of(name) {
            Some(number) => number as u32,
            None => self.0.insert_full(name.into()).0 as u32,
        }
    }

    /// Appends the names of `other`. Returns the number here of each name there.
    pub(crate) fn append(&mut self, other: NameTable) -> Vec<u32> {
        other.0.into_iter().map(|name| self.0.insert_full(name).0 as u32).collect()
    }
}

/// A table that threads share, and behind it the names that one thread adds.
pub(crate) struct ThreadNames<'n> {
    shared: &'n NameTable,
    own: NameTable,
}

impl<'n> ThreadNames<'n> {
    pub(crate) fn new(shared: &'n NameTable) -> ThreadNames<'n> {
        ThreadNames { shared, own: NameTable::default() }
    }

    /// Returns the number of `name`, and gives it one if it has none.
    pub(crate) fn number(&mut self, name: &[u8]) -> u32 {
        match self.shared.0.get_index_of(name) {
            Some(number) => number as u32,
            None => self.shared.0.len() as u32 + self.own.number(name),
        }
    }

    /// Returns the name with the number `number`.
    #[inline]
    pub(crate) fn name(&self, number: u32) -> &[u8] {
        let (number, shared) = (number as usize, self.shared.0.len());
        if number < shared { &self.shared.0[number] } else { &self.own.0[number - shared] }
    }
}
