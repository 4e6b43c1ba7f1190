//! Walks over commits, to find what they reach.
//!
//! A client is assumed to have what its commits reach. Errors are on the safe side: an object may be sent
//! that the client has, but no object that it lacks is left out. Commit times may be wrong. A commit wrongly
//! taken for new costs bytes, not correctness.

use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidSet, TreeIter, commit_links, commit_time, tag_target};

use crate::error::{Error, Result};
use crate::objects::lookup::Location;
use crate::objects::object_set::ObjectSet;
use crate::objects::reader::{ObjectReader, peel_through};
use crate::reach::history::History;
use crate::reach::path_filter::FilteredPath;
use crate::reach::steps::{Budget, Steps};

/// A commit's place in the history.
#[derive(Clone, Debug)]
pub struct LinkedCommit {
    /// Its tree.
    pub tree: Oid,
    /// Its parents; none, where the history of a shallow repository ends.
    pub parents: Vec<Oid>,
    /// The time of its committer, in seconds since 1970.
    pub time: u64,
    /// Its place in the commit-graph, where the graph's parents are those above.
    position: Option<u32>,
}

/// Reads commits from the commit-graph if it has them, otherwise from packs.
pub(crate) struct Commits<'r, 'o> {
    history: &'r History,
    reader: &'o mut ObjectReader<'r>,
    shallow: OidSet,
}

impl<'r, 'o> Commits<'r, 'o> {
    /// Returns a reader of the commits of `history`, whose objects `reader` reads.
    pub(crate) fn new(history: &'r History, reader: &'o mut ObjectReader<'r>) -> Self {
        Commits { history, reader, shallow: history.shallow.iter().copied().collect() }
    }

    /// Returns a reader of the commits of `history` that reports no parents for those in `cut`.
    pub(crate) fn cut_at(history: &'r History, reader: &'o mut ObjectReader<'r>, cut: &OidSet) -> Self {
        let mut commits = Commits::new(history, reader);
        commits.shallow.extend(cut.iter().copied());
        commits
    }

    pub(crate) fn load(&mut self, oid: &Oid) -> Result<LinkedCommit> {
        if let Some(graph) = self.history.commit_graph()
            && let Some(position) = graph.find(oid)
            && let Some(commit) = graph.commit(position)
        {
            let is_cut = !self.shallow.is_empty() && self.shallow.contains(oid);
            let parents =
                if is_cut { Vec::new() } else { commit.parents.iter().map(|&p| graph.oid(p)).collect() };
            let position = (!is_cut).then_some(position);
            return Ok(LinkedCommit { tree: commit.tree, parents, time: commit.time, position });
        }
        let object = self.reader.require(oid)?;
        let links = commit_links(self.history.objects.hash, &object.data)
            .map_err(|source| Error::Object { oid: *oid, source })?;
        let parents = if self.shallow.contains(oid) { Vec::new() } else { links.parents };
        Ok(LinkedCommit { tree: links.tree, parents, time: commit_time(&object.data), position: None })
    }
}

impl History {
    /// Returns the tree, the parents and the time of a commit: from the commit-graph, if it has the commit,
    /// else through `reader`.
    ///
    /// # Errors
    /// If the commit is missing, corrupt or no commit.
    pub fn commit<'r>(&'r self, reader: &mut ObjectReader<'r>, oid: &Oid) -> Result<LinkedCommit> {
        Commits::new(self, reader).load(oid)
    }

    /// Returns whether `commit` may change `path` from its first parent: no, if the filters of the
    /// commit-graph deny it.
    pub fn may_change(&self, commit: &LinkedCommit, path: &FilteredPath) -> bool {
        let filtered = self.commit_graph().zip(commit.position);
        filtered.is_none_or(|(graph, position)| graph.may_change(position, path))
    }

    /// Returns the parents that the commit names, whether they are here or not. There are none where history
    /// is cut off.
    ///
    /// # Errors
    /// If the commit is missing, corrupt or no commit.
    pub fn parents(&self, commit: &Oid) -> Result<Vec<Oid>> {
        if self.shallow.contains(commit) {
            return Ok(Vec::new());
        }
        let object = self.objects.reader().require(commit)?;
        commit_links(self.objects.hash, &object.data)
            .map(|links| links.parents)
            .map_err(|source| Error::Object { oid: *commit, source })
    }

    /// Returns one missing object that `tips` lead to, if there is one. Reads everything that they lead to.
    ///
    /// # Errors
    /// If an object is corrupt.
    pub fn first_missing(&self, tips: impl IntoIterator<Item = Oid>) -> Result<Option<Oid>> {
        let mut missing = None;
        visit_reachable(
            self,
            |_, _| false,
            tips,
            &mut Steps::unbounded(),
            |oid, found, _| {
                if found.is_none() && missing.is_none() {
                    missing = Some(*oid);
                }
            },
        )?;
        Ok(missing)
    }
}

/// Returns whether every one of `targets` is reached from `sources` through commits. Reads at most
/// `commits_max` commits; beyond that the answer is no.
pub(crate) fn all_reachable_from(
    history: &History,
    sources: &[Oid],
    targets: &[Oid],
    commits_max: usize,
    steps: &mut Steps<'_>,
) -> Result<bool> {
    let mut reader = history.objects.reader();
    let mut waiting: OidSet = OidSet::default();
    for target in targets {
        steps.take(1)?;
        match reader.kind_and_size(target)? {
            Some((Kind::Commit, _)) => drop(waiting.insert(*target)),
            // Tags, trees and blobs are seldom reachable except by their ref.
            _ => return Ok(false),
        }
    }
    let mut starts = Vec::new();
    for source in sources {
        steps.take(1)?;
        if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, source)? {
            starts.push(oid);
        }
    }
    let mut commits = Commits::new(history, &mut reader);
    let oldest = {
        let mut oldest = u64::MAX;
        for target in targets {
            oldest = oldest.min(commits.load(target)?.time);
        }
        oldest
    };
    let mut queue = BinaryHeap::new();
    let mut seen = OidSet::default();
    for oid in starts {
        if seen.insert(oid) {
            queue.push((commits.load(&oid)?.time, oid));
        }
    }
    let mut looked_at = 0;
    while let Some((time, oid)) = queue.pop() {
        waiting.remove(&oid);
        looked_at += 1;
        steps.take(1)?;
        if waiting.is_empty() {
            return Ok(true);
        }
        // Clocks differ by days at most where it matters. A wrong answer here only costs a slower clone.
        if looked_at > commits_max || time.saturating_add(7 * 86_400) < oldest {
            break;
        }
        for parent in commits.load(&oid)?.parents {
            if seen.insert(parent) && history.objects.contains(&parent) {
                queue.push((commits.load(&parent)?.time, parent));
            }
        }
    }
    Ok(waiting.is_empty())
}

/// Returns whether every one of `wants` is, or has among its ancestors, one of `haves`, and how many commits
/// were read. Reads at most `commits_max` commits; beyond that the answer is no.
///
/// # Errors
/// If an object is missing or corrupt, or the client no longer waits for the answer.
pub fn all_wants_meet(
    history: &History,
    wants: &[Oid],
    haves: &[Oid],
    commits_max: usize,
    budget: Budget<'_>,
) -> Result<(bool, usize)> {
    let mut reader = history.objects.reader();
    let mut steps = Steps::new(budget);
    let mut goals = OidSet::default();
    let mut oldest = u64::MAX;
    for have in haves {
        steps.take(1)?;
        if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, have)? {
            goals.insert(oid);
        }
    }
    let mut starts = Vec::new();
    for want in wants {
        steps.take(1)?;
        match peel_through(&mut reader, want)? {
            Some((oid, Kind::Commit, _)) => starts.push(oid),
            Some(_) => {}
            None => return Ok((false, 0)),
        }
    }
    let mut commits = Commits::new(history, &mut reader);
    for goal in &goals {
        oldest = oldest.min(commits.load(goal)?.time);
    }
    let mut looked_at = 0;
    // Commits that are known to reach a goal.
    let mut good = goals;
    for start in starts {
        let mut seen = OidSet::default();
        let mut queue = BinaryHeap::new();
        queue.push((commits.load(&start)?.time, start));
        let mut met = false;
        while let Some((time, oid)) = queue.pop() {
            if good.contains(&oid) {
                met = true;
                break;
            }
            looked_at += 1;
            if looked_at > commits_max {
                return Ok((false, looked_at));
            }
            steps.take(1)?;
            if time < oldest {
                continue;
            }
            for parent in commits.load(&oid)?.parents {
                if seen.insert(parent) {
                    queue.push((commits.load(&parent)?.time, parent));
                }
            }
        }
        if !met {
            return Ok((false, looked_at));
        }
        good.insert(start);
    }
    Ok((true, looked_at))
}

/// The ids of commits that are here, to offer to an upstream as haves: from `tips` back, every commit at
/// first, then ever fewer.
pub struct HaveCommits<'r> {
    history: &'r History,
    reader: ObjectReader<'r>,
    queue: BinaryHeap<(u64, Oid)>,
    seen: OidSet,
    given: usize,
    skip: usize,
}

impl<'r> HaveCommits<'r> {
    /// Starts at `tips`; skips those that are no commits.
    ///
    /// # Errors
    /// If an object is corrupt.
    pub fn new(history: &'r History, tips: impl IntoIterator<Item = Oid>) -> Result<HaveCommits<'r>> {
        let mut this = HaveCommits {
            history,
            reader: history.objects.reader(),
            queue: BinaryHeap::new(),
            seen: OidSet::default(),
            given: 0,
            skip: 0,
        };
        for tip in tips {
            if let Some((oid, Kind::Commit, _)) = peel_through(&mut this.reader, &tip)? {
                this.push(oid)?;
            }
        }
        Ok(this)
    }

    /// Returns at most `max` of the tips, newest first. Must be called before [`HaveCommits::next_batch`].
    pub fn tips(&self, max: usize) -> Vec<Oid> {
        let mut tips: Vec<(u64, Oid)> = self.queue.iter().copied().collect();
        tips.sort_unstable_by(|a, b| b.cmp(a));
        tips.into_iter().take(max).map(|(_, oid)| oid).collect()
    }

    fn push(&mut self, oid: Oid) -> Result<()> {
        if self.seen.insert(oid) && self.history.objects.contains(&oid) {
            let time = Commits::new(self.history, &mut self.reader).load(&oid)?.time;
            self.queue.push((time, oid));
        }
        Ok(())
    }

    /// Returns at most `max` more ids, newest first.
    ///
    /// # Errors
    /// If an object is corrupt.
    pub fn next_batch(&mut self, max: usize) -> Result<Vec<Oid>> {
        let mut batch = Vec::new();
        while batch.len() < max {
            let Some((_, oid)) = self.queue.pop() else { break };
            let parents = Commits::new(self.history, &mut self.reader).load(&oid)?.parents;
            for parent in parents {
                self.push(parent)?;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            batch.push(oid);
            self.given += 1;
            // As git's skipping negotiator: the further back, the larger the steps.
            self.skip = self.given / 32;
        }
        Ok(batch)
    }
}

/// Calls `visit` for everything reachable from `tips`, each object once, with its place and kind, and the id
/// of an object that names it. Missing objects are passed with `None`. Objects for which `is_elsewhere` holds
/// are skipped, with all that they lead to.
///
/// # Errors
/// If an object is corrupt, or `steps` are used up.
pub(crate) fn visit_reachable(
    history: &History,
    is_elsewhere: impl Fn(&Oid, Option<Location>) -> bool,
    tips: impl IntoIterator<Item = Oid>,
    steps: &mut Steps<'_>,
    mut visit: impl FnMut(&Oid, Option<(Location, Kind)>, Option<&Oid>),
) -> Result<()> {
    let mut reader = history.objects.reader();
    let shallow: OidSet = history.shallow.iter().copied().collect();
    // A tree may name another tree as if it were a file. What is visited as a blob is not read, so the same
    // id may have to be visited twice.
    let mut seen = ObjectSet::new(&history.objects);
    let mut seen_as_blob = ObjectSet::new(&history.objects);
    let mut stack: Vec<(Oid, bool, Option<Oid>)> = tips.into_iter().map(|t| (t, false, None)).collect();
    while let Some((oid, is_blob, referrer)) = stack.pop() {
        let location = history.objects.locate(&oid);
        if seen.contains(&history.objects, &oid, location)
            || !(if is_blob { &mut seen_as_blob } else { &mut seen }).insert(&history.objects, &oid, location)
        {
            continue;
        }
        if is_elsewhere(&oid, location) {
            continue;
        }
        steps.take(1)?;
        let Some(location) = location else {
            visit(&oid, None, referrer.as_ref());
            continue;
        };
        if is_blob {
            visit(&oid, Some((location, Kind::Blob)), referrer.as_ref());
            continue;
        }
        let object = reader.read_at(location, &oid)?;
        visit(&oid, Some((location, object.kind)), referrer.as_ref());
        let fail = |source| Error::Object { oid, source };
        match object.kind {
            Kind::Tree => {
                for entry in TreeIter::new(history.objects.hash, &object.data) {
                    let entry = entry.map_err(fail)?;
                    if !entry.is_gitlink() {
                        stack.push((
                            Oid::from_bytes(history.objects.hash, entry.id).expect("sized"),
                            !entry.is_tree(),
                            Some(oid),
                        ));
                    }
                }
            }
            Kind::Commit => {
                let links = commit_links(history.objects.hash, &object.data).map_err(fail)?;
                let parents = if shallow.contains(&oid) { Vec::new() } else { links.parents };
                stack.extend(std::iter::once(links.tree).chain(parents).map(|o| (o, false, Some(oid))));
            }
            Kind::Tag => stack.push((
                tag_target(history.objects.hash, &object.data).map_err(fail)?.0,
                false,
                Some(oid),
            )),
            Kind::Blob => {}
        }
    }
    Ok(())
}
