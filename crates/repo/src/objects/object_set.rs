//! Sets of objects of one repository.

use weir_git::{Oid, OidSet};

use crate::objects::bits::Bits;
use crate::objects::lookup::{Location, Objects};

/// A set of objects of one repository: a bit for each that its packs have, and the ids of others, loose or
/// not here at all.
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

    /// Adds `oid`, which `objects` has at `location`. Says whether it was not in yet.
    pub(crate) fn insert(&mut self, objects: &Objects, oid: &Oid, location: Option<Location>) -> bool {
        match location.and_then(|location| objects.place(location)) {
            Some(place) => self.numbers.set(place),
            None => self.others.insert(*oid),
        }
    }

    /// Whether `oid`, which `objects` has at `location`, is in.
    pub(crate) fn contains(&self, objects: &Objects, oid: &Oid, location: Option<Location>) -> bool {
        match location.and_then(|location| objects.place(location)) {
            Some(place) => self.numbers.get(place),
            None => self.others.contains(oid),
        }
    }

    /// Takes `oid` out.
    pub(crate) fn remove(&mut self, objects: &Objects, oid: &Oid, location: Option<Location>) {
        match location.and_then(|location| objects.place(location)) {
            Some(place) => self.numbers.clear(place),
            None => {
                self.others.remove(oid);
            }
        }
    }

    /// Adds all of `other`, which is of the same repository.
    pub(crate) fn extend(&mut self, other: &ObjectSet) {
        self.numbers.or(&other.numbers.0);
        self.others.extend(&other.others);
    }
}
