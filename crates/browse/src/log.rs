//! The log of a revision: commits in the order in which `git log` lists them, all or those that change a
//! path.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Mutex, PoisonError};

use weir_git::{Oid, OidSet};
use weir_repo::{LinkedCommit, ObjectReader, Repo};

use crate::error::Result;
use crate::path_entries::PathEntries;

/// Commits that all kept positions together have met at most: each takes some 60 bytes.
const KEPT_COMMITS_MAX: usize = 1_000_000;

/// A request for a page of a log.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    /// The path that the commits change; empty for all commits.
    pub path: Vec<u8>,
    /// No commits before this time, in seconds since 1970, nor what lies behind them.
    pub since: Option<u64>,
    /// No commits after this time.
    pub until: Option<u64>,
    /// The commits that an earlier page has gone through.
    pub passed: usize,
    /// The commits of one page.
    pub count_max: usize,
    /// The commits that one page goes through.
    pub walked_max: usize,
}

/// A page of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The commits.
    pub commits: Vec<Oid>,
    /// The commits that this page and those before have gone through, if there may be more.
    pub next: Option<usize>,
}

struct LogWalk<'r> {
    repo: &'r Repo,
    reader: ObjectReader<'r>,
    entries: PathEntries,
    place: LogPlace,
}

/// How far a walk has come.
#[derive(Default)]
struct LogPlace {
    /// The commits that were met and not passed: by time, and by the order in which they were met.
    queue: BinaryHeap<(u64, Reverse<usize>, Oid)>,
    seen: OidSet,
}

/// A walk, and how many commits it has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogKey {
    /// The number of the open repository.
    serial: u64,
    from: Oid,
    path: Vec<u8>,
    since: Option<u64>,
    passed: usize,
}

/// The places where pages of logs ended. The next page of a log starts at its place. The memory is bounded:
/// the oldest places are dropped first.
#[derive(Default)]
pub struct LogPositions(Mutex<VecDeque<(LogKey, LogPlace)>>);

impl LogPositions {
    fn take(&self, key: &LogKey) -> Option<LogPlace> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == key)?;
        kept.remove(at).map(|(_, place)| place)
    }

    fn keep(&self, key: LogKey, place: LogPlace) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != key);
        kept.push_back((key, place));
        let mut commits: usize = kept.iter().map(|(_, place)| place.seen.len()).sum();
        while commits > KEPT_COMMITS_MAX {
            let Some((_, oldest)) = kept.pop_front() else { break };
            commits -= oldest.seen.len();
        }
    }
}

/// Returns a page of the log of the commit `from`. A log of a path follows what `git log -- PATH` follows:
/// at a merge whose path is that of a parent, this parent alone.
///
/// # Errors
/// If an object is missing or corrupt.
pub fn log(repo: &Repo, from: &Oid, query: &LogQuery, positions: &LogPositions) -> Result<LogPage> {
    let entries = PathEntries::new(&query.path);
    let mut key = LogKey {
        serial: repo.serial(),
        from: *from,
        path: entries.path(),
        since: query.since,
        passed: query.passed,
    };
    let kept = positions.take(&key);
    let mut passed = if kept.is_some() { query.passed } else { 0 };
    let is_new = kept.is_none();
    let mut walk = LogWalk { repo, reader: repo.reader(), entries, place: kept.unwrap_or_default() };
    if is_new {
        walk.meet(from)?;
    }
    let mut page = LogPage::default();
    while !walk.place.queue.is_empty() {
        if page.commits.len() >= query.count_max || passed >= query.passed.saturating_add(query.walked_max) {
            page.next = Some(passed);
            key.passed = passed;
            positions.keep(key, walk.place);
            break;
        }
        let Some((time, _, oid)) = walk.place.queue.pop() else { break };
        passed += 1;
        // git does not look behind such a commit, either.
        if query.since.is_some_and(|since| time < since) {
            continue;
        }
        let commit = repo.history().commit(&mut walk.reader, &oid)?;
        let is_told = passed > query.passed && query.until.is_none_or(|until| time <= until);
        let changes = if walk.entries.is_top() {
            commit.parents.iter().try_for_each(|parent| walk.meet(parent))?;
            true
        } else {
            // A single parent is followed in any case.
            walk.follow(&commit, is_told)?
        };
        if is_told && changes {
            page.commits.push(oid);
        }
    }
    Ok(page)
}

impl LogWalk<'_> {
    fn meet(&mut self, oid: &Oid) -> Result<()> {
        if self.place.seen.insert(*oid) && self.repo.contains(oid) {
            let time = self.repo.history().commit(&mut self.reader, oid)?.time;
            self.place.queue.push((time, Reverse(self.place.seen.len()), *oid));
        }
        Ok(())
    }

    /// Meets the parents of `commit` that git follows (revision.c, `try_to_simplify_commit`). Returns whether
    /// the commit changes the path; not so if nobody wants to know.
    fn follow(&mut self, commit: &LinkedCommit, wants_to_know: bool) -> Result<bool> {
        match &commit.parents[..] {
            [] => Ok(wants_to_know && self.entries.entry(&mut self.reader, &commit.tree)?.is_some()),
            [parent] => {
                self.meet(parent)?;
                Ok(wants_to_know && !self.is_same(commit, 0)?)
            }
            parents => {
                for (rank, parent) in parents.iter().enumerate() {
                    if self.is_same(commit, rank)? {
                        self.meet(parent)?;
                        return Ok(false);
                    }
                }
                parents.iter().try_for_each(|parent| self.meet(parent))?;
                Ok(true)
            }
        }
    }

    /// Returns whether the path is the same in a commit and its parent number `rank`.
    fn is_same(&mut self, commit: &LinkedCommit, rank: usize) -> Result<bool> {
        let parent = &commit.parents[rank];
        if !self.repo.contains(parent) {
            return Ok(false);
        }
        if rank == 0 && self.entries.is_certainly_unchanged(self.repo, commit) {
            return Ok(true);
        }
        let parent = self.repo.history().commit(&mut self.reader, parent)?;
        self.entries.is_same(&mut self.reader, &commit.tree, &parent.tree)
    }
}
