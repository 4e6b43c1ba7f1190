//! Fills sets of object numbers from bitmaps, and by walks where there are none.

use std::collections::BinaryHeap;

use weir_git::{Kind, Oid, OidSet, TreeIter};

use crate::error::{Error, Result};
use crate::objects::bits::Bits;
use crate::objects::reader::{ObjectReader, peel_through};
use crate::objects::tree_diff::TREE_DEPTH_MAX;
use crate::reach::history::History;
use crate::reach::steps::Steps;
use crate::reach::walk::Commits;

/// Returns the numbers of everything that `tips` reach.
pub(crate) fn all_by_bitmaps(history: &History, tips: &[Oid], steps: &mut Steps<'_>) -> Result<Bits> {
    let mut filler = Filler { reader: history.objects.reader(), history, steps, commits_only: false };
    filler.fill(tips, &Bits::new(history.objects.packed_count()), false)
}

/// Fills sets of object numbers.
pub(crate) struct Filler<'r, 's, 'c> {
    pub(crate) reader: ObjectReader<'r>,
    pub(crate) history: &'r History,
    pub(crate) steps: &'s mut Steps<'c>,
    /// Whether trees are not read.
    pub(crate) commits_only: bool,
}

impl Filler<'_, '_, '_> {
    pub(crate) fn number(&self, id: &[u8]) -> Result<u32> {
        let missing =
            || Error::Missing(Oid::from_bytes(self.history.objects.hash, id).expect("of its length"));
        let location = self.history.objects.locate_raw(id).ok_or_else(missing)?;
        self.history.objects.number(location)?.ok_or_else(missing)
    }

    /// Returns everything that `tips` reach. What is in `stop` need not be followed. A tip that is missing is
    /// an error if `required`.
    pub(crate) fn fill(&mut self, tips: &[Oid], stop: &Bits, required: bool) -> Result<Bits> {
        let history = self.history;
        let objects = &history.objects;
        let mut bits = Bits::new(objects.packed_count());
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
                    queue.push((Commits::new(history, &mut self.reader).load(&oid)?.time, oid))
                }
                Kind::Commit => {}
                Kind::Tree => trees.push(oid),
                Kind::Blob | Kind::Tag => drop(bits.set(self.number(oid.as_bytes())?)),
            }
        }
        // Commits and their bitmaps come first. The trees of the commits between them come afterwards, when
        // most of them are known.
        while let Some((_, oid)) = queue.pop() {
            self.steps.take(1)?;
            let number = self.number(oid.as_bytes())?;
            if bits.get(number) || stop.get(number) {
                continue;
            }
            if let Some(position) = objects.in_first_pack(&oid)
                && let Some(reachable) = history.bitmaps().and_then(|b| b.reachable(position))
            {
                bits.or(&reachable);
                continue;
            }
            bits.set(number);
            let node = Commits::new(history, &mut self.reader).load(&oid)?;
            trees.push(node.tree);
            for parent in node.parents {
                if seen.insert(parent) {
                    queue.push((Commits::new(history, &mut self.reader).load(&parent)?.time, parent));
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

    fn fill_tree(&mut self, tree: &Oid, bits: &mut Bits, stop: &Bits, depth: usize) -> Result<()> {
        let number = self.number(tree.as_bytes())?;
        if stop.get(number) || !bits.set(number) {
            return Ok(());
        }
        if depth > TREE_DEPTH_MAX {
            return Err(Error::Unsupported(format!("tree {tree} is nested more than {TREE_DEPTH_MAX} deep")));
        }
        self.steps.take(1)?;
        let hash = self.history.objects.hash;
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
