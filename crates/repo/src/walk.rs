//! Which objects an answer holds: walks over commits, differences of trees.
//!
//! What a client has is taken as what its commits reach. Errors go one way only: an object may be sent that the client
//! has, never the other way round. Commit times may lie; a commit wrongly taken for new costs bytes, not correctness.

use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidMap, OidSet, TreeIter, commit_links, commit_time, tag_target};

use crate::bitmap::Bits;
use crate::error::{Error, Result};
use crate::fill::select_by_bitmaps;
use crate::reader::{Object, ObjectReader};
use crate::repo::{Location, Repo};
use crate::tree_diff::changed_entries;

/// What is known of a commit.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) tree: Oid,
    pub(crate) parents: Vec<Oid>,
    pub(crate) time: u64,
}

/// Reads commits from the commit-graph where it has them, from packs otherwise.
pub(crate) struct Commits<'r, 'o> {
    repo: &'r Repo,
    reader: &'o mut ObjectReader<'r>,
    shallow: OidSet,
}

impl<'r, 'o> Commits<'r, 'o> {
    pub(crate) fn new(reader: &'o mut ObjectReader<'r>) -> Self {
        let repo = reader.repo();
        Commits { repo, reader, shallow: repo.shallow.iter().copied().collect() }
    }

    pub(crate) fn load(&mut self, oid: &Oid) -> Result<Node> {
        if let Some(graph) = self.repo.commit_graph()
            && let Some(position) = graph.find(oid)
            && let Some(commit) = graph.commit(position)
        {
            let parents = commit.parents.iter().map(|&p| graph.oid(p)).collect();
            return Ok(Node { tree: commit.tree, parents, time: commit.time });
        }
        let object = self.reader.require(oid)?;
        let links = commit_links(self.repo.hash, &object.data).map_err(|source| Error::Object { oid: *oid, source })?;
        let parents = if self.shallow.contains(oid) { Vec::new() } else { links.parents };
        Ok(Node { tree: links.tree, parents, time: commit_time(&object.data) })
    }
}

/// Follows tags from `oid` to something else; gives that and the tags passed. `None` if an object is missing.
pub(crate) fn peel_through(reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<Option<(Oid, Kind, Vec<Oid>)>> {
    let mut tags = Vec::new();
    let mut at = *oid;
    loop {
        let Some((kind, _)) = reader.kind_and_size(&at)? else { return Ok(None) };
        if kind != Kind::Tag || tags.len() > 256 {
            return Ok(Some((at, kind, tags)));
        }
        tags.push(at);
        let data = reader.require(&at)?.data;
        at = tag_target(reader.repo().hash, &data).map_err(|source| Error::Object { oid: at, source })?.0;
    }
}

/// Whether every one of `targets` is reached from `sources` through commits, looking at no more than `commits_max`
/// commits: beyond that the answer is no.
pub(crate) fn all_reachable_from(repo: &Repo, sources: &[Oid], targets: &[Oid], commits_max: usize) -> Result<bool> {
    let mut reader = repo.reader();
    let mut waiting: OidSet = OidSet::default();
    for target in targets {
        match reader.kind_and_size(target)? {
            Some((Kind::Commit, _)) => drop(waiting.insert(*target)),
            // Tags, trees and blobs: seldom reachable but by their ref.
            _ => return Ok(false),
        }
    }
    let mut starts = Vec::new();
    for source in sources {
        if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, source)? {
            starts.push(oid);
        }
    }
    let mut commits = Commits::new(&mut reader);
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
        if waiting.is_empty() {
            return Ok(true);
        }
        // Clocks differ by days at most where it matters; being wrong here costs a slower clone, no more.
        if looked_at > commits_max || time.saturating_add(7 * 86_400) < oldest {
            break;
        }
        for parent in commits.load(&oid)?.parents {
            if seen.insert(parent) && repo.contains(&parent) {
                queue.push((commits.load(&parent)?.time, parent));
            }
        }
    }
    Ok(waiting.is_empty())
}

/// Whether every one of `wants` is, or has among its ancestors, one of `haves`; looks at no more than `commits_max`
/// commits, beyond which the answer is no.
///
/// # Errors
/// If an object is missing or corrupt.
pub fn all_wants_meet(repo: &Repo, wants: &[Oid], haves: &[Oid], commits_max: usize) -> Result<bool> {
    let mut reader = repo.reader();
    let mut goals = OidSet::default();
    let mut oldest = u64::MAX;
    for have in haves {
        if let Some((oid, Kind::Commit, _)) = peel_through(&mut reader, have)? {
            goals.insert(oid);
        }
    }
    let mut starts = Vec::new();
    for want in wants {
        match peel_through(&mut reader, want)? {
            Some((oid, Kind::Commit, _)) => starts.push(oid),
            Some(_) => {}
            None => return Ok(false),
        }
    }
    let mut commits = Commits::new(&mut reader);
    for goal in &goals {
        oldest = oldest.min(commits.load(goal)?.time);
    }
    let mut looked_at = 0;
    // Commits from which a goal is known to be reached.
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
                return Ok(false);
            }
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
            return Ok(false);
        }
        good.insert(start);
    }
    Ok(true)
}

/// Whether all of `oids` are reachable from refs through commits; objects other than commits only if a ref names them. One
/// walk for all, of at most `commits_max` commits.
///
/// # Errors
/// If an object is missing or corrupt.
pub fn are_reachable(repo: &Repo, oids: &[Oid], commits_max: usize) -> Result<bool> {
    if !oids.iter().all(|oid| repo.contains(oid)) {
        return Ok(false);
    }
    let sources: Vec<Oid> = repo.refs().tips().collect();
    all_reachable_from(repo, &sources, oids, commits_max)
}

/// Ids of commits that are here, for asking an upstream what it has in common: from `tips` back, every commit at first,
/// then ever fewer.
pub struct HaveCommits<'r> {
    reader: ObjectReader<'r>,
    queue: BinaryHeap<(u64, Oid)>,
    seen: OidSet,
    given: usize,
    skip: usize,
}

impl<'r> HaveCommits<'r> {
    /// Starts at `tips`; what is no commit is passed over.
    ///
    /// # Errors
    /// If an object is corrupt.
    pub fn new(repo: &'r Repo, tips: impl IntoIterator<Item = Oid>) -> Result<HaveCommits<'r>> {
        let mut this = HaveCommits { reader: repo.reader(), queue: BinaryHeap::new(), seen: OidSet::default(), given: 0, skip: 0 };
        for tip in tips {
            if let Some((oid, Kind::Commit, _)) = peel_through(&mut this.reader, &tip)? {
                this.push(oid)?;
            }
        }
        Ok(this)
    }

    fn push(&mut self, oid: Oid) -> Result<()> {
        if self.seen.insert(oid) && self.reader.repo().contains(&oid) {
            let time = Commits::new(&mut self.reader).load(&oid)?.time;
            self.queue.push((time, oid));
        }
        Ok(())
    }

    /// At most `max` more ids, newest first.
    ///
    /// # Errors
    /// If an object is corrupt.
    pub fn next_batch(&mut self, max: usize) -> Result<Vec<Oid>> {
        let mut batch = Vec::new();
        while batch.len() < max {
            let Some((_, oid)) = self.queue.pop() else { break };
            let parents = Commits::new(&mut self.reader).load(&oid)?.parents;
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

/// What to send.
#[derive(Debug, Default)]
pub struct Selection {
    /// Ids of objects to send, each once: tags, commits from the newest, then trees and blobs.
    pub objects: Vec<Oid>,
    /// Ids the client is known to have, near what it lacks: bases for thin deltas.
    pub client_has: OidSet,
    /// For a tree or blob to send, what stood at its path before.
    pub previous: OidMap<Oid>,
    /// Objects to send besides, by pack and rank in it, each once and none of [`Selection::objects`].
    pub ranks: Vec<(u32, u32)>,
    /// All the client has, by number, if bitmaps told.
    pub(crate) client_numbers: Option<Bits>,
}

impl Selection {
    /// Adds those of `tags` (tag object and what it is peeled to) whose target is sent.
    ///
    /// # Errors
    /// If an index is corrupt.
    pub fn include_tags(&mut self, repo: &Repo, tags: impl Iterator<Item = (Oid, Oid)>) -> Result<()> {
        let mut sent: OidSet = self.objects.iter().copied().collect();
        let ranks: std::collections::HashSet<(u32, u32)> = self.ranks.iter().copied().collect();
        let is_ranked = |oid: &Oid| -> Result<bool> {
            Ok(match repo.locate(oid) {
                Some(Location::Packed { pack, position }) if !ranks.is_empty() => {
                    ranks.contains(&(pack, repo.packs[pack as usize].order()?.rank_by_index[position as usize]))
                }
                _ => false,
            })
        };
        for (tag, target) in tags {
            // Several refs may name one tag object.
            if (sent.contains(&target) || is_ranked(&target)?) && !is_ranked(&tag)? && sent.insert(tag) {
                self.objects.push(tag);
            }
        }
        Ok(())
    }
}

/// Bounds of one selection.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Commits and trees looked at.
    pub steps_max: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { steps_max: 200_000_000 }
    }
}

/// With more new commits than this, bitmaps are faster than differences of trees, where there are some.
const WALKED_COMMITS_MAX: usize = 48;

const INTERESTING: u8 = 1;
const UNINTERESTING: u8 = 2;
const QUEUED: u8 = 4;

/// Selects what `wants` reach and `haves` do not. Haves that are not here are passed over.
///
/// # Errors
/// If an object is missing or corrupt, or the budget is used up.
pub fn select(repo: &Repo, wants: &[Oid], haves: &[Oid], budget: Budget) -> Result<Selection> {
    let mut reader = repo.reader();
    let mut selection = Selection::default();
    let mut sent = OidSet::default();
    let mut flags: OidMap<u8> = OidMap::default();
    let mut nodes: OidMap<Node> = OidMap::default();
    let mut queue: BinaryHeap<(u64, Oid)> = BinaryHeap::new();
    let mut direct = Vec::new();
    let mut seeds = Vec::new();
    for want in wants {
        let (oid, kind, tags) = peel_through(&mut reader, want)?.ok_or(Error::Missing(*want))?;
        selection.objects.extend(tags.into_iter().filter(|t| sent.insert(*t)));
        match kind {
            Kind::Commit => seeds.push((oid, INTERESTING)),
            _ => direct.push((oid, kind)),
        }
    }
    for have in haves {
        if let Some((oid, kind, tags)) = peel_through(&mut reader, have)? {
            selection.client_has.extend(tags);
            match kind {
                Kind::Commit => seeds.push((oid, UNINTERESTING)),
                _ => drop(selection.client_has.insert(oid)),
            }
        }
    }
    let mut steps = Steps { left: budget.steps_max };
    let mut commits = Commits::new(&mut reader);
    let mut interesting_queued = 0usize;
    for (oid, flag) in seeds {
        let entry = flags.entry(oid).or_default();
        *entry |= flag;
        if *entry & QUEUED == 0 {
            *entry |= QUEUED;
            let node = commits.load(&oid)?;
            queue.push((node.time, oid));
            nodes.insert(oid, node);
        }
    }
    for (_, oid) in &queue {
        interesting_queued += usize::from(flags[oid] & UNINTERESTING == 0);
    }
    let mut new_commits = Vec::new();
    let mut oldest_new = u64::MAX;
    let has_bitmaps = repo.bitmaps().is_some() && repo.loose.is_empty();
    while let Some(&(time, oid)) = queue.peek() {
        if has_bitmaps && new_commits.len() > WALKED_COMMITS_MAX {
            return select_by_bitmaps(repo, wants, haves, budget);
        }
        // Once nothing new waits, go on only while an uninteresting commit could still reach a new one.
        if interesting_queued == 0 && (new_commits.is_empty() || time < oldest_new) {
            break;
        }
        queue.pop();
        steps.take(1)?;
        let uninteresting = flags[&oid] & UNINTERESTING != 0;
        if !uninteresting {
            interesting_queued -= 1;
            new_commits.push(oid);
            oldest_new = oldest_new.min(time);
        }
        let parents = nodes[&oid].parents.clone();
        for parent in parents {
            let flag = flags.entry(parent).or_default();
            let before = *flag;
            *flag |= QUEUED | if uninteresting { UNINTERESTING } else { INTERESTING };
            if before & QUEUED == 0 {
                let node = commits.load(&parent)?;
                queue.push((node.time, parent));
                nodes.insert(parent, node);
                interesting_queued += usize::from(!uninteresting);
            } else if uninteresting && before & UNINTERESTING == 0 {
                interesting_queued -= spread_uninteresting(&parent, &mut flags, &nodes, &queue);
            }
        }
    }
    new_commits.retain(|oid| flags[oid] & UNINTERESTING == 0 && !sent.contains(oid));
    for oid in &new_commits {
        sent.insert(*oid);
        selection.objects.push(*oid);
    }
    let mut trees = Trees { reader: &mut reader, sent, selection: &mut selection, steps };
    for oid in new_commits.iter().rev() {
        let node = &nodes[oid];
        let mut before = Vec::new();
        for parent in &node.parents {
            if let Some(parent_node) = nodes.get(parent) {
                if flags[parent] & UNINTERESTING != 0 {
                    trees.selection.client_has.insert(parent_node.tree);
                }
                before.push(parent_node.tree);
            }
        }
        trees.add_tree(&node.tree, &before, 0)?;
    }
    for (oid, kind) in direct {
        match kind {
            Kind::Tree => trees.add_tree(&oid, &[], 0)?,
            _ => trees.add(&oid, None),
        }
    }
    Ok(selection)
}

/// Marks everything known behind `start` as uninteresting. Returns how many commits in the queue that changed.
fn spread_uninteresting(start: &Oid, flags: &mut OidMap<u8>, nodes: &OidMap<Node>, queue: &BinaryHeap<(u64, Oid)>) -> usize {
    let queued: OidSet = queue.iter().map(|q| q.1).collect();
    let mut changed = usize::from(queued.contains(start));
    let mut stack = vec![*start];
    while let Some(oid) = stack.pop() {
        let Some(node) = nodes.get(&oid) else { continue };
        for parent in &node.parents {
            if let Some(flag) = flags.get_mut(parent)
                && *flag & UNINTERESTING == 0
            {
                *flag |= UNINTERESTING;
                changed += usize::from(queued.contains(parent));
                stack.push(*parent);
            }
        }
    }
    changed
}

pub(crate) struct Steps {
    pub(crate) left: u64,
}

impl Steps {
    pub(crate) fn take(&mut self, n: u64) -> Result<()> {
        match self.left.checked_sub(n) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::Unsupported("the request needs more work than this server allows".to_owned())),
        }
    }
}

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
pub(crate) const TREE_DEPTH_MAX: usize = 2048;

struct Trees<'a, 'r> {
    reader: &'a mut ObjectReader<'r>,
    sent: OidSet,
    selection: &'a mut Selection,
    steps: Steps,
}

impl Trees<'_, '_> {
    fn add(&mut self, oid: &Oid, previous: Option<Oid>) {
        if self.sent.insert(*oid) {
            self.selection.objects.push(*oid);
            if let Some(previous) = previous {
                if !self.sent.contains(&previous) {
                    self.selection.client_has.insert(previous);
                }
                self.selection.previous.insert(*oid, previous);
            }
        }
    }

    /// Adds `tree` and what is below it, as far as it is in none of the trees `before`.
    fn add_tree(&mut self, tree: &Oid, before: &[Oid], depth: usize) -> Result<()> {
        if before.contains(tree) || self.sent.contains(tree) {
            return Ok(());
        }
        if depth > TREE_DEPTH_MAX {
            return Err(Error::Unsupported(format!("tree {tree} is nested more than {TREE_DEPTH_MAX} deep")));
        }
        self.steps.take(1)?;
        let hash = self.reader.repo().hash;
        let object = self.reader.require(tree)?;
        let mut olds: Vec<Object> = Vec::with_capacity(before.len());
        for oid in before {
            if let Some(object) = self.reader.read(oid)? {
                olds.push(object);
            }
        }
        self.add(tree, before.first().copied());
        let old_data: Vec<&[u8]> = olds.iter().map(|o| o.data.as_slice()).collect();
        let mut below = Vec::new();
        changed_entries(hash, &object.data, &old_data, |entry, same_name| {
            let oid = Oid::from_bytes(hash, entry.id).expect("of its length");
            let alike = same_name.iter().filter(|o| o.is_tree() == entry.is_tree() && !o.is_gitlink());
            let old_ids: Vec<Oid> = alike.map(|o| Oid::from_bytes(hash, o.id).expect("of its length")).collect();
            if entry.is_tree() {
                below.push((oid, old_ids));
            } else {
                self.add(&oid, old_ids.first().copied());
            }
        })
        .map_err(|source| Error::Object { oid: *tree, source })?;
        for (oid, old_ids) in below {
            self.add_tree(&oid, &old_ids, depth + 1)?;
        }
        Ok(())
    }
}

/// Calls `visit` for everything reachable from `tips`, each object once, with its kind. Missing objects are given with
/// `None` and the id that names them.
///
/// # Errors
/// If an object is corrupt.
pub fn visit_reachable(
    repo: &Repo,
    tips: impl IntoIterator<Item = Oid>,
    mut visit: impl FnMut(&Oid, Option<Kind>, Option<&Oid>),
) -> Result<()> {
    let mut reader = repo.reader();
    let shallow: OidSet = repo.shallow.iter().copied().collect();
    // A tree may name another tree as if it were a file: what is looked at as a blob is not looked into, so the same id may
    // have to be looked at twice.
    let mut seen = OidSet::default();
    let mut seen_as_blob = OidSet::default();
    let mut stack: Vec<(Oid, bool, Option<Oid>)> = tips.into_iter().map(|t| (t, false, None)).collect();
    while let Some((oid, is_blob, referrer)) = stack.pop() {
        if seen.contains(&oid) || !(if is_blob { &mut seen_as_blob } else { &mut seen }).insert(oid) {
            continue;
        }
        if is_blob {
            visit(&oid, repo.contains(&oid).then_some(Kind::Blob), referrer.as_ref());
            continue;
        }
        let Some(object) = reader.read(&oid)? else {
            visit(&oid, None, referrer.as_ref());
            continue;
        };
        visit(&oid, Some(object.kind), referrer.as_ref());
        let fail = |source| Error::Object { oid, source };
        match object.kind {
            Kind::Tree => {
                for entry in TreeIter::new(repo.hash, &object.data) {
                    let entry = entry.map_err(fail)?;
                    if !entry.is_gitlink() {
                        stack.push((Oid::from_bytes(repo.hash, entry.id).expect("sized"), !entry.is_tree(), Some(oid)));
                    }
                }
            }
            Kind::Commit => {
                let links = commit_links(repo.hash, &object.data).map_err(fail)?;
                let parents = if shallow.contains(&oid) { Vec::new() } else { links.parents };
                stack.extend(std::iter::once(links.tree).chain(parents).map(|o| (o, false, Some(oid))));
            }
            Kind::Tag => stack.push((tag_target(repo.hash, &object.data).map_err(fail)?.0, false, Some(oid))),
            Kind::Blob => {}
        }
    }
    Ok(())
}
