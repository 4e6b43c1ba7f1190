//! The best common ancestor of two commits, as `git merge-base` finds it.

use std::collections::BinaryHeap;

use weir_git::{Oid, OidMap, OidSet};
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};

/// Commits that are gone through at most.
const WALKED_MAX: usize = 2_000_000;

/// Marks of a commit: the ones of the two commits that reach it, and that it is behind a common ancestor.
const FIRST: u8 = 1;
const SECOND: u8 = 2;
const BOTH: u8 = FIRST | SECOND;
const STALE: u8 = 4;
/// The commit is among those that were found.
const FOUND: u8 = 8;
const _: () = assert!(BOTH & STALE == 0 && (BOTH | STALE) & FOUND == 0, "each mark has a bit of its own");

/// Returns the best common ancestor of two commits: one that no other common ancestor reaches; the newest, if
/// there are several.
///
/// # Errors
/// If an object is missing or corrupt, or too many commits would have to be gone through.
pub fn merge_base(repo: &Repo, first: &Oid, second: &Oid) -> Result<Option<Oid>> {
    let mut reader = repo.reader();
    let mut walked = 0;
    let mut found = common_ancestors(repo, &mut reader, first, &[*second], &mut walked)?;
    found.sort_unstable();
    found.reverse();
    // Times may be wrong: then one of them reaches another.
    let candidates = found.clone();
    for (_, oid) in &candidates {
        let others: Vec<Oid> =
            candidates.iter().map(|(_, other)| *other).filter(|other| other != oid).collect();
        let common = common_ancestors(repo, &mut reader, oid, &others, &mut walked)?;
        if !common.iter().any(|(_, base)| base == oid) {
            return Ok(Some(*oid));
        }
    }
    Ok(None)
}

/// Returns common ancestors of `first` and any of `seconds` that none of those which were met before reaches,
/// each with its time (commit-reach.c, `paint_down_to_common`). Counts the commits that it goes through.
fn common_ancestors<'r>(
    repo: &'r Repo,
    reader: &mut ObjectReader<'r>,
    first: &Oid,
    seconds: &[Oid],
    walked: &mut usize,
) -> Result<Vec<(u64, Oid)>> {
    let history = repo.history();
    let mut flags: OidMap<u8> = OidMap::default();
    let mut queue = BinaryHeap::new();
    // The commits in the queue that are not stale.
    let mut open = OidSet::default();
    for (oid, flag) in seconds.iter().map(|second| (second, SECOND)).chain([(first, FIRST)]) {
        *flags.entry(*oid).or_default() |= flag;
        queue.push((history.commit(reader, oid)?.time, *oid));
        open.insert(*oid);
    }
    let mut found: Vec<(u64, Oid)> = Vec::new();
    while !open.is_empty() {
        let Some((time, oid)) = queue.pop() else { break };
        open.remove(&oid);
        *walked += 1;
        if *walked > WALKED_MAX {
            return Err(Error::TooLarge(format!("no common ancestor among {WALKED_MAX} commits")));
        }
        let mut passed = flags[&oid];
        if passed & (BOTH | STALE) == BOTH {
            if passed & FOUND == 0 {
                found.push((time, oid));
                flags.insert(oid, passed | FOUND);
            }
            passed |= STALE;
        }
        for parent in history.commit(reader, &oid)?.parents {
            let known = flags.entry(parent).or_default();
            passed &= BOTH | STALE;
            if *known & passed == passed || !repo.contains(&parent) {
                continue;
            }
            *known |= passed;
            if *known & STALE == 0 {
                open.insert(parent);
            } else {
                open.remove(&parent);
            }
            queue.push((history.commit(reader, &parent)?.time, parent));
        }
    }
    found.retain(|(_, oid)| flags[oid] & STALE == 0);
    Ok(found)
}
