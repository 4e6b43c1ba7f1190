//! Selects large answers from bitmaps: with sets of object numbers instead of walks.

use weir_git::{Kind, Oid};

use crate::error::{Error, Result};
use crate::objects::bits::Bits;
use crate::objects::lookup::Objects;
use crate::objects::reader::{ObjectReader, peel_through};
use crate::objects::tree_diff::{Changed, TREE_DEPTH_MAX, changed};
use crate::reach::bitmap_walk::Filler;
use crate::reach::history::History;
use crate::reach::steps::Steps;
use crate::reach::walk::Commits;
use crate::select::filter::Filter;
use crate::select::query::{Query, Selection};

/// Selects the objects that the wants reach and the haves do not, as sets of object numbers. The sets are
/// filled from bitmaps as far as these go. Meant for large answers.
pub(crate) fn select_by_bitmaps<'r>(
    history: &'r History,
    reader: ObjectReader<'r>,
    query: &Query<'r>,
) -> Result<Selection> {
    let objects = history.objects();
    let commits_only = query.filter.is_some_and(Filter::is_commits_only);
    let mut steps = Steps::new(query.budget);
    let mut filler = Filler { reader, history, steps: &mut steps, commits_only };
    let nothing = Bits::new(objects.packed_count());
    let has = filler.fill(query.haves, &nothing, false)?;
    let mut wanted = filler.fill(query.wants, &has, true)?;
    if let Some(filter) = query.filter {
        leave_out(&mut filler, &mut wanted, &has, filter, query.wants)?;
    }
    let mut selection = Selection::default();
    let mut pack = 0;
    let mut start = 0;
    for number in wanted.minus(&has) {
        while number - start >= objects.packs[pack].index().count() {
            start += objects.packs[pack].index().count();
            pack += 1;
        }
        selection.ranks.push((pack as u32, number - start));
    }
    selection.client_numbers = Some(has);
    if !query.haves.is_empty() && !commits_only {
        pair(history, query, &mut selection)?;
    }
    Ok(selection)
}

/// The most wanted commits whose trees are compared.
const PAIRED_MAX: usize = 8;
/// The most commits of the client with which each is compared.
const PAIRED_WITH: usize = 3;

/// Finds, for objects in the wanted trees, the objects at the same path in the client's trees. In packs that
/// git makes, just the newest object of a path is stored whole.
fn pair<'r>(history: &'r History, query: &Query<'_>, selection: &mut Selection) -> Result<()> {
    let mut reader = history.objects().reader();
    let newest_trees = |reader: &mut ObjectReader<'r>, tips: &[Oid], max: usize| -> Result<Vec<Oid>> {
        let mut found = Vec::new();
        for tip in tips {
            if let Some((oid, Kind::Commit, _)) = peel_through(reader, tip)? {
                let node = Commits::new(history, reader).load(&oid)?;
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

/// Returns the pack of the object numbered `number`, and its rank there.
fn place_of(objects: &Objects, number: u32) -> (u32, u32) {
    let mut start = 0;
    for (pack, p) in objects.packs.iter().enumerate() {
        if number - start < p.index().count() {
            return (pack as u32, number - start);
        }
        start += p.index().count();
    }
    unreachable!("numbers are below the count of all packs")
}

/// Removes from `wanted` what `filter` leaves out, except what the client named.
fn leave_out(
    filler: &mut Filler<'_, '_, '_>,
    wanted: &mut Bits,
    has: &Bits,
    filter: &Filter,
    named: &[Oid],
) -> Result<()> {
    let history = filler.history;
    let objects = history.objects();
    let first_count = objects.packs.first().map_or(0, |p| p.index().count());
    let kinds = [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag];
    let without_trees = filler.commits_only;
    let takes = |kind| match kind {
        Kind::Tree => filter.takes(kind) && !without_trees,
        Kind::Blob => filter.takes(kind) && !without_trees && filter.blob_bytes_below != Some(0),
        _ => filter.takes(kind),
    };
    // For the first pack the bitmaps show the kinds.
    if let Some(bitmaps) = history.bitmaps() {
        for (kind, is_of_kind) in kinds.into_iter().zip(bitmaps.kinds()) {
            if !takes(kind) {
                wanted.0.iter_mut().zip(is_of_kind).for_each(|(word, of_kind)| *word &= !of_kind);
            }
        }
    }
    let has_limit = filter.blob_bytes_below.is_some_and(|below| below > 0);
    let left: Vec<u32> = wanted.minus(has).filter(|&n| has_limit || n >= first_count).collect();
    for number in left {
        let (pack, rank) = place_of(objects, number);
        let pack = &objects.packs[pack as usize];
        let oid = pack.index().oid(pack.extent(rank)?.0);
        let kind = filler.reader.kind(&oid)?.ok_or(Error::Missing(oid))?;
        let is_taken = takes(kind)
            && match filter.blob_bytes_below {
                Some(below) if kind == Kind::Blob => {
                    filler.reader.kind_and_size(&oid)?.ok_or(Error::Missing(oid))?.1 < below
                }
                _ => true,
            };
        if !is_taken {
            wanted.clear(number);
        }
    }
    for oid in named {
        let (oid, _, tags) = peel_through(&mut filler.reader, oid)?.ok_or(Error::Missing(*oid))?;
        for oid in tags.iter().chain([&oid]) {
            wanted.set(filler.number(oid.as_bytes())?);
        }
    }
    Ok(())
}
