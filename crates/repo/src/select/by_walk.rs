//! Selects the objects of an answer: what is wanted, without what the client has.

use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidMap, OidSet, TreeIter};

use crate::error::{Error, Result};
use crate::objects::reader::{ObjectReader, peel_through};
use crate::objects::tree_diff::{Changed, TREE_DEPTH_MAX, changed, each_changed};
use crate::reach::delta_reuse::Changes;
use crate::reach::history::History;
use crate::reach::steps::Steps;
use crate::reach::walk::{Commits, LinkedCommit};
use crate::select::brought::brought;
use crate::select::by_bitmaps::select_by_bitmaps;
use crate::select::filter::Filter;
use crate::select::query::{Query, Selection};
use crate::select::sparse::Patterns;

/// With more new commits than this, bitmaps are faster than differences of trees, if there are bitmaps.
const WALKED_COMMITS_MAX: usize = 48;
/// The limit of [`WALKED_COMMITS_MAX`] for a client that has commits already. Differences of trees show which
/// objects it can take deltas against. That makes its pack a third of the size or less.
const WALKED_COMMITS_FOR_FETCH_MAX: usize = 8192;

const INTERESTING: u8 = 1;
const UNINTERESTING: u8 = 2;
/// The commit was put in the queue once.
const QUEUED: u8 = 4;
/// The commit was taken out of the queue again.
const POPPED: u8 = 8;

/// Selects the objects that the wants reach and the haves do not.
///
/// # Errors
/// If an object is missing or corrupt, or the budget is used up.
pub fn select(history: &History, query: &Query<'_>) -> Result<Selection> {
    let Query { haves, cut, filter, budget, .. } = *query;
    let mut reader = history.objects().reader();
    let mut selection = Selection::default();
    let mut sent = OidSet::default();
    let ends = Ends::of(&mut reader, query, &mut selection, &mut sent)?;
    let by_place = filter.is_some_and(|f| f.has_depth() || f.has_paths());
    let has_bitmaps =
        cut.is_none() && !by_place && history.bitmaps().is_some() && history.objects.loose.is_empty();
    let walked_max = match (has_bitmaps, haves.is_empty()) {
        (false, _) => usize::MAX,
        (true, true) => WALKED_COMMITS_MAX,
        (true, false) => WALKED_COMMITS_FOR_FETCH_MAX,
    };
    let mut walk = CommitWalk::new(Steps::new(budget));
    let mut commits = match cut {
        Some(cut) => Commits::cut_at(history, &mut reader, &cut.commits),
        None => Commits::new(history, &mut reader),
    };
    walk.start(&mut commits, &ends.seeds)?;
    if !walk.run(&mut commits, walked_max)? {
        return select_by_bitmaps(history, reader, query);
    }
    let CommitWalk { mut new_commits, flags, nodes, is_parents_last, steps, .. } = walk;
    new_commits.retain(|oid| flags[oid] & UNINTERESTING == 0 && !sent.contains(oid));
    for oid in &new_commits {
        if filter.is_none_or(|f| f.takes(Kind::Commit)) || ends.named.contains(oid) {
            sent.insert(*oid);
            selection.objects.push(*oid);
        }
    }
    let mut trees = Trees {
        reader: &mut reader,
        sent,
        known: OidSet::default(),
        visited: OidMap::default(),
        filter,
        selection: &mut selection,
        steps,
    };
    if cut.is_some() {
        // Where history is cut off there is no parent to compare with. The trees of the client's newest
        // commits stand in for it.
        for oid in ends.edges.iter().take(EDGES_MAX) {
            match trees.know(&nodes[oid].tree, 0) {
                Err(Error::Missing(_)) => {}
                known => known?,
            }
        }
    }
    if !filter.is_some_and(Filter::is_commits_only) {
        // What a parent's tree holds is left out of its child's. So the parent must be listed first, whatever
        // the commit times say.
        let new_commits = if is_parents_last {
            new_commits.into_iter().rev().collect()
        } else {
            parents_first(&new_commits, &nodes)
        };
        // A commit brings the same objects to all clients that have its parents.
        let kept = (filter.is_none() && cut.is_none() && !haves.is_empty()).then_some(&history.changes);
        trees.add_commits(&new_commits, &nodes, &flags, kept)?;
    }
    trees.add_direct(&ends.direct)?;
    let sent = trees.sent;
    // With wrong commit times, or files that swapped places, an object that seemed to be the client's may be
    // sent after all. Deltas on it could form a cycle.
    selection.client_has.retain(|oid| !sent.contains(oid));
    Ok(selection)
}

/// The commits at which a walk begins, and the wanted objects that are not commits.
struct Ends {
    /// Commits that are wanted, and commits that the client has, with their flags.
    seeds: Vec<(Oid, u8)>,
    /// Commits that the client has.
    edges: Vec<Oid>,
    /// Trees and blobs that are wanted by name.
    direct: Vec<(Oid, Kind)>,
    /// The objects that a client names, and those that the tags it names point at. They are sent whatever the
    /// filter says.
    named: OidSet,
}

impl Ends {
    /// Peels the objects that `query` names. Tags on the way are sent, or belong to the client.
    fn of(
        reader: &mut ObjectReader<'_>,
        query: &Query<'_>,
        selection: &mut Selection,
        sent: &mut OidSet,
    ) -> Result<Ends> {
        let Query { wants, haves, cut, .. } = *query;
        let (mut seeds, mut edges, mut direct) = (Vec::new(), Vec::new(), Vec::new());
        let mut named = OidSet::default();
        for want in wants.iter().chain(cut.iter().flat_map(|c| &c.wants)) {
            let (oid, kind, tags) = peel_through(reader, want)?.ok_or(Error::Missing(*want))?;
            named.insert(oid);
            selection.objects.extend(tags.into_iter().filter(|t| sent.insert(*t)));
            match kind {
                Kind::Commit => seeds.push((oid, INTERESTING)),
                _ => direct.push((oid, kind)),
            }
        }
        for have in haves.iter().chain(cut.iter().flat_map(|c| &c.unshallow)) {
            if let Some((oid, kind, tags)) = peel_through(reader, have)? {
                selection.client_has.extend(tags);
                match kind {
                    Kind::Commit => {
                        seeds.push((oid, UNINTERESTING));
                        edges.push(oid);
                    }
                    _ => drop(selection.client_has.insert(oid)),
                }
            }
        }
        Ok(Ends { seeds, edges, direct, named })
    }
}

/// A walk over commits, newest first. Some of them are wanted, and some the client has.
struct CommitWalk<'a> {
    steps: Steps<'a>,
    flags: OidMap<u8>,
    nodes: OidMap<LinkedCommit>,
    queue: BinaryHeap<(u64, Oid)>,
    /// The number of commits in the queue that are wanted and that the client lacks.
    interesting_queued: usize,
    /// The wanted commits that were taken out of the queue.
    new_commits: Vec<Oid>,
    /// The time of the oldest of `new_commits`.
    oldest_new: u64,
    /// Whether no parent was met before its child.
    is_parents_last: bool,
}

impl<'a> CommitWalk<'a> {
    fn new(steps: Steps<'a>) -> CommitWalk<'a> {
        CommitWalk {
            steps,
            flags: OidMap::default(),
            nodes: OidMap::default(),
            queue: BinaryHeap::new(),
            interesting_queued: 0,
            new_commits: Vec::new(),
            oldest_new: u64::MAX,
            is_parents_last: true,
        }
    }

    fn start(&mut self, commits: &mut Commits<'_, '_>, seeds: &[(Oid, u8)]) -> Result<()> {
        for (oid, flag) in seeds {
            let entry = self.flags.entry(*oid).or_default();
            *entry |= flag;
            if *entry & QUEUED == 0 {
                *entry |= QUEUED;
                let node = commits.load(oid)?;
                self.queue.push((node.time, *oid));
                self.nodes.insert(*oid, node);
            }
        }
        let is_interesting = |(_, oid): &&(u64, Oid)| self.flags[oid] & UNINTERESTING == 0;
        self.interesting_queued = self.queue.iter().filter(is_interesting).count();
        Ok(())
    }

    /// Walks until all new commits are known. Returns whether there were at most `walked_max` of them.
    fn run(&mut self, commits: &mut Commits<'_, '_>, walked_max: usize) -> Result<bool> {
        while let Some(&(time, oid)) = self.queue.peek() {
            if self.new_commits.len() > walked_max {
                return Ok(false);
            }
            // Once no new commit waits, go on only while an uninteresting commit could still reach a new one.
            if self.interesting_queued == 0 && (self.new_commits.is_empty() || time < self.oldest_new) {
                break;
            }
            self.queue.pop();
            self.steps.take(1)?;
            let flag = self.flags.entry(oid).or_default();
            *flag |= POPPED;
            let uninteresting = *flag & UNINTERESTING != 0;
            if !uninteresting {
                self.interesting_queued -= 1;
                self.new_commits.push(oid);
                self.oldest_new = self.oldest_new.min(time);
            }
            for parent in self.nodes[&oid].parents.clone() {
                self.meet(commits, parent, uninteresting)?;
            }
        }
        Ok(true)
    }

    /// Notes a parent of a commit that was taken out of the queue.
    fn meet(&mut self, commits: &mut Commits<'_, '_>, parent: Oid, uninteresting: bool) -> Result<()> {
        let flag = self.flags.entry(parent).or_default();
        let before = *flag;
        self.is_parents_last &= before & POPPED == 0;
        *flag |= QUEUED | if uninteresting { UNINTERESTING } else { INTERESTING };
        if before & QUEUED == 0 {
            let node = match commits.load(&parent) {
                // A commit that the client has may be left over here, with its parents gone: git prunes one
                // object at a time.
                Err(Error::Missing(_)) if uninteresting => return Ok(()),
                node => node?,
            };
            self.queue.push((node.time, parent));
            self.nodes.insert(parent, node);
            self.interesting_queued += usize::from(!uninteresting);
        } else if uninteresting && before & UNINTERESTING == 0 {
            self.interesting_queued -=
                spread_uninteresting(&parent, &mut self.flags, &self.nodes, &mut self.steps)?;
        }
        Ok(())
    }
}

/// The most bytes of a path that is matched with patterns; no system takes longer ones.
const PATH_BYTES_MAX: usize = 4096;
/// The most commits of the client whose trees are read before an answer that is cut off.
const EDGES_MAX: usize = 16;

/// Orders `commits` with parents before their children.
fn parents_first(commits: &[Oid], nodes: &OidMap<LinkedCommit>) -> Vec<Oid> {
    let mut waiting: OidSet = commits.iter().copied().collect();
    let mut order = Vec::with_capacity(commits.len());
    let mut stack = Vec::new();
    for start in commits.iter().rev() {
        stack.push((*start, false));
        while let Some((oid, parents_are_listed)) = stack.pop() {
            if parents_are_listed {
                order.push(oid);
            } else if waiting.remove(&oid) {
                stack.push((oid, true));
                stack.extend(
                    nodes[&oid]
                        .parents
                        .iter()
                        .filter(|parent| waiting.contains(*parent))
                        .map(|parent| (*parent, false)),
                );
            }
        }
    }
    debug_assert_eq!(order.len(), commits.len(), "a commit is not there once");
    order
}

/// Marks every known commit behind `start`, which was just marked, as uninteresting. Returns how many of the
/// commits in the queue changed, `start` included.
fn spread_uninteresting(
    start: &Oid,
    flags: &mut OidMap<u8>,
    nodes: &OidMap<LinkedCommit>,
    steps: &mut Steps<'_>,
) -> Result<usize> {
    let mut changed = usize::from(flags[start] & POPPED == 0);
    let mut stack = vec![*start];
    while let Some(oid) = stack.pop() {
        steps.take(1)?;
        let Some(node) = nodes.get(&oid) else { continue };
        for parent in &node.parents {
            if let Some(flag) = flags.get_mut(parent)
                && *flag & UNINTERESTING == 0
            {
                *flag |= UNINTERESTING;
                changed += usize::from(*flag & POPPED == 0);
                stack.push(*parent);
            }
        }
    }
    Ok(changed)
}

struct Trees<'a, 'r> {
    reader: &'a mut ObjectReader<'r>,
    sent: OidSet,
    /// Objects that the client has, and that differences of trees do not show.
    known: OidSet,
    /// With a filter: the trees that were read, and the least depth at which each was found.
    visited: OidMap<usize>,
    filter: Option<&'a Filter>,
    selection: &'a mut Selection,
    steps: Steps<'a>,
}

impl Trees<'_, '_> {
    /// Adds what `new_commits`, parents first, bring. Lists that are already in `kept` are used, and new ones
    /// are kept there.
    fn add_commits(
        &mut self,
        new_commits: &[Oid],
        nodes: &OidMap<LinkedCommit>,
        flags: &OidMap<u8>,
        kept: Option<&Changes>,
    ) -> Result<()> {
        for oid in new_commits {
            let node = &nodes[oid];
            let mut before = Vec::new();
            for parent in &node.parents {
                if let Some(parent_node) = nodes.get(parent) {
                    if flags[parent] & UNINTERESTING != 0 {
                        self.selection.client_has.insert(parent_node.tree);
                    }
                    before.push(parent_node.tree);
                }
            }
            if let Some(filter) = self.filter.filter(|f| f.has_paths()) {
                self.add_by_path(filter, &node.tree, &before)?;
                continue;
            }
            let Some(kept) = kept else {
                self.add_tree(&node.tree, &before, 0)?;
                continue;
            };
            let list = match kept.brought_by(oid) {
                Some(list) => list,
                None => {
                    let brought = brought(self.reader, &mut self.steps, &node.tree, &before)?;
                    kept.keep_brought(*oid, brought)
                }
            };
            self.steps.take(list.len() as u64)?;
            for (oid, previous) in list.iter() {
                self.add(oid, *previous);
            }
        }
        Ok(())
    }

    /// Adds trees and blobs that are wanted by name, and what is below the trees.
    fn add_direct(&mut self, direct: &[(Oid, Kind)]) -> Result<()> {
        // A partial clone lacks objects that its trees name. It asks for them by id, so they are not known.
        self.known.clear();
        for (oid, kind) in direct {
            match self.filter.filter(|f| f.has_paths()) {
                _ if *kind != Kind::Tree => {}
                Some(filter) => self.add_by_path(filter, oid, &[])?,
                None => self.add_tree(oid, &[], 0)?,
            }
            self.add(oid, None);
        }
        Ok(())
    }

    fn add(&mut self, oid: &Oid, previous: Option<Oid>) {
        if !self.known.contains(oid) && self.sent.insert(*oid) {
            self.selection.objects.push(*oid);
            if let Some(previous) = previous {
                if !self.sent.contains(&previous) {
                    self.selection.client_has.insert(previous);
                }
                self.selection.previous.insert(*oid, previous);
            }
        }
    }

    /// Notes everything in `tree` as the client's.
    fn know(&mut self, tree: &Oid, depth: usize) -> Result<()> {
        if depth > TREE_DEPTH_MAX || !self.known.insert(*tree) {
            return Ok(());
        }
        self.steps.take(1)?;
        let hash = self.reader.objects().hash;
        let Some(object) = self.reader.read(tree)? else { return Ok(()) };
        for entry in TreeIter::new(hash, &object.data) {
            let entry = entry.map_err(|source| Error::Object { oid: *tree, source })?;
            let oid = Oid::from_bytes(hash, entry.id).expect("of its length");
            if entry.is_tree() {
                self.know(&oid, depth + 1)?;
            } else if !entry.is_gitlink() {
                self.known.insert(oid);
            }
        }
        Ok(())
    }

    /// Returns whether `tree` need not be read: it was read already, or the filter takes nothing in it.
    fn is_done(&mut self, tree: &Oid, depth: usize) -> bool {
        let Some(filter) = self.filter else { return self.sent.contains(tree) };
        if filter.depth_below.is_some_and(|below| depth as u64 >= below) {
            return true;
        }
        let depth = if filter.has_depth() { depth } else { 0 };
        match self.visited.get_mut(tree) {
            Some(least) if *least <= depth => true,
            Some(least) => {
                *least = depth;
                false
            }
            None => {
                self.visited.insert(*tree, depth);
                false
            }
        }
    }

    fn takes_blob(&mut self, oid: &Oid, depth: usize) -> Result<bool> {
        let Some(filter) = self.filter else { return Ok(true) };
        if !filter.takes(Kind::Blob) || filter.depth_below.is_some_and(|below| depth as u64 >= below) {
            return Ok(false);
        }
        Ok(match filter.blob_bytes_below {
            None => true,
            Some(0) => false,
            Some(below) => self.reader.kind_and_size(oid)?.ok_or(Error::Missing(*oid))?.1 < below,
        })
    }

    /// Adds `tree` and what is below it, except what is in one of the trees `before`.
    fn add_tree(&mut self, tree: &Oid, before: &[Oid], depth: usize) -> Result<()> {
        if before.contains(tree) || self.known.contains(tree) || self.is_done(tree, depth) {
            return Ok(());
        }
        if depth > TREE_DEPTH_MAX {
            return Err(Error::Unsupported(format!("tree {tree} is nested more than {TREE_DEPTH_MAX} deep")));
        }
        self.steps.take(1)?;
        let Changed { trees: below, blobs } = changed(self.reader, tree, before)?;
        if self.filter.is_none_or(|f| f.takes(Kind::Tree)) {
            self.add(tree, before.first().copied());
        }
        for (oid, old) in blobs {
            if self.takes_blob(&oid, depth + 1)? {
                self.add(&oid, old);
            }
        }
        for (oid, old_ids) in below {
            self.add_tree(&oid, &old_ids, depth + 1)?;
        }
        Ok(())
    }

    /// Adds `tree` and what is below it under a filter by paths. What was at the same path in one of `before`
    /// was decided there. Every other place is checked: the filter may take an object at one path and not at
    /// another.
    fn add_by_path(&mut self, filter: &Filter, tree: &Oid, before: &[Oid]) -> Result<()> {
        // At the top only what a pattern takes is taken.
        let around = vec![false; filter.sparse.len()];
        self.add_place(filter, tree, before, &mut Vec::new(), 0, &around)
    }

    fn add_place(
        &mut self,
        filter: &Filter,
        tree: &Oid,
        before: &[Oid],
        path: &mut Vec<u8>,
        depth: usize,
        around: &[bool],
    ) -> Result<()> {
        if before.contains(tree)
            || self.known.contains(tree)
            || filter.depth_below.is_some_and(|below| depth as u64 >= below)
        {
            return Ok(());
        }
        if depth > TREE_DEPTH_MAX || path.len() > PATH_BYTES_MAX {
            return Err(Error::Unsupported(format!(
                "tree {tree} is nested too deep: more than {TREE_DEPTH_MAX} trees or {PATH_BYTES_MAX} bytes"
            )));
        }
        let cost = 1 + filter.sparse.iter().map(Patterns::cost).sum::<u64>();
        self.steps.take(cost)?;
        let taken: Vec<bool> = decided(filter, path, true, around).collect();
        let folder_len = path.len();
        let (mut below, mut blobs) = (Vec::new(), Vec::new());
        // Steps are taken before each check, so that a large tree does not exceed the budget.
        let (steps, mut in_budget) = (&mut self.steps, Ok(()));
        each_changed(self.reader, tree, before, |entry, oid, alike| {
            if in_budget.is_err() {
                return;
            }
            if entry.is_tree() {
                below.push((oid, alike.collect::<Vec<_>>(), entry.name.to_vec()));
                return;
            }
            in_budget = steps.take(cost);
            path.extend_from_slice(if folder_len > 0 { b"/" } else { b"" });
            path.extend_from_slice(entry.name);
            if in_budget.is_ok() && decided(filter, path, false, &taken).all(|t| t) {
                blobs.push((oid, alike.next()));
            }
            path.truncate(folder_len);
        })?;
        in_budget?;
        if filter.takes(Kind::Tree) {
            self.add(tree, before.first().copied());
        }
        for (oid, old) in blobs {
            if self.takes_blob(&oid, depth + 1)? {
                self.add(&oid, old);
            }
        }
        for (oid, old, name) in below {
            path.extend_from_slice(if folder_len > 0 { b"/" } else { b"" });
            path.extend_from_slice(&name);
            self.add_place(filter, &oid, &old, path, depth + 1, &taken)?;
            path.truncate(folder_len);
        }
        Ok(())
    }
}

/// Returns whether each specification takes `path`. Where a specification does not say, the decision for the
/// folder around it holds.
fn decided<'f>(
    filter: &'f Filter,
    path: &'f [u8],
    is_folder: bool,
    around: &'f [bool],
) -> impl Iterator<Item = bool> + 'f {
    filter
        .sparse
        .iter()
        .zip(around)
        .map(move |(patterns, around)| patterns.decide(path, is_folder).unwrap_or(*around))
}
