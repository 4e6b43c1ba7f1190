//! Large answers from bitmaps: sets of object numbers instead of walks.

use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidSet, TreeIter};

use crate::bitmap::Bits;
use crate::derive::in_first_pack;
use crate::error::{Error, Result};
use crate::reader::ObjectReader;
use crate::repo::Repo;
use crate::walk::{Budget, Commits, Selection, Steps, TREE_DEPTH_MAX, peel_through};

/// The same as [`crate::walk::select`] for large answers: sets of object numbers, filled from bitmaps as far as they go.
pub(crate) fn select_by_bitmaps(repo: &Repo, wants: &[Oid], haves: &[Oid], budget: Budget) -> Result<Selection> {
    let mut filler = Filler { reader: repo.reader(), repo, steps: Steps { left: budget.steps_max } };
    let nothing = Bits::new(repo.packed_count());
    let has = filler.fill(haves, &nothing, false)?;
    let wanted = filler.fill(wants, &has, true)?;
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
    Ok(selection)
}

/// Fills sets of object numbers.
struct Filler<'r> {
    reader: ObjectReader<'r>,
    repo: &'r Repo,
    steps: Steps,
}

impl Filler<'_> {
    fn number(&self, id: &[u8]) -> Result<u32> {
        let missing = || Error::Missing(Oid::from_bytes(self.repo.hash, id).expect("of its length"));
        let location = self.repo.locate_raw(id).ok_or_else(missing)?;
        self.repo.number(location)?.ok_or_else(missing)
    }

    /// Everything that `tips` reach, except that what is in `stop` need not be followed. Tips that are not here are an
    /// error if `required`.
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
                Kind::Commit if seen.insert(oid) => queue.push((Commits::new(&mut self.reader).load(&oid)?.time, oid)),
                Kind::Commit => {}
                Kind::Tree => trees.push(oid),
                Kind::Blob | Kind::Tag => drop(bits.set(self.number(oid.as_bytes())?)),
            }
        }
        // Commits and their bitmaps first; trees of the commits between only afterwards, when most of them are known.
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
        for tree in trees {
            self.fill_tree(&tree, &mut bits, stop, 0)?;
        }
        Ok(bits)
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
                self.fill_tree(&Oid::from_bytes(hash, entry.id).expect("of its length"), bits, stop, depth + 1)?;
            } else if !entry.is_gitlink() {
                bits.set(self.number(entry.id)?);
            }
        }
        Ok(())
    }
}
