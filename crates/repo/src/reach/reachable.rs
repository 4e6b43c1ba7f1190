//! Everything that refs reach, computed once and kept.

use weir_git::{Oid, OidSet};

use crate::error::Result;
use crate::objects::bits::Bits;
use crate::objects::lookup::Objects;
use crate::reach::bitmap_walk::all_by_bitmaps;
use crate::reach::history::History;
use crate::reach::steps::Steps;
use crate::reach::walk::visit_reachable;

/// Everything that some tips reach.
pub(crate) enum Reachable {
    /// Object numbers, if all objects have one.
    Numbers(Bits),
    Ids(OidSet),
}

impl Reachable {
    /// Computes what `tips` reach.
    pub(crate) fn of(
        history: &History,
        tips: impl Iterator<Item = Oid>,
        steps: &mut Steps<'_>,
    ) -> Result<Reachable> {
        let objects = history.objects();
        // In a part of a repository some refs lead to objects that are not here.
        let tips: Vec<Oid> = tips.filter(|tip| objects.contains(tip)).collect();
        if objects.loose.is_empty() {
            return all_by_bitmaps(history, &tips, steps).map(Reachable::Numbers);
        }
        let mut ids = OidSet::default();
        visit_reachable(
            history,
            |_, _| false,
            tips,
            steps,
            |oid, found, _| {
                if found.is_some() {
                    ids.insert(*oid);
                }
            },
        )?;
        Ok(Reachable::Ids(ids))
    }

    pub(crate) fn contains(&self, objects: &Objects, oid: &Oid) -> Result<bool> {
        Ok(match self {
            Reachable::Ids(ids) => ids.contains(oid),
            Reachable::Numbers(numbers) => match objects.locate(oid) {
                Some(location) => objects.number(location)?.is_some_and(|n| numbers.get(n)),
                None => false,
            },
        })
    }
}
