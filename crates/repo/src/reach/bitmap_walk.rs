//! Large answers from bitmaps: sets of object numbers instead of walks.

use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidSet, TreeIter};

use crate::error::{Error, Result};
use crate::objects::reader::ObjectReader;
use crate::objects::tree_diff::{Changed, changed};
use crate::reach::bitmap::Bits;
use crate::reach::walk::{Commits, Steps, TREE_DEPTH_MAX, peel_through};
use crate::repo::repository::Repo;
use crate::select::by_walk::{Query, Selection};
use crate::select::filter::Filter;
use crate::update::derive::in_first_pack;

/// The same as [`crate::select`] for large answers: sets of object numbers, filled from bitmaps as far as
/// they go.
pub(crate) fn select_by_bitmaps<'r>(reader: ObjectReader<'r>, query: &Query<'r>) -> Result<Selection> {
    let repo = reader.repo();
    let commits_only = query.filter.is_some_and(Filter::is_commits_only);
    let mut steps = Steps::new(query.budget);
    let mut filler = Filler { reader, repo, steps: &mut steps, commits_only };
    let nothing = Bits::new(repo.packed_count());
    let has = filler.fill(query.haves, &nothing, false)?;
    let mut wanted = filler.fill(query.wants, &has, true)?;
    if let Some(filter) = query.filter {
        filler.leave_out(&mut wanted, &has, filter, query.wants)?;
    }
    let mut selection = Selection::default();
    let mut pack = 0;
    let mut start = 0;
    for number in wanted.minus(&has) {
        while number - start >= repo.packs[pack].index().count() {
            start += repo.packs[pack].index().count();
            pack += 1;
        }
        selection.ranks.push((pack as u32, number - start));
    }
    selection.client_numbers = Some(has);
    if !query.haves.is_empty() && !commits_only {
        pair(repo, query, &mut selection)?;
    }
    Ok(selection)
}

/// Commits whose trees are compared, of either side.
const PAIRED_MAX: usize = 8;
/// Of the client's, with each.
const PAIRED_WITH: usize = 3;

/// Finds for what stands in the wanted trees what stood at the same path in those the client has. In packs as
/// git makes them it is just the newest of a path's objects that is stored whole.
fn pair(repo: &Repo, query: &Query<'_>, selection: &mut Selection) -> Result<()> {
    let mut reader = repo.reader();
    let newest_trees = |reader: &mut ObjectReader<'_>, tips: &[Oid], max: usize| -> Result<Vec<Oid>> {
        let mut found = Vec::new();
        for tip in tips {
            if let Some((oid, Kind::Commit, _)) = peel_through(reader, tip)? {
                let node = Commits::new(reader).load(&oid)?;
                found.push((node.time, node.tree));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok(found.into_iter().take(max).map(|(_, tree)| tree).collect())
    };
    let olds = newest_trees(&mut reader, query.haves, PAIRED_WITH)?;
    for tree in newest_trees(&mut reader, query.wants, PAIRED_MAX)? {
        pair_trees(&mut reader, &tree, &olds, selection, 0)?;
    }
    Ok(())
}

fn pair_trees(
    reader: &mut ObjectReader<'_>,
    tree: &Oid,
    before: &[Oid],
    selection: &mut Selection,
    depth: usize,
) -> Result<()> {
    if depth > TREE_DEPTH_MAX
        || before.is_empty()
        || before.contains(tree)
        || selection.previous.contains_key(tree)
    {
        return Ok(());
    }
    let Changed { trees: below, blobs } = changed(reader, tree, before)?;
    selection.previous.insert(*tree, before[0]);
    selection.previous.extend(blobs.into_iter().filter_map(|(oid, old)| Some((oid, old?))));
    for (oid, old_ids) in below {
        pair_trees(reader, &oid, &old_ids, selection, depth + 1)?;
    }
    Ok(())
}

/// Numbers of everything that `tips` reach.
pub(crate) fn all_by_bitmaps(repo: &Repo, tips: &[Oid], steps: &mut Steps<'_>) -> Result<Bits> {
    let mut filler = Filler { reader: repo.reader(), repo, steps, commits_only: false };
    filler.fill(tips, &Bits::new(repo.packed_count()), false)
}

/// The pack and the rank in it of the object that is numbered `number`.
fn place_of(repo: &Repo, number: u32) -> (u32, u32) {
    let mut start = 0;
    for (pack, p) in repo.packs.iter().enumerate() {
        if number - start < p.index().count() {
            return (pack as u32, number - start);
        }
        start += p.index().count();
    }
    unreachable!("numbers are below the count of all packs")
}

/// Fills sets of object numbers.
struct Filler<'r, 's, 'c> {
    reader: ObjectReader<'r>,
    repo: &'r Repo,
    steps: &'s mut Steps<'c>,
    /// Trees are not looked into.
    commits_only: bool,
}

impl Filler<'_, '_, '_> {
    fn number(&self, id: &[u8]) -> Result<u32> {
        let missing = || Error::Missing(Oid::from_bytes(self.repo.hash, id).expect("of its length"));
        let location = self.repo.locate_raw(id).ok_or_else(missing)?;
        self.repo.number(location)?.ok_or_else(missing)
    }

    /// Everything that `tips` reach, except that what is in `stop` need not be followed. Tips that are not
    /// here are an error if `required`.
    fn fill(&mut self, tips: &[Oid], stop: &Bits, required: bool) -> Result<Bits> {
        let repo = self.repo;
        let mut bits = Bits::new(repo.packed_count());
        let mut queue: BinaryHeap<(u64, Oid)> = BinaryHeap::new();
        let mut seen = OidSet::default();
        let mut trees = Vec::new();
        for tip in tips {
            let Some((oid, kind, tags)) = peel_through(&mut self.reader, tip)? else {
                if required {
                    return Err(Error::Missing(*tip));
                }
                continue;
            };
            for tag in tags {
                bits.set(self.number(tag.as_bytes())?);
            }
            match kind {
                Kind::Commit if seen.insert(oid) => {
                    queue.push((Commits::new(&mut self.reader).load(&oid)?.time, oid))
                }
                Kind::Commit => {}
                Kind::Tree => trees.push(oid),
                Kind::Blob | Kind::Tag => drop(bits.set(self.number(oid.as_bytes())?)),
            }
        }
        // Commits and their bitmaps first; trees of the commits between only afterwards, when most of them
        // are known.
        while let Some((_, oid)) = queue.pop() {
            self.steps.take(1)?;
            let number = self.number(oid.as_bytes())?;
            if bits.get(number) || stop.get(number) {
                continue;
            }
            if let Some(position) = in_first_pack(repo, &oid)
                && let Some(reachable) = repo.bitmaps().and_then(|b| b.reachable(position))
            {
                bits.or(&reachable);
                continue;
            }
            bits.set(number);
            let node = Commits::new(&mut self.reader).load(&oid)?;
            trees.push(node.tree);
            for parent in node.parents {
                if seen.insert(parent) {
                    queue.push((Commits::new(&mut self.reader).load(&parent)?.time, parent));
                }
            }
        }
        if !self.commits_only {
            for tree in trees {
                self.fill_tree(&tree, &mut bits, stop, 0)?;
            }
        }
        Ok(bits)
    }

    /// Takes out of `wanted` what `filter` leaves out, but not what the client named.
    fn leave_out(&mut self, wanted: &mut Bits, has: &Bits, filter: &Filter, named: &[Oid]) -> Result<()> {
        let repo = self.repo;
        let first_count = repo.packs.first().map_or(0, |p| p.index().count());
        let kinds = [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag];
        let without_trees = self.commits_only;
        let takes = |kind| match kind {
            Kind::Tree => filter.takes(kind) && !without_trees,
            Kind::Blob => filter.takes(kind) && !without_trees && filter.blob_bytes_below != Some(0),
            _ => filter.takes(kind),
        };
        // Of the first pack the bitmaps tell what is what.
        if let Some(bitmaps) = repo.bitmaps() {
            for (kind, is_of_kind) in kinds.into_iter().zip(bitmaps.kinds()) {
                if !takes(kind) {
                    wanted.0.iter_mut().zip(is_of_kind).for_each(|(word, of_kind)| *word &= !of_kind);
                }
            }
        }
        let has_limit = filter.blob_bytes_below.is_some_and(|below| below > 0);
        let left: Vec<u32> = wanted.minus(has).filter(|&n| has_limit || n >= first_count).collect();
        for number in left {
            let (pack, rank) = place_of(repo, number);
            let pack = &repo.packs[pack as usize];
            let oid = pack.index().oid(pack.extent(rank)?.0);
            let kind = self.reader.kind(&oid)?.ok_or(Error::Missing(oid))?;
            let is_taken = takes(kind)
                && match filter.blob_bytes_below {
                    Some(below) if kind == Kind::Blob => {
                        self.reader.kind_and_size(&oid)?.ok_or(Error::Missing(oid))?.1 < below
                    }
                    _ => true,
                };
            if !is_taken {
                wanted.clear(number);
            }
        }
        for oid in named {
            let (oid, _, tags) = peel_through(&mut self.reader, oid)?.ok_or(Error::Missing(*oid))?;
            for oid in tags.iter().chain([&oid]) {
                wanted.set(self.number(oid.as_bytes())?);
            }
        }
        Ok(())
    }

    fn fill_tree(&mut self, tree: &Oid, bits: &mut Bits, stop: &Bits, depth: usize) -> Result<()> {
        let number = self.number(tree.as_bytes())?;
        if stop.get(number) || !bits.set(number) {
            return Ok(());
        }
        if depth > TREE_DEPTH_MAX {
            return Err(Error::Unsupported(format!("tree {tree} is nested more than {TREE_DEPTH_MAX} deep")));
        }
        self.steps.take(1)?;
        let hash = self.repo.hash;
        let object = self.reader.require(tree)?;
        for entry in TreeIter::new(hash, &object.data) {
            let entry = entry.map_err(|source| Error::Object { oid: *tree, source })?;
            if entry.is_tree() {
                self.fill_tree(
                    &Oid::from_bytes(hash, entry.id).expect("of its length"),
                    bits,
                    stop,
                    depth + 1,
                )?;
            } else if !entry.is_gitlink() {
                bits.set(self.number(entry.id)?);
            }
        }
        Ok(())
    }
}
