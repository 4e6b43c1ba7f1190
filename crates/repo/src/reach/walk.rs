//! Walks over commits: what is reached from where.
//!
//! What a client has is taken as what its commits reach. Errors go one way only: an object may be sent that
//! the client has, never the other way round. Commit times may lie; a commit wrongly taken for new costs
//! bytes, not correctness.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_git::{Kind, Oid, OidSet, TreeIter, commit_links, commit_time, tag_target};

use crate::error::{Error, Result};
use crate::objects::object_set::ObjectSet;
use crate::objects::reader::ObjectReader;
use crate::reach::bitmap::Bits;
use crate::reach::bitmap_walk::all_by_bitmaps;
use crate::repo::repository::{Location, Repo};

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

    /// The same, with no parents for `cut` either.
    pub(crate) fn cut_at(reader: &'o mut ObjectReader<'r>, cut: &OidSet) -> Self {
        let mut commits = Commits::new(reader);
        commits.shallow.extend(cut.iter().copied());
        commits
    }

    pub(crate) fn load(&mut self, oid: &Oid) -> Result<Node> {
        if let Some(graph) = self.repo.commit_graph()
            && let Some(position) = graph.find(oid)
            && let Some(commit) = graph.commit(position)
        {
            let is_cut = !self.shallow.is_empty() && self.shallow.contains(oid);
            let parents =
                if is_cut { Vec::new() } else { commit.parents.iter().map(|&p| graph.oid(p)).collect() };
            return Ok(Node { tree: commit.tree, parents, time: commit.time });
        }
        let object = self.reader.require(oid)?;
        let links = commit_links(self.repo.hash, &object.data)
            .map_err(|source| Error::Object { oid: *oid, source })?;
        let parents = if self.shallow.contains(oid) { Vec::new() } else { links.parents };
        Ok(Node { tree: links.tree, parents, time: commit_time(&object.data) })
    }
}

/// Follows tags from `oid` to something else; gives that and the tags passed. `None` if an object is missing.
pub(crate) fn peel_through(
    reader: &mut ObjectReader<'_>,
    oid: &Oid,
) -> Result<Option<(Oid, Kind, Vec<Oid>)>> {
    let mut tags = Vec::new();
    let (mut at, mut kind) = (*oid, None);
    loop {
        let target = match reader.known_tag(&at) {
            Some(target) if tags.len() <= 256 => Some(target),
            _ => {
                let Some(kind) = kind.map_or_else(|| reader.kind(&at), |kind| Ok(Some(kind)))? else {
                    return Ok(None);
                };
                if kind != Kind::Tag || tags.len() > 256 {
                    return Ok(Some((at, kind, tags)));
                }
                reader.tag(&at)?
            }
        };
        tags.push(at);
        let Some((next, kind_of_next)) = target else { return Ok(None) };
        (at, kind) = (next, Some(kind_of_next));
    }
}

impl Repo {
    /// The parents that the commit names, be they here or not.
    ///
    /// # Errors
    /// If it is missing, corrupt or no commit.
    pub fn parents(&self, commit: &Oid) -> Result<Vec<Oid>> {
        let object = self.reader().require(commit)?;
        commit_links(self.hash, &object.data)
            .map(|links| links.parents)
            .map_err(|source| Error::Object { oid: *commit, source })
    }

    /// One object that `tips` lead to and that is nowhere, if there is one. Looks through all that they lead
    /// to.
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

/// Returns whether every one of `targets` is reached from `sources` through commits, looking at no more than
/// `commits_max` commits: beyond that the answer is no.
pub(crate) fn all_reachable_from(
    repo: &Repo,
    sources: &[Oid],
    targets: &[Oid],
    commits_max: usize,
    steps: &mut Steps<'_>,
) -> Result<bool> {
    let mut reader = repo.reader();
    let mut waiting: OidSet = OidSet::default();
    for target in targets {
        steps.take(1)?;
        match reader.kind_and_size(target)? {
            Some((Kind::Commit, _)) => drop(waiting.insert(*target)),
            // Tags, trees and blobs: seldom reachable but by their ref.
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
        steps.take(1)?;
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

/// Returns whether every one of `wants` is, or has among its ancestors, one of `haves`, and at how many
/// commits it looked: at no more than `commits_max`, beyond which the answer is no.
///
/// # Errors
/// If an object is missing or corrupt, or nobody waits for the answer any more.
pub fn all_wants_meet(
    repo: &Repo,
    wants: &[Oid],
    haves: &[Oid],
    commits_max: usize,
    budget: Budget<'_>,
) -> Result<(bool, usize)> {
    let mut reader = repo.reader();
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
        match repo.locate(oid) {
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
    if all_reachable_from(repo, &sources, &open, REACHABLE_COMMITS_MAX, &mut steps)? {
        found.extend(open);
        return Ok(found);
    }
    // The walk trusts clocks, and knows commits only.
    let all = repo.reachable(&mut steps)?;
    for oid in open {
        if all.contains(repo, &oid)? {
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

/// All that refs reach.
pub(crate) enum Reachable {
    /// By number, where all objects have one.
    Numbers(Bits),
    Ids(OidSet),
}

impl Reachable {
    /// Finds out what refs of `repo` reach.
    pub(crate) fn of(repo: &Repo, steps: &mut Steps<'_>) -> Result<Reachable> {
        // Of a part of a repository some refs lead elsewhere.
        let tips: Vec<Oid> = repo.refs().tips().filter(|tip| repo.contains(tip)).collect();
        if repo.loose.is_empty() {
            return all_by_bitmaps(repo, &tips, steps).map(Reachable::Numbers);
        }
        let mut ids = OidSet::default();
        visit_reachable(
            repo,
            |_, _| false,
            tips,
            steps,
            |oid, found, _| {
                if found.is_some() {
                    ids.insert(*oid);
                }
            },
        )?;
        Ok(Reachable::Ids(ids))
    }

    pub(crate) fn contains(&self, repo: &Repo, oid: &Oid) -> Result<bool> {
        Ok(match self {
            Reachable::Ids(ids) => ids.contains(oid),
            Reachable::Numbers(numbers) => match repo.locate(oid) {
                Some(location) => repo.number(location)?.is_some_and(|n| numbers.get(n)),
                None => false,
            },
        })
    }
}

/// Ids of commits that are here, for asking an upstream what it has in common: from `tips` back, every commit
/// at first, then ever fewer.
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
        let mut this = HaveCommits {
            reader: repo.reader(),
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

    /// At most `max` of the tips, newest first, before anything else was asked for.
    pub fn tips(&self, max: usize) -> Vec<Oid> {
        let mut tips: Vec<(u64, Oid)> = self.queue.iter().copied().collect();
        tips.sort_unstable_by(|a, b| b.cmp(a));
        tips.into_iter().take(max).map(|(_, oid)| oid).collect()
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

/// Bounds of one selection.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Commits and trees looked at.
    pub steps_max: u64,
    /// Set when nobody waits for the answer any more.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget { steps_max: 200_000_000, cancelled: None }
    }
}

pub(crate) struct Steps<'a> {
    left: u64,
    cancelled: Option<&'a AtomicBool>,
    have_ended: bool,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(budget: Budget<'a>) -> Steps<'a> {
        Steps { left: budget.steps_max, cancelled: budget.cancelled, have_ended: false }
    }

    /// For what this program asks of itself.
    pub(crate) fn unbounded() -> Steps<'static> {
        Steps::new(Budget { steps_max: u64::MAX, cancelled: None })
    }

    pub(crate) fn take(&mut self, n: u64) -> Result<()> {
        match self.left.checked_sub(n) {
            Some(left) => {
                // A look at what another thread writes now and then.
                let is_time = left / 1024 != self.left / 1024;
                self.left = left;
                if is_time && self.cancelled.is_some_and(|c| c.load(Ordering::Relaxed)) {
                    self.have_ended = true;
                    return Err(Error::Unsupported("nobody waits for the answer any more".to_owned()));
                }
                Ok(())
            }
            None => {
                self.have_ended = true;
                Err(Error::Unsupported("the request needs more work than this server allows".to_owned()))
            }
        }
    }

    /// Returns whether none were left, or nobody waits any more.
    pub(crate) fn have_ended(&self) -> bool {
        self.have_ended
    }
}

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
pub(crate) const TREE_DEPTH_MAX: usize = 2048;

/// Calls `visit` for everything reachable from `tips`, each object once, with its place and its kind. Missing
/// objects are given with `None` and the id that names them. What `is_elsewhere` is passed over with all it
/// leads to, which is there too.
///
/// # Errors
/// If an object is corrupt, or there are more than `steps`.
pub(crate) fn visit_reachable(
    repo: &Repo,
    is_elsewhere: impl Fn(&Oid, Option<Location>) -> bool,
    tips: impl IntoIterator<Item = Oid>,
    steps: &mut Steps<'_>,
    mut visit: impl FnMut(&Oid, Option<(Location, Kind)>, Option<&Oid>),
) -> Result<()> {
    let mut reader = repo.reader();
    let shallow: OidSet = repo.shallow.iter().copied().collect();
    // A tree may name another tree as if it were a file: what is looked at as a blob is not looked into, so
    // the same id may have to be looked at twice.
    let mut seen = ObjectSet::new(repo);
    let mut seen_as_blob = ObjectSet::new(repo);
    let mut stack: Vec<(Oid, bool, Option<Oid>)> = tips.into_iter().map(|t| (t, false, None)).collect();
    while let Some((oid, is_blob, referrer)) = stack.pop() {
        let location = repo.locate(&oid);
        if seen.contains(repo, &oid, location)
            || !(if is_blob { &mut seen_as_blob } else { &mut seen }).insert(repo, &oid, location)
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
                for entry in TreeIter::new(repo.hash, &object.data) {
                    let entry = entry.map_err(fail)?;
                    if !entry.is_gitlink() {
                        stack.push((
                            Oid::from_bytes(repo.hash, entry.id).expect("sized"),
                            !entry.is_tree(),
                            Some(oid),
                        ));
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
