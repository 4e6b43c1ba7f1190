//! Sets of objects of one repository.

use weir_git::{Oid, OidSet};

use crate::objects::bits::Bits;
use crate::objects::lookup::{Location, Objects};

/// A set of objects of one repository: a bit for each object in its packs, and the ids of others, loose or
/// missing.
pub(crate) struct ObjectSet {
    numbers: Bits,
    others: OidSet,
}

impl ObjectSet {
    pub(crate) fn new(objects: &Objects) -> ObjectSet {
        ObjectSet {
            numbers: Bits::new(objects.packed_count().min(u32::MAX.into())),
            others: OidSet::default(),
        }
    }

    /// Adds `oid`, which `objects` has at `location`. Returns whether it was new.
    pub(crate) fn insert(&mut self, objects: &Objects, oid: &Oid, location: Option<Location>) -> bool {
        match location.and_then(|location| objects.place(location)) {
            Some(place) => self.numbers.set(place),
            None => self.others.insert(*oid),
        }
    }

    /// Returns whether the set contains `oid`, which `objects` has at `location`.
    pub(crate) fn contains(&self, objects: &Objects, oid: &Oid, location: Option<Location>) -> bool {
        match location.and_then(|location| objects.place(location)) {
            Some(place) => self.numbers.get(place),
            None => self.others.contains(oid),
        }
    }

    /// Removes `oid`.
    pub(crate) fn remove(&mut self, objects: &Objects, oid: &Oid, location: Option<Location>) {
        match location.and_then(|location| objects.place(location)) {
            Some(place) => self.numbers.clear(place),
            None => {
                self.others.remove(oid);
            }
        }
    }

    /// Adds all of `other`, which must be of the same repository.
    pub(crate) fn extend(&mut self, other: &ObjectSet) {
        debug_assert_eq!(self.numbers.0.len(), other.numbers.0.len(), "sets of two repositories");
        self.numbers.or(&other.numbers.0);
        self.others.extend(&other.others);
    }
}
