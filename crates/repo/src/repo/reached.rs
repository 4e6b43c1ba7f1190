//! What the refs of a repository reach, and with it what may be given to whoever names it.

use weir_git::{Oid, OidSet};

use crate::error::{Result, corrupt};
use crate::objects::lookup::Location;
use crate::reach::reachable::Reachable;
use crate::reach::steps::{Budget, Steps};
use crate::reach::walk::all_reachable_from;
use crate::repo::repository::Repo;

impl Repo {
    /// All that refs reach.
    ///
    /// # Errors
    /// If that cannot be found out: something is missing or corrupt, or it takes more steps than there are.
    pub(crate) fn reachable(&self, steps: &mut Steps<'_>) -> Result<&Reachable> {
        let found = match self.caches.reachable.get() {
            Some(found) => found,
            // Two who ask at once both find it out, each within the steps it has.
            None => match Reachable::of(self.history(), self.refs.tips(), steps) {
                Err(e) if steps.have_ended() => return Err(e),
                found => self.caches.reachable.get_or_init(|| found.ok()),
            },
        };
        found.as_ref().map_or_else(
            || corrupt(self.path().display().to_string(), "its refs do not reach all that they should"),
            Ok,
        )
    }

    /// Whether the object counts as had here: its own packs hold it, or refs reach it, its own or those of
    /// its base. What the base holds besides was given to the base, by another upstream: whoever names it has
    /// yet to show it.
    pub fn has(&self, oid: &Oid) -> bool {
        let Some(base) = &self.base else { return self.contains(oid) };
        self.own_packs().iter().any(|pack| pack.index().find(oid.as_bytes()).is_some())
            || base.gives(oid)
            || self.gives(oid)
    }

    /// Whether its refs reach the object; no, where that cannot be found out.
    pub(crate) fn gives(&self, oid: &Oid) -> bool {
        match self.objects().locate(oid) {
            None => false,
            Some(Location::Packed { pack, .. }) if self.bodies.is_reachable_whole(pack) => true,
            Some(_) => self
                .reachable(&mut Steps::new(Budget::default()))
                .and_then(|all| all.contains(self.objects(), oid))
                .unwrap_or(false),
        }
    }
}

/// Commits looked at to find out whether an object is reachable, before all that refs reach is found out.
const REACHABLE_COMMITS_MAX: usize = 2_000_000;

/// Returns those of `oids` that refs reach. What is known to hold for whole bodies is not walked; the others
/// are looked for by one walk over commits, then in all that refs reach, which is found out once for an open
/// repository.
///
/// # Errors
/// If an object is missing or corrupt, the walks take more steps than `budget` has, or nobody waits for the
/// answer any more.
pub fn reachable_among(repo: &Repo, oids: &[Oid], budget: Budget<'_>) -> Result<OidSet> {
    let mut steps = Steps::new(budget);
    let (mut found, mut open) = (OidSet::default(), Vec::new());
    for oid in oids {
        steps.take(1)?;
        match repo.objects().locate(oid) {
            None => {}
            Some(Location::Packed { pack, .. }) if repo.bodies.is_reachable_whole(pack) => {
                found.insert(*oid);
            }
            Some(_) => open.push(*oid),
        }
    }
    if open.is_empty() {
        return Ok(found);
    }
    open.sort_unstable();
    open.dedup();
    let sources: Vec<Oid> = repo.refs().tips().collect();
    if all_reachable_from(repo.history(), &sources, &open, REACHABLE_COMMITS_MAX, &mut steps)? {
        found.extend(open);
        return Ok(found);
    }
    // The walk trusts clocks, and knows commits only.
    let all = repo.reachable(&mut steps)?;
    for oid in open {
        if all.contains(repo.objects(), &oid)? {
            found.insert(oid);
        }
    }
    Ok(found)
}

/// Returns whether refs reach all of `oids`, as [`reachable_among`] finds out.
///
/// # Errors
/// As [`reachable_among`].
pub fn are_reachable(repo: &Repo, oids: &[Oid], budget: Budget<'_>) -> Result<bool> {
    let found = reachable_among(repo, oids, budget)?;
    Ok(oids.iter().all(|oid| found.contains(oid)))
}
