//! How refs differ between two snapshots.

use weir_git::Oid;

use crate::refs::list::{Ref, Refs};

/// How refs differ between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefsChange {
    /// Refs that are new.
    pub added: usize,
    /// Refs that point elsewhere.
    pub updated: usize,
    /// Refs that are gone.
    pub deleted: usize,
    /// Whether HEAD changed.
    pub head: bool,
}

/// A ref that differs between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRef {
    /// Its full name.
    pub name: Vec<u8>,
    /// What it led to; `None`, if it is new.
    pub old: Option<Oid>,
    /// What it leads to; `None`, if it is gone.
    pub new: Option<Oid>,
}

impl ChangedRef {
    /// Returns the refs that differ: those of `new` in its order, then those that are gone.
    pub fn between<'r>(old: &'r Refs, new: &'r Refs) -> impl Iterator<Item = ChangedRef> + 'r {
        let changed = |r: &Ref, old: Option<Oid>, new| ChangedRef { name: r.name.clone(), old, new };
        let here = new.list().iter().filter_map(move |r| {
            let before = old.get(&r.name).map(|old| old.oid);
            (before != Some(r.oid)).then(|| changed(r, before, Some(r.oid)))
        });
        let gone = old.list().iter().filter(|r| new.get(&r.name).is_none());
        here.chain(gone.map(move |r| changed(r, Some(r.oid), None)))
    }
}

impl RefsChange {
    /// Compares `old` with `new`.
    pub fn between(old: &Refs, new: &Refs) -> RefsChange {
        let mut change = RefsChange { head: old.head != new.head, ..Default::default() };
        for changed in ChangedRef::between(old, new) {
            match (changed.old, changed.new) {
                (None, _) => change.added += 1,
                (_, None) => change.deleted += 1,
                _ => change.updated += 1,
            }
        }
        change
    }

    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == RefsChange::default()
    }
}
