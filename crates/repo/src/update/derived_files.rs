//! Builds files derived from a repository that make answers faster: a commit-graph with filters of the paths
//! that commits change, and reachability bitmaps, in git's own formats.
//!
//! Bitmaps are made for the first body, which is closed by itself. Later bodies add history above it. Answers
//! walk their commits and stop at the bitmaps below. So an update leaves both files as they are, and
//! compaction makes new ones.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_git::{Kind, Oid, commit_links, commit_time};
use weir_ground::Timestamp;

use crate::error::{Error, Result};
use crate::lists::Lists;
use crate::objects::bits::Bits;
use crate::objects::entry::Stored;
use crate::objects::lookup::Objects;
use crate::objects::pack::PackOrder;
use crate::objects::reader::ObjectReader;
use crate::objects::resident::Resident;
use crate::objects::tree_diff::TREE_DEPTH_MAX;
use crate::objects::tree_diff::changed_entries;
use crate::reach::bitmap::BitmapWriter;
use crate::reach::commit_graph::{GraphInput, write_commit_graph};
use crate::reach::path_filter::ChangedPaths;
use crate::refs::list::Refs;
use crate::update::archive_repo::ArchiveRepo;
use crate::update::changed_paths::changed_paths;

/// With fewer objects walking is as fast.
const OBJECTS_MIN: u32 = 10_000;
/// Trees may be as deep as git allows. Only the used part of a stack takes memory.
const STACK_BYTES: usize = 32 << 20;
/// The number of commits that a thread takes at a time: neighbours share trees.
const RUN_COMMITS: usize = 512;

/// Adds a commit-graph and bitmaps to an archive that has one body and is large enough. Returns whether it
/// did.
///
/// # Errors
/// If the archive is damaged or the disk fails. Then nothing has changed.
pub fn derive(archive: &mut ArchiveRepo, time: Timestamp, threads: usize) -> Result<bool> {
    // Most archives are too small, and that is known without opening them.
    if archive.whole_clone_count().is_none_or(|count| count < OBJECTS_MIN) {
        return Ok(false);
    }
    let Some(repo) = archive.repo()? else { return Ok(false) };
    let Some(pack) = repo.objects().packs.first() else { return Ok(false) };
    let first_is_closed = repo.bodies.heads.is_some_and(|w| w.count == pack.index().count())
        && repo.history().shallow.is_empty();
    let name = format!("{}.bitmap", pack.name());
    let done = repo.archive.as_ref().is_some_and(|a| a.member(&name).is_some());
    if !first_is_closed || done || pack.index().count() < OBJECTS_MIN {
        return Ok(false);
    }
    // The pack is read in an order that is bad for disks.
    let resident = Resident::new(pack.data().clone());
    let objects = repo.objects();
    let commits = PackCommits::read(&repo.refs, objects, &resident)?;
    let differences = commits.differences(objects, &resident, threads)?;
    let bitmaps = commits.bitmaps(&repo.refs, objects, &resident, &differences.new_objects)?;
    let graph = commits.graph(objects, &differences)?;
    let members: [(&str, &[u8]); 2] = [(&name, &bitmaps), ("objects/info/commit-graph", &graph)];
    archive.commit_members(&members, &[], time)?;
    Ok(true)
}

/// The commits of the first pack by number, parents before children: about 24 bytes per commit, and 4 per
/// object.
struct PackCommits {
    /// The rank in the pack of each commit; below, of its tree.
    ranks: Vec<u32>,
    trees: Vec<u32>,
    times: Vec<u64>,
    parents: Lists,
}

/// How the trees of commits differ from those of their parents, by number.
#[derive(Default)]
struct CommitDifferences {
    /// The ranks of the objects that the tree has and that none of the parents' trees has at the same path.
    new_objects: Lists,
    /// The filters of the paths that differ from the first parent's tree, and the end of each.
    filters: Vec<u8>,
    filter_ends: Vec<usize>,
}

impl CommitDifferences {
    fn filter(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.filter_ends[before]);
        &self.filters[start..self.filter_ends[number]]
    }
}

/// Stands for no number.
const NONE: u32 = u32::MAX;

fn rank_of(objects: &Objects, id: &[u8]) -> Result<u32> {
    let pack = &objects.packs[0];
    let missing = || Error::Missing(Oid::from_bytes(objects.hash, id).expect("of its length"));
    let position = pack.index().find(id).ok_or_else(missing)?;
    pack.rank(position)
}

/// Returns the id of the object with rank `rank` in the first pack.
fn id_of(objects: &Objects, order: &PackOrder, rank: u32) -> Oid {
    objects.packs[0].index().oid(order.index_by_rank[rank as usize])
}

impl PackCommits {
    fn read(refs: &Refs, objects: &Objects, resident: &Resident) -> Result<PackCommits> {
        let order = objects.packs[0].order()?;
        let mut reader = objects.reader();
        reader.note_in(0, resident);
        let mut stack: Vec<u32> = Vec::new();
        for tip in refs.head_and_tag_tips() {
            let peeled = objects.peel(&tip)?.unwrap_or(tip);
            if matches!(reader.kind_and_size(&peeled)?, Some((Kind::Commit, _))) {
                stack.push(rank_of(objects, peeled.as_bytes())?);
            }
        }
        // The data of each commit, in the order in which the walk meets them; parents by rank.
        let mut met = PackCommits {
            ranks: Vec::new(),
            trees: Vec::new(),
            times: Vec::new(),
            parents: Lists::default(),
        };
        let count = objects.packs[0].index().count() as usize;
        let mut met_by_rank = vec![NONE; count];
        // The commits with parents before children.
        let mut placed = Bits::new(count as u64);
        let mut in_order: Vec<u32> = Vec::new();
        while let Some(&rank) = stack.last() {
            if placed.get(rank) {
                stack.pop();
                continue;
            }
            let n = met_by_rank[rank as usize];
            if n != NONE {
                let waiting = stack.len();
                stack.extend(met.parents.of(n).iter().filter(|p| !placed.get(**p)));
                if stack.len() == waiting {
                    placed.set(rank);
                    in_order.push(n);
                    stack.pop();
                }
                continue;
            }
            let oid = id_of(objects, order, rank);
            let object = reader.require(&oid)?;
            let links =
                commit_links(objects.hash, &object.data).map_err(|source| Error::Object { oid, source })?;
            met_by_rank[rank as usize] = met.ranks.len() as u32;
            met.ranks.push(rank);
            met.trees.push(rank_of(objects, links.tree.as_bytes())?);
            met.times.push(commit_time(&object.data));
            for parent in &links.parents {
                met.parents.add(rank_of(objects, parent.as_bytes())?);
            }
            met.parents.end();
        }
        let mut number_by_rank = met_by_rank;
        for (number, n) in in_order.iter().enumerate() {
            number_by_rank[met.ranks[*n as usize] as usize] = number as u32;
        }
        let mut parents = Lists::default();
        for &n in &in_order {
            let number = parents.len() as u32;
            for parent in met.parents.of(n).iter().map(|p| number_by_rank[*p as usize]) {
                debug_assert!(parent < number, "a parent comes behind its child");
                parents.add(parent);
            }
            parents.end();
        }
        let of = |list: &[u32]| in_order.iter().map(|n| list[*n as usize]).collect();
        let times = in_order.iter().map(|n| met.times[*n as usize]).collect();
        Ok(PackCommits { ranks: of(&met.ranks), trees: of(&met.trees), times, parents })
    }

    /// Calls `work` on several threads, with runs of neighbouring commits, until all are done. Each thread
    /// has a reader of its own. Returns the results in order.
    fn in_runs<T: Send>(
        &self,
        objects: &Objects,
        resident: &Resident,
        threads: usize,
        work: impl Fn(&mut ObjectReader<'_>, Range<u32>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let next = AtomicUsize::new(0);
        let thread = || -> Result<Vec<(usize, T)>> {
            let mut reader = objects.reader();
            reader.note_in(0, resident);
            let mut done = Vec::new();
            loop {
                let start = next.fetch_add(RUN_COMMITS, Ordering::Relaxed);
                if start >= self.ranks.len() {
                    return Ok(done);
                }
                let end = (start + RUN_COMMITS).min(self.ranks.len());
                done.push((start, work(&mut reader, start as u32..end as u32)?));
            }
        };
        let mut runs = std::thread::scope(|scope| {
            let spawn = |_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, thread);
            let handles = (0..threads.max(1)).map(spawn).collect::<std::io::Result<Vec<_>>>()?;
            let mut all = Vec::new();
            for handle in handles {
                all.extend(handle.join().expect("comparing trees does not panic")?);
            }
            Ok::<_, Error>(all)
        })?;
        runs.sort_unstable_by_key(|(start, _)| *start);
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    }

    /// Compares the tree of each commit with those of its parents.
    fn differences(
        &self,
        objects: &Objects,
        resident: &Resident,
        threads: usize,
    ) -> Result<CommitDifferences> {
        let order = objects.packs[0].order()?;
        let runs = self.in_runs(objects, resident, threads, |reader, numbers| {
            let mut run = CommitDifferences::default();
            let (mut changed, mut path) = (ChangedPaths::default(), Vec::new());
            for n in numbers {
                let before: Vec<Oid> =
                    self.parents.of(n).iter().map(|p| self.tree(objects, order, *p)).collect();
                let tree = self.tree(objects, order, n);
                new_objects(reader, &tree, &before, 0, &mut run.new_objects)?;
                run.new_objects.end();
                let found = changed_paths(reader, before.first(), Some(&tree), &mut path, 0, &mut changed);
                // A tree that is malformed may have changed in any way.
                changed.finish(found.unwrap_or(false), &mut run.filters);
                run.filter_ends.push(run.filters.len());
                path.clear();
            }
            Ok(run)
        })?;
        let mut all = CommitDifferences::default();
        for run in runs {
            all.new_objects.append(&run.new_objects);
            let start = all.filters.len();
            all.filters.extend_from_slice(&run.filters);
            all.filter_ends.extend(run.filter_ends.iter().map(|end| start + end));
        }
        Ok(all)
    }

    /// Returns the tree of a commit.
    fn tree(&self, objects: &Objects, order: &PackOrder, number: u32) -> Oid {
        id_of(objects, order, self.trees[number as usize])
    }

    /// Returns the commits that get a bitmap, older ones first: commits along HEAD's first parents, closer
    /// together towards the tip, and all branch tips.
    fn chosen(&self, refs: &Refs, objects: &Objects, number_by_rank: &[u32]) -> Vec<u32> {
        let number = |oid: &Oid| match number_by_rank[rank_of(objects, oid.as_bytes()).ok()? as usize] {
            NONE => None,
            number => Some(number),
        };
        let mut chosen = Vec::new();
        let mut at = refs.head_oid().and_then(|h| number(&h));
        let (mut distance, mut next) = (0usize, 0usize);
        while let Some(n) = at {
            let parent = self.parents.of(n).first().copied();
            if distance >= next || parent.is_none() {
                chosen.push(n);
                next = distance + 1 + distance / 32;
            }
            distance += 1;
            at = parent;
        }
        let tips = refs.list().iter().filter(|r| r.name.starts_with(b"refs/heads/"));
        chosen.extend(tips.filter_map(|r| number(&r.oid)));
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    /// Returns the numbers of commits by rank in the pack of `count` objects.
    fn number_by_rank(&self, count: u32) -> Vec<u32> {
        let mut number_by_rank = vec![NONE; count as usize];
        for (number, rank) in self.ranks.iter().enumerate() {
            number_by_rank[*rank as usize] = number as u32;
        }
        number_by_rank
    }

    fn bitmaps(
        &self,
        refs: &Refs,
        objects: &Objects,
        resident: &Resident,
        new_objects: &Lists,
    ) -> Result<Vec<u8>> {
        let pack = &objects.packs[0];
        let count = pack.index().count();
        let order = pack.order()?;
        let chosen = self.chosen(refs, objects, &self.number_by_rank(count));
        let mut writer = BitmapWriter::new(objects.hash, &pack.checksum(), count, &kinds(objects, resident)?);
        for (done, &n) in chosen.iter().enumerate() {
            let mut reachable = Bits::new(count.into());
            // The highest number comes first, so that a bitmap below is met before the commits it covers.
            let mut queue = BinaryHeap::from([n]);
            let mut seen = vec![];
            while let Some(c) = queue.pop() {
                let rank = self.ranks[c as usize];
                if reachable.get(rank) {
                    continue;
                }
                if let Ok(i) = chosen[..done].binary_search(&c) {
                    writer.add_to(i, &mut reachable);
                    continue;
                }
                reachable.set(rank);
                seen.push(c);
                queue.extend(self.parents.of(c));
            }
            for c in seen {
                for &rank in new_objects.of(c) {
                    reachable.set(rank);
                }
            }
            writer.push(order.index_by_rank[self.ranks[n as usize] as usize], reachable);
        }
        Ok(writer.finish())
    }

    /// Returns the commit-graph, with the filters of the commits.
    fn graph(&self, objects: &Objects, differences: &CommitDifferences) -> Result<Vec<u8>> {
        let order = objects.packs[0].order()?;
        // Ids are in the order of the index.
        let place = |n: u32| order.index_by_rank[self.ranks[n as usize] as usize];
        let mut sorted: Vec<u32> = (0..self.ranks.len() as u32).collect();
        sorted.sort_unstable_by_key(|n| place(*n));
        let mut position = vec![0u32; sorted.len()];
        for (at, n) in sorted.iter().enumerate() {
            position[*n as usize] = at as u32;
        }
        let mut parents = Lists::default();
        for &n in &sorted {
            self.parents.of(n).iter().for_each(|p| parents.add(position[*p as usize]));
            parents.end();
        }
        let number = |at: u32| sorted[at as usize] as usize;
        let input = GraphInput {
            oid: &|at| id_of(objects, order, self.ranks[number(at)]),
            tree: &|at| self.tree(objects, order, sorted[at as usize]),
            parents: &parents,
            time: &|at| self.times[number(at)],
            filter: &|at| differences.filter(number(at)),
        };
        Ok(write_commit_graph(objects.hash, &input))
    }
}

/// Returns the ranks of commits, trees, blobs and tags of the first pack, from the heads of its entries.
fn kinds(objects: &Objects, resident: &Resident) -> Result<[Bits; 4]> {
    let pack = &objects.packs[0];
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
        resident.was_read(offset as usize..offset as usize + 1);
        let base = match pack.entry(offset)?.stored {
            Stored::Whole(kind) => {
                by_rank[rank as usize] = slot(kind);
                continue;
            }
            Stored::OfsDelta(distance) => order.rank_by_index[pack.position_at(offset - distance)? as usize],
            Stored::RefDelta(at) => {
                let start = offset as usize + at;
                rank_of(objects, &pack.data()[start..start + objects.hash.len()])?
            }
        };
        if base < rank {
            by_rank[rank as usize] = by_rank[base as usize];
        } else {
            late.push(rank);
        }
    }
    let mut reader = objects.reader();
    reader.note_in(0, resident);
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

/// Adds the ranks of the objects that `tree` has and that none of the trees `before` has at the same path.
fn new_objects(
    reader: &mut ObjectReader<'_>,
    tree: &Oid,
    before: &[Oid],
    depth: usize,
    found: &mut Lists,
) -> Result<()> {
    if before.contains(tree) {
        return Ok(());
    }
    let objects = reader.objects();
    let hash = objects.hash;
    found.add(rank_of(objects, tree.as_bytes())?);
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
            let old_trees = same_name
                .iter()
                .filter(|o| o.is_tree())
                .map(|o| Oid::from_bytes(hash, o.id).expect("of its length"));
            below.push((
                Oid::from_bytes(hash, entry.id).expect("of its length"),
                old_trees.collect::<Vec<_>>(),
            ));
        } else {
            match rank_of(objects, entry.id) {
                Ok(rank) => found.add(rank),
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
        new_objects(reader, &subtree, &old_trees, depth + 1, found)?;
    }
    Ok(())
}
