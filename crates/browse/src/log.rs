//! The log of a revision: commits in the order in which `git log` lists them, all or those that change a
//! path.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidMap, OidSet, TreeIter};
use weir_repo::{LinkedCommit, ObjectReader, Repo};

use crate::error::{Error, Result};

/// Folders that are remembered of a walk.
const KNOWN_ENTRIES_MAX: usize = 1 << 16;

/// What a client wants of a log.
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

/// An entry of a tree: its mode and its object.
type PathEntry = Option<(u32, Oid)>;

struct LogWalk<'r> {
    repo: &'r Repo,
    reader: ObjectReader<'r>,
    /// The names on the way to the path.
    names: Vec<Vec<u8>>,
    /// The entries of trees, by the number of names before.
    known: Vec<OidMap<PathEntry>>,
    /// By time, and by the order in which they were met.
    queue: BinaryHeap<(u64, Reverse<usize>, Oid)>,
    seen: OidSet,
}

/// Returns a page of the log of the commit `from`. A log of a path follows what `git log -- PATH` follows:
/// at a merge whose path is that of a parent, this parent alone.
///
/// # Errors
/// If an object is missing or corrupt.
pub fn log(repo: &Repo, from: &Oid, query: &LogQuery) -> Result<LogPage> {
    let names: Vec<Vec<u8>> =
        query.path.split(|c| *c == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    let mut walk = LogWalk {
        repo,
        reader: repo.reader(),
        known: vec![OidMap::default(); names.len()],
        names,
        queue: BinaryHeap::new(),
        seen: OidSet::default(),
    };
    walk.meet(from)?;
    let (mut page, mut passed) = (LogPage::default(), 0);
    while let Some((time, _, oid)) = walk.queue.pop() {
        if page.commits.len() >= query.count_max || passed >= query.passed.saturating_add(query.walked_max) {
            page.next = Some(passed);
            break;
        }
        passed += 1;
        // git does not look behind such a commit, either.
        if query.since.is_some_and(|since| time < since) {
            continue;
        }
        let commit = repo.history().commit(&mut walk.reader, &oid)?;
        let is_told = passed > query.passed && query.until.is_none_or(|until| time <= until);
        let changes = if walk.names.is_empty() {
            commit.parents.iter().try_for_each(|parent| walk.meet(parent))?;
            true
        } else {
            // Who follows a single parent need not know whether it has the same path.
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
        if self.seen.insert(*oid) && self.repo.contains(oid) {
            let time = self.repo.history().commit(&mut self.reader, oid)?.time;
            self.queue.push((time, Reverse(self.seen.len()), *oid));
        }
        Ok(())
    }

    /// Meets the parents of `commit` that git follows (revision.c, `try_to_simplify_commit`). Returns whether
    /// the commit changes the path; not so if nobody wants to know.
    fn follow(&mut self, commit: &LinkedCommit, wants_to_know: bool) -> Result<bool> {
        match &commit.parents[..] {
            [] => Ok(wants_to_know && self.entry(&commit.tree)?.is_some()),
            [parent] => {
                self.meet(parent)?;
                Ok(wants_to_know && !self.is_same(commit, parent)?)
            }
            parents => {
                for parent in parents {
                    if self.is_same(commit, parent)? {
                        self.meet(parent)?;
                        return Ok(false);
                    }
                }
                parents.iter().try_for_each(|parent| self.meet(parent))?;
                Ok(true)
            }
        }
    }

    /// Returns whether the path is the same in a commit and its parent.
    fn is_same(&mut self, commit: &LinkedCommit, parent: &Oid) -> Result<bool> {
        if !self.repo.contains(parent) {
            return Ok(false);
        }
        let parent = self.repo.history().commit(&mut self.reader, parent)?.tree;
        let (mut ours, mut theirs) = (commit.tree, parent);
        for depth in 0..self.names.len() {
            if ours == theirs {
                return Ok(true);
            }
            let (our, their) = (self.entry_of(&ours, depth)?, self.entry_of(&theirs, depth)?);
            if our == their {
                return Ok(true);
            }
            let both = our.zip(their).filter(|(our, their)| is_folder(our.0) && is_folder(their.0));
            let Some(((_, our), (_, their))) = both else { break };
            (ours, theirs) = (our, their);
        }
        let (ours, theirs) = (self.entry(&commit.tree)?, self.entry(&parent)?);
        Ok(ours == theirs)
    }

    /// Returns the entry at the path in the tree `top`.
    fn entry(&mut self, top: &Oid) -> Result<PathEntry> {
        let mut at = (0o040_000, *top);
        for depth in 0..self.names.len() {
            if !is_folder(at.0) {
                return Ok(None);
            }
            let Some(entry) = self.entry_of(&at.1, depth)? else { return Ok(None) };
            at = entry;
        }
        Ok(Some(at))
    }

    /// Returns the entry of the tree `tree` with the name number `depth`.
    fn entry_of(&mut self, tree: &Oid, depth: usize) -> Result<PathEntry> {
        if let Some(entry) = self.known[depth].get(tree) {
            return Ok(*entry);
        }
        let object = self.reader.require(tree)?;
        let mut found = None;
        if object.kind == Kind::Tree {
            for entry in TreeIter::new(self.repo.hash(), &object.data) {
                let entry = entry.map_err(Error::of_object(tree))?;
                if entry.name == self.names[depth] {
                    let oid = Oid::from_bytes(self.repo.hash(), entry.id).expect("ids of entries are ids");
                    found = Some((entry.mode, oid));
                    break;
                }
            }
        }
        if self.known[depth].len() >= KNOWN_ENTRIES_MAX {
            self.known[depth].clear();
        }
        self.known[depth].insert(*tree, found);
        Ok(found)
    }
}

fn is_folder(mode: u32) -> bool {
    mode & 0o170_000 == 0o040_000
}
