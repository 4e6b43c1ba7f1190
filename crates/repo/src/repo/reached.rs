//! Computes what the refs of a repository reach, and so what may be sent to a client that names it.

use weir_git::{Oid, OidSet};

use crate::error::{Result, corrupt};
use crate::objects::lookup::Location;
use crate::reach::reachable::Reachable;
use crate::reach::steps::{Budget, Steps};
use crate::reach::walk::all_reachable_from;
use crate::repo::repository::Repo;

impl Repo {
    /// Returns everything that the refs reach.
    ///
    /// # Errors
    /// If that cannot be computed: an object is missing or corrupt, or `steps` are used up.
    pub(crate) fn reachable(&self, steps: &mut Steps<'_>) -> Result<&Reachable> {
        let found = match self.caches.reachable.get() {
            Some(found) => found,
            // Two concurrent requests both compute this, each within its own steps.
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

    /// Returns whether the object counts as present: the repository's own packs hold it, or its refs or those
    /// of its base reach it. The base may hold further objects, which another upstream sent to it. An
    /// upstream that names those must still send them.
    pub fn has(&self, oid: &Oid) -> bool {
        let Some(base) = &self.base else { return self.contains(oid) };
        self.own_packs().iter().any(|pack| pack.index().find(oid.as_bytes()).is_some())
            || base.gives(oid)
            || self.gives(oid)
    }

    /// Returns whether the object is here although it may be that only removed history reaches it. A git
    /// directory tells a client of all that it has, as git does.
    pub fn may_be_removed(&self, oid: &Oid) -> bool {
        self.archive().is_some()
            && match self.objects().locate(oid) {
                None => false,
                Some(Location::Packed { pack, .. }) => !self.bodies.is_reachable_whole(pack),
                Some(_) => true,
            }
    }

    /// Returns whether the refs reach the object; false if that cannot be computed.
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

/// The most commits that are read to find whether an object is reachable, before everything that refs reach
/// is computed.
const REACHABLE_COMMITS_MAX: usize = 2_000_000;

/// Returns those of `oids` that refs reach. Objects in whole bodies are known to be reached. The others are
/// searched by one walk over commits, then in everything that refs reach, which is computed once per open
/// repository.
///
/// # Errors
/// If an object is missing or corrupt, the walks take more steps than `budget` has, or the client no longer
/// waits for the answer.
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
    // The walk trusts commit times, and finds commits only.
    let all = repo.reachable(&mut steps)?;
    for oid in open {
        if all.contains(repo.objects(), &oid)? {
            found.insert(oid);
        }
    }
    Ok(found)
}

/// Returns whether refs reach all of `oids`, as [`reachable_among`] computes it.
///
/// # Errors
/// As [`reachable_among`].
pub fn are_reachable(repo: &Repo, oids: &[Oid], budget: Budget<'_>) -> Result<bool> {
    let found = reachable_among(repo, oids, budget)?;
    Ok(oids.iter().all(|oid| found.contains(oid)))
}
