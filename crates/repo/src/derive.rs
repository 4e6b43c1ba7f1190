//! What is derived from a repository to answer faster: a commit-graph and reachability bitmaps, in git's own formats.
//!
//! Bitmaps are made for the first body, which is closed by itself. Later bodies add to the history above it, so answers
//! walk their commits and stop at bitmaps below: an update leaves both files as they are, and compaction makes them anew.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_git::{Kind, Oid, OidMap, OidSet, commit_links, commit_time};

use crate::bitmap::{BitmapInput, Bits, write_bitmaps};
use crate::commit_graph::{GraphInput, write_commit_graph};
use crate::create::ArchiveRepo;
use crate::entry::Stored;
use crate::error::{Error, Result};
use crate::reader::ObjectReader;
use crate::repo::{Location, Repo};
use crate::tree_diff::changed_entries;
use crate::walk::TREE_DEPTH_MAX;

/// Below this many objects walking is as fast.
const OBJECTS_MIN: u32 = 10_000;
/// Trees may be as deep as git allows. Only what is used of a stack is memory.
const STACK_BYTES: usize = 32 << 20;
/// Commits a thread takes at a time: neighbours share trees.
const CHUNK_COMMITS: usize = 512;

/// Adds a commit-graph and bitmaps to an archive that has one body and is worth it. Says whether it did.
///
/// # Errors
/// If the archive is damaged or the disk fails; then nothing has changed.
pub fn derive(archive: &mut ArchiveRepo, time: u64, threads: usize) -> Result<bool> {
    // Most archives are too small, and need not be opened to see that.
    if archive.whole_clone_count().is_none_or(|count| count < OBJECTS_MIN) {
        return Ok(false);
    }
    let Some(repo) = archive.repo()? else { return Ok(false) };
    let Some(pack) = repo.packs.first() else { return Ok(false) };
    let first_is_closed = repo.bodies.heads.is_some_and(|w| w.count == pack.index().count()) && repo.shallow.is_empty();
    let name = format!("{}.bitmap", pack.name());
    let done = repo.archive.as_ref().is_some_and(|a| a.member(&name).is_some());
    if !first_is_closed || done || pack.index().count() < OBJECTS_MIN {
        return Ok(false);
    }
    let history = History::read(&repo)?;
    let new_objects = history.new_objects(&repo, threads)?;
    let bitmaps = history.bitmaps(&repo, &new_objects)?;
    let commits = history.commits.into_iter().map(|c| GraphInput { oid: c.oid, tree: c.tree, parents: c.parents, time: c.time }).collect();
    let graph = write_commit_graph(repo.hash, commits);
    let mut members: Vec<(&str, &[u8])> = vec![(&name, &bitmaps)];
    if let Some(graph) = &graph {
        members.push(("objects/info/commit-graph", graph));
    }
    archive.commit_members(&members, &[], time)?;
    Ok(true)
}

struct Commit {
    oid: Oid,
    /// Rank in the first pack.
    rank: u32,
    tree: Oid,
    parents: Vec<Oid>,
    time: u64,
}

/// Commits of the first pack, parents before children.
struct History {
    commits: Vec<Commit>,
    number: OidMap<u32>,
}

fn rank_of(repo: &Repo, id: &[u8]) -> Result<u32> {
    let pack = &repo.packs[0];
    let missing = || Error::Missing(Oid::from_bytes(repo.hash, id).expect("of its length"));
    let position = pack.index().find(id).ok_or_else(missing)?;
    pack.rank(position)
}

impl History {
    fn read(repo: &Repo) -> Result<History> {
        let mut reader = repo.reader();
        let mut known: OidMap<Commit> = OidMap::default();
        let mut order: Vec<Oid> = Vec::new();
        let mut placed = OidSet::default();
        let mut stack: Vec<Oid> = Vec::new();
        for tip in repo.refs.head_and_tag_tips() {
            let peeled = repo.peel(&tip)?.unwrap_or(tip);
            if matches!(reader.kind_and_size(&peeled)?, Some((Kind::Commit, _))) {
                stack.push(peeled);
            }
        }
        while let Some(&oid) = stack.last() {
            if placed.contains(&oid) {
                stack.pop();
                continue;
            }
            if let Some(commit) = known.get(&oid) {
                let waiting = stack.len();
                stack.extend(commit.parents.iter().filter(|p| !placed.contains(*p)));
                if stack.len() == waiting {
                    placed.insert(oid);
                    order.push(oid);
                    stack.pop();
                }
                continue;
            }
            let object = reader.require(&oid)?;
            let links = commit_links(repo.hash, &object.data).map_err(|source| Error::Object { oid, source })?;
            let rank = rank_of(repo, oid.as_bytes())?;
            known.insert(oid, Commit { oid, rank, tree: links.tree, parents: links.parents, time: commit_time(&object.data) });
        }
        let number = order.iter().enumerate().map(|(n, oid)| (*oid, n as u32)).collect();
        let commits = order.iter().filter_map(|oid| known.remove(oid)).collect();
        Ok(History { commits, number })
    }

    fn parents(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        self.commits[n].parents.iter().filter_map(|p| self.number.get(p).map(|&n| n as usize))
    }

    /// For each commit, ranks of the objects its tree has and none of its parents' trees has at the same path.
    fn new_objects(&self, repo: &Repo, threads: usize) -> Result<Vec<Vec<u32>>> {
        // The order of the pack is needed by all: made once, before they start.
        repo.packs[0].order()?;
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Vec<Vec<u32>>)>> {
            let mut reader = repo.reader();
            let mut done = Vec::new();
            loop {
                let start = next.fetch_add(CHUNK_COMMITS, Ordering::Relaxed);
                if start >= self.commits.len() {
                    return Ok(done);
                }
                let end = (start + CHUNK_COMMITS).min(self.commits.len());
                let mut chunk = Vec::with_capacity(end - start);
                for n in start..end {
                    let before: Vec<Oid> = self.parents(n).map(|p| self.commits[p].tree).collect();
                    let mut found = Vec::new();
                    difference(&mut reader, &self.commits[n].tree, &before, 0, &mut found)?;
                    chunk.push(found);
                }
                done.push((start, chunk));
            }
        };
        let mut chunks = std::thread::scope(|scope| {
            let spawn = |_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
            let handles = (0..threads.max(1)).map(spawn).collect::<std::io::Result<Vec<_>>>()?;
            let mut all = Vec::new();
            for handle in handles {
                all.extend(handle.join().expect("tree differences do not panic")?);
            }
            Ok::<_, Error>(all)
        })?;
        chunks.sort_unstable_by_key(|c| c.0);
        Ok(chunks.into_iter().flat_map(|c| c.1).collect())
    }

    /// Commits that get a bitmap, older ones first: along HEAD's first parents ever closer to the tip, and all branch tips.
    fn chosen(&self, repo: &Repo) -> Vec<usize> {
        let mut chosen = Vec::new();
        let mut at = repo.refs.head_oid().and_then(|h| self.number.get(&h)).map(|&n| n as usize);
        let (mut distance, mut next) = (0usize, 0usize);
        while let Some(n) = at {
            let parent = self.parents(n).next();
            if distance >= next || parent.is_none() {
                chosen.push(n);
                next = distance + 1 + distance / 32;
            }
            distance += 1;
            at = parent;
        }
        let tips = repo.refs.list().iter().filter(|r| r.name.starts_with(b"refs/heads/"));
        chosen.extend(tips.filter_map(|r| self.number.get(&r.oid)).map(|&n| n as usize));
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    fn bitmaps(&self, repo: &Repo, new_objects: &[Vec<u32>]) -> Result<Vec<u8>> {
        let pack = &repo.packs[0];
        let count = pack.index().count();
        let order = pack.order()?;
        let mut inputs: Vec<BitmapInput> = Vec::new();
        let mut done: Vec<(usize, usize)> = Vec::new();
        for n in self.chosen(repo) {
            let mut reachable = Bits::new(count.into());
            // Highest number first, so that a bitmap below is met before the commits it covers.
            let mut queue = BinaryHeap::from([n]);
            let mut seen = vec![];
            while let Some(c) = queue.pop() {
                if reachable.get(self.commits[c].rank) {
                    continue;
                }
                if let Ok(i) = done.binary_search_by_key(&c, |d| d.0) {
                    reachable.or(&inputs[done[i].1].reachable.0);
                    continue;
                }
                reachable.set(self.commits[c].rank);
                seen.push(c);
                queue.extend(self.parents(c));
            }
            for c in seen {
                for &rank in &new_objects[c] {
                    reachable.set(rank);
                }
            }
            done.push((n, inputs.len()));
            inputs.push(BitmapInput { position: order.index_by_rank[self.commits[n].rank as usize], reachable });
        }
        Ok(write_bitmaps(repo.hash, &pack.checksum(), count, &kinds(repo)?, &inputs))
    }
}

/// Ranks of commits, trees, blobs and tags of the first pack, from the heads of its entries.
fn kinds(repo: &Repo) -> Result<[Bits; 4]> {
    let pack = &repo.packs[0];
    let order = pack.order()?;
    let count = pack.index().count();
    let mut sets = [(); 4].map(|()| Bits::new(count.into()));
    let mut by_rank: Vec<u8> = vec![0; count as usize];
    let mut late = Vec::new();
    let slot = |kind: Kind| match kind {
        Kind::Commit => 0u8,
        Kind::Tree => 1,
        Kind::Blob => 2,
        Kind::Tag => 3,
    };
    for rank in 0..count {
        let offset = order.offset(rank);
        let base = match pack.entry(offset)?.stored {
            Stored::Whole(kind) => {
                by_rank[rank as usize] = slot(kind);
                continue;
            }
            Stored::OfsDelta(distance) => order.rank_by_index[pack.position_at(offset - distance)? as usize],
            Stored::RefDelta(at) => {
                let start = offset as usize + at;
                rank_of(repo, &pack.data()[start..start + repo.hash.len()])?
            }
        };
        if base < rank {
            by_rank[rank as usize] = by_rank[base as usize];
        } else {
            late.push(rank);
        }
    }
    let mut reader = repo.reader();
    for rank in late {
        let oid = pack.index().oid(order.index_by_rank[rank as usize]);
        let (kind, _) = reader.kind_and_size(&oid)?.ok_or(Error::Missing(oid))?;
        by_rank[rank as usize] = slot(kind);
    }
    for (rank, &slot) in by_rank.iter().enumerate() {
        sets[usize::from(slot)].set(rank as u32);
    }
    Ok(sets)
}

fn difference(reader: &mut ObjectReader<'_>, tree: &Oid, before: &[Oid], depth: usize, found: &mut Vec<u32>) -> Result<()> {
    if before.contains(tree) {
        return Ok(());
    }
    let repo = reader.repo();
    let hash = repo.hash;
    found.push(rank_of(repo, tree.as_bytes())?);
    let object = reader.require(tree)?;
    let mut olds = Vec::with_capacity(before.len());
    for oid in before {
        olds.push(reader.require(oid)?);
    }
    let old_data: Vec<&[u8]> = olds.iter().map(|o| o.data.as_slice()).collect();
    let mut below = Vec::new();
    let mut missing = None;
    changed_entries(hash, &object.data, &old_data, |entry, same_name| {
        if entry.is_tree() {
            let old_trees = same_name.iter().filter(|o| o.is_tree()).map(|o| Oid::from_bytes(hash, o.id).expect("of its length"));
            below.push((Oid::from_bytes(hash, entry.id).expect("of its length"), old_trees.collect::<Vec<_>>()));
        } else {
            match rank_of(repo, entry.id) {
                Ok(rank) => found.push(rank),
                Err(e) => missing = Some(e),
            }
        }
    })
    .map_err(|source| Error::Object { oid: *tree, source })?;
    if let Some(e) = missing {
        return Err(e);
    }
    if depth >= TREE_DEPTH_MAX {
        return Err(Error::Unsupported(format!("tree {tree} is nested too deep")));
    }
    for (subtree, old_trees) in below {
        difference(reader, &subtree, &old_trees, depth + 1, found)?;
    }
    Ok(())
}

/// Where an object lies that the first pack has.
pub(crate) fn in_first_pack(repo: &Repo, oid: &Oid) -> Option<u32> {
    match repo.locate(oid) {
        Some(Location::Packed { pack: 0, position }) => Some(position),
        _ => None,
    }
}
