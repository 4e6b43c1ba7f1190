//! Computes where a shallow client's history ends, and where it will end after a fetch (gitprotocol-v2,
//! `shallow` and `deepen`; git's `shallow.c` and `upload-pack.c` define the words).

use std::collections::{BinaryHeap, VecDeque};

use weir_git::{Kind, Oid, OidSet};

use crate::error::{Error, Result};
use crate::objects::reader::peel_through;
use crate::reach::steps::{Budget, Steps};
use crate::reach::walk::Commits;
use crate::repo::repository::Repo;
use crate::select::query::Cut;

/// A depth that means all of history (git's `INFINITE_DEPTH`).
pub const DEPTH_INFINITE: u32 = 0x7fff_ffff;

/// How much history a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deepen {
    /// The number of commits from each tip.
    pub depth: Option<u32>,
    /// Whether the depth counts from where the client's history ends.
    pub relative: bool,
    /// Asks for commits of this time and later, in seconds since 1970.
    pub since: Option<u64>,
    /// Asks for commits that none of these reaches.
    pub not: Vec<Oid>,
}

impl Deepen {
    /// Returns whether the client asks for anything.
    pub fn is_asked(&self) -> bool {
        self.depth.is_some() || self.since.is_some() || !self.not.is_empty()
    }
}

/// Computes where history will end for a client with the shallow commits `client` that wants `wants`.
///
/// # Errors
/// If no commit is left, an object is missing or corrupt, or the budget is used up.
pub fn deepen(repo: &Repo, wants: &[Oid], client: &[Oid], asked: &Deepen, budget: Budget<'_>) -> Result<Cut> {
    let mut reader = repo.reader();
    let mut cut = Cut { commits: client.iter().copied().collect(), ..Cut::default() };
    let mut starts = Vec::new();
    for want in wants {
        if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, want)? {
            starts.push(oid);
        }
    }
    let mut tips = Vec::new();
    if asked.relative {
        for tip in repo.refs().tips() {
            if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, &tip)? {
                tips.push(oid);
            }
        }
    }
    let mut not = Vec::new();
    for oid in &asked.not {
        if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, oid)? {
            not.push(oid);
        }
    }
    let mut walk =
        Walk { commits: Commits::new(repo.history(), &mut reader), repo, steps: Steps::new(budget) };
    let is_everything = asked.since.is_none()
        && asked.not.is_empty()
        && asked.depth.unwrap_or(DEPTH_INFINITE) >= DEPTH_INFINITE;
    let found = if asked.since.is_some() || !asked.not.is_empty() {
        walk.by_age(&starts, asked.since.unwrap_or(0), not)?
    } else {
        let depth = asked.depth.unwrap_or(DEPTH_INFINITE);
        if depth >= DEPTH_INFINITE && repo.history().shallow.is_empty() {
            HistoryCut { ends: Vec::new(), inside: cut.commits.clone() }
        } else if asked.relative {
            // As in git's `get_reachable_list`: everything that any shown ref reaches is deepened, not just
            // what the wants reach.
            let starts = walk.reachable(tips, &cut.commits)?;
            walk.by_depth(&starts, depth.saturating_add(1))?
        } else {
            walk.by_depth(&starts, depth)?
        }
    };
    for oid in client {
        // A commit that is shallow here, too, cannot be deepened. A client may name a commit that it does not
        // have: what is behind commits of removed history is not served. In the other cases the walk met the
        // commit on its way from the wants.
        let is_given = || !is_everything || repo.archive().is_none() || repo.gives(oid);
        if found.inside.contains(oid)
            && !repo.history().shallow.contains(oid)
            && repo.contains(oid)
            && is_given()
        {
            cut.unshallow.push(*oid);
            cut.wants.extend(walk.commits.load(oid)?.parents);
        }
    }
    cut.shallow = found.ends.into_iter().filter(|oid| !cut.commits.contains(oid)).collect();
    // The walk finds them in an arbitrary order. Sorting gives equal requests equal answers.
    cut.shallow.sort_unstable();
    cut.commits.extend(cut.shallow.iter().copied());
    Ok(cut)
}

/// The commits at the end of the requested history, and those inside it.
struct HistoryCut {
    ends: Vec<Oid>,
    inside: OidSet,
}

struct Walk<'r, 'o> {
    commits: Commits<'r, 'o>,
    repo: &'r Repo,
    steps: Steps<'r>,
}

impl Walk<'_, '_> {
    fn by_depth(&mut self, starts: &[Oid], depth: u32) -> Result<HistoryCut> {
        let mut found = HistoryCut { ends: Vec::new(), inside: OidSet::default() };
        let mut seen: OidSet = starts.iter().copied().collect();
        let mut queue: VecDeque<(Oid, u32)> = seen.iter().map(|oid| (*oid, 1)).collect();
        while let Some((oid, at)) = queue.pop_front() {
            self.steps.take(1)?;
            if (depth < DEPTH_INFINITE && at >= depth) || self.repo.history().shallow.contains(&oid) {
                found.ends.push(oid);
                continue;
            }
            found.inside.insert(oid);
            for parent in self.commits.load(&oid)?.parents {
                if seen.insert(parent) {
                    queue.push_back((parent, at + 1));
                }
            }
        }
        Ok(found)
    }

    fn by_age(&mut self, starts: &[Oid], since: u64, mut stack: Vec<Oid>) -> Result<HistoryCut> {
        let mut excluded = OidSet::default();
        while let Some(oid) = stack.pop() {
            if excluded.insert(oid) {
                self.steps.take(1)?;
                stack.extend(self.commits.load(&oid)?.parents);
            }
        }
        let mut inside = OidSet::default();
        let mut queue = BinaryHeap::new();
        let mut seen = OidSet::default();
        for oid in starts {
            if seen.insert(*oid) {
                queue.push((self.commits.load(oid)?.time, *oid));
            }
        }
        let mut order = Vec::new();
        while let Some((time, oid)) = queue.pop() {
            self.steps.take(1)?;
            if time < since || excluded.contains(&oid) {
                continue;
            }
            inside.insert(oid);
            order.push(oid);
            for parent in self.commits.load(&oid)?.parents {
                if seen.insert(parent) {
                    queue.push((self.commits.load(&parent)?.time, parent));
                }
            }
        }
        if order.is_empty() {
            return Err(Error::Unsupported("no commits selected for shallow requests".to_owned()));
        }
        let mut ends = Vec::new();
        for oid in order {
            if self.repo.history().shallow.contains(&oid)
                || self.commits.load(&oid)?.parents.iter().any(|p| !inside.contains(p))
            {
                ends.push(oid);
            }
        }
        for oid in &ends {
            inside.remove(oid);
        }
        Ok(HistoryCut { ends, inside })
    }

    /// Returns those of `goals` that the commits in `stack` reach.
    fn reachable(&mut self, mut stack: Vec<Oid>, goals: &OidSet) -> Result<Vec<Oid>> {
        let mut reached = Vec::new();
        let mut seen = OidSet::default();
        while let Some(oid) = stack.pop() {
            if reached.len() == goals.len() {
                break;
            }
            if seen.insert(oid) {
                self.steps.take(1)?;
                if goals.contains(&oid) {
                    reached.push(oid);
                }
                stack.extend(self.commits.load(&oid)?.parents);
            }
        }
        Ok(reached)
    }
}
