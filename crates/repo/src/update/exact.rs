//! Checks whether bodies are still exactly what refs reach after an update. Then they are sent as they lie.

use weir_git::{Oid, OidSet};

use crate::error::Result;
use crate::ingest::Ingested;
use crate::reach::steps::Steps;
use crate::reach::walk::all_reachable_from;
use crate::refs::list::Refs;
use crate::repo::bodies::RefClass;
use crate::repo::repository::Repo;

/// The most commits that are read to find whether a removed tip is still reachable.
const REACHABLE_COMMITS_MAX: usize = 50_000;

/// The pack that an update adds to a class of bodies.
pub(crate) struct Addition<'a> {
    pub(crate) class: RefClass,
    pub(crate) pack: &'a Ingested,
}

impl Addition<'_> {
    /// Returns the ids of the objects that were sent, without those that complete the pack.
    fn sent(&self) -> impl Iterator<Item = Oid> {
        self.pack.objects.iter().filter(|e| e.offset < self.pack.sent_end).map(|e| e.oid)
    }

    /// Returns the ids of the objects that complete the pack: bases of what was sent.
    fn completing(&self) -> impl Iterator<Item = Oid> {
        self.pack.objects.iter().filter(|e| e.offset >= self.pack.sent_end).map(|e| e.oid)
    }

    fn has_sent(&self, oid: &Oid) -> bool {
        self.pack.objects.get(oid).is_some_and(|e| e.offset < self.pack.sent_end)
    }
}

/// Returns whether the bodies of a class are still exactly what its refs reach, after the refs of `old`
/// became `new` and `addition` was received. It is always safe to return false.
pub(crate) fn still_exact(
    old: Option<&Repo>,
    new: &Refs,
    addition: Option<&Addition<'_>>,
    all: bool,
) -> Result<bool> {
    let tips = |refs: &Refs| -> OidSet {
        if all { refs.tips().collect() } else { refs.head_and_tag_tips().collect() }
    };
    let is_of_class = |class: RefClass| class == RefClass::HeadsAndTags || (all && class == RefClass::Rest);
    let new_tips = tips(new);
    // No client gets objects that only older states of the refs reach.
    let addition = addition.filter(|a| is_of_class(a.class));
    if addition.is_some_and(|a| !a.pack.unreferenced.iter().all(|oid| new_tips.contains(oid))) {
        return Ok(false);
    }
    let Some(old) = old else { return Ok(true) };
    let was_exact = if all { old.bodies.all } else { old.bodies.heads };
    if was_exact.is_none() && !old.bodies.list.is_empty() {
        return Ok(false);
    }
    let sent = old.limited_to(|b| b.is_some_and(|b| is_of_class(b.class)));
    if let Some(a) = addition {
        // Everything that the new objects name or build on must be sent, too, and no object twice. Then what
        // is sent is whole and closed, whatever it was fetched on.
        let is_closed = a.pack.outside.iter().copied().chain(a.completing()).all(|oid| sent.contains(&oid));
        if !is_closed || a.sent().any(|oid| sent.contains(&oid)) {
            return Ok(false);
        }
    }
    // Tips must be sent, too: a restored ref may lead to what only history holds.
    if !new_tips.iter().all(|tip| sent.contains(tip) || addition.is_some_and(|a| a.has_sent(tip))) {
        return Ok(false);
    }
    let outside: OidSet = addition.map_or_else(OidSet::default, |a| a.pack.outside.iter().copied().collect());
    let gone: Vec<Oid> =
        tips(&old.refs).into_iter().filter(|t| !new_tips.contains(t) && !outside.contains(t)).collect();
    if gone.is_empty() {
        return Ok(true);
    }
    let sources: Vec<Oid> = new_tips.into_iter().chain(outside).filter(|oid| sent.contains(oid)).collect();
    all_reachable_from(sent.history(), &sources, &gone, REACHABLE_COMMITS_MAX, &mut Steps::unbounded())
}
