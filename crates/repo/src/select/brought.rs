//! Trees and blobs that a commit adds to those of its parents.

use weir_git::{Oid, OidSet, TreeIter};

use crate::error::{Error, Result};
use crate::objects::reader::ObjectReader;
use crate::objects::tree_diff::{Changed, TREE_DEPTH_MAX, changed, changed_entries};
use crate::reach::steps::Steps;

/// The most entries read from removed trees for each object that seems new. Moved objects are among them.
const REMOVED_PER_NEW_MAX: usize = 8;
/// The entries that may be read from removed trees in any case.
const REMOVED_MAX: usize = 1024;

/// Lists the trees and blobs of `tree` that none of the trees `before` has, each with the object that had its
/// path before. The list does not depend on the client.
///
/// Leaves out an object that was moved, or copied within a changed folder. Does not search unchanged folders
/// for copies.
///
/// # Errors
/// If a tree is missing or corrupt, or the budget of steps is used up.
pub(super) fn brought(
    reader: &mut ObjectReader<'_>,
    steps: &mut Steps<'_>,
    tree: &Oid,
    before: &[Oid],
) -> Result<Vec<(Oid, Option<Oid>)>> {
    let mut differences = Differences {
        reader,
        steps,
        found: Vec::new(),
        compared: Vec::new(),
        new_trees: Vec::new(),
        had: OidSet::default(),
    };
    differences.compare(tree, before, 0)?;
    let is_new = |(_, previous): &(Oid, Option<Oid>)| previous.is_none();
    let has_new = !differences.new_trees.is_empty() || differences.found.iter().any(is_new);
    if has_new && !before.is_empty() {
        differences.leave_out_what_moved()?;
    }
    Ok(differences.found)
}

struct Differences<'a, 'r, 's> {
    reader: &'a mut ObjectReader<'r>,
    steps: &'a mut Steps<'s>,
    found: Vec<(Oid, Option<Oid>)>,
    /// Pairs of a changed tree and its earlier versions.
    compared: Vec<(Oid, Vec<Oid>)>,
    /// New trees without an earlier version, with their depth. They are read last.
    new_trees: Vec<(Oid, usize)>,
    /// Objects known to be in the trees `before`.
    had: OidSet,
}

impl Differences<'_, '_, '_> {
    fn compare(&mut self, tree: &Oid, before: &[Oid], depth: usize) -> Result<()> {
        if before.contains(tree) || self.had.contains(tree) {
            return Ok(());
        }
        if depth > TREE_DEPTH_MAX {
            return Err(Error::Unsupported(format!("tree {tree} is nested more than {TREE_DEPTH_MAX} deep")));
        }
        self.steps.take(1)?;
        let Changed { trees: below, blobs } = changed(self.reader, tree, before)?;
        self.found.push((*tree, before.first().copied()));
        self.found.extend(blobs);
        if !before.is_empty() {
            self.compared.push((*tree, before.to_vec()));
        }
        for (oid, old) in below {
            if old.is_empty() && !before.is_empty() {
                self.new_trees.push((oid, depth + 1));
            } else {
                self.compare(&oid, &old, depth + 1)?;
            }
        }
        Ok(())
    }

    fn leave_out_what_moved(&mut self) -> Result<()> {
        let mut removed = Vec::new();
        for (tree, before) in std::mem::take(&mut self.compared) {
            for old in before {
                self.steps.take(1)?;
                self.note_entries(&tree, &old, &mut removed)?;
            }
        }
        let new_trees = std::mem::take(&mut self.new_trees);
        for (tree, depth) in &new_trees {
            self.compare(tree, &[], *depth)?;
        }
        // A folder that was moved and changed has a new id, but most of its content is old.
        if !new_trees.is_empty() {
            self.note_removed(removed)?;
        }
        let had = &self.had;
        self.found.retain(|(oid, _)| !had.contains(oid));
        Ok(())
    }

    /// Adds the entries of `old` to `had`, and its subtrees whose names `tree` lacks to `removed`.
    fn note_entries(&mut self, tree: &Oid, old: &Oid, removed: &mut Vec<Oid>) -> Result<()> {
        let hash = self.reader.objects().hash;
        let new = self.reader.require(tree)?;
        let Some(old) = self.reader.read(old)? else { return Ok(()) };
        let id = |id: &[u8]| Oid::from_bytes(hash, id).expect("of its length");
        // Ignores malformed entries, as the comparison of trees does.
        let entries = TreeIter::new(hash, &old.data).map_while(std::result::Result::ok);
        self.had.extend(entries.filter(|entry| !entry.is_gitlink()).map(|entry| id(entry.id)));
        let _ = changed_entries(hash, &old.data, &[&new.data], |entry, same_name| {
            if entry.is_tree() && same_name.is_empty() {
                removed.push(id(entry.id));
            }
        });
        Ok(())
    }

    /// Adds the entries of removed trees to `had`, up to the limits above.
    fn note_removed(&mut self, mut removed: Vec<Oid>) -> Result<()> {
        let hash = self.reader.objects().hash;
        let mut left = REMOVED_MAX + self.found.len() * REMOVED_PER_NEW_MAX;
        while let Some(tree) = removed.pop()
            && left > 0
        {
            self.steps.take(1)?;
            let Some(object) = self.reader.read(&tree)? else { continue };
            for entry in TreeIter::new(hash, &object.data).map_while(std::result::Result::ok) {
                left = left.saturating_sub(1);
                let oid = Oid::from_bytes(hash, entry.id).expect("of its length");
                if !entry.is_gitlink() && self.had.insert(oid) && entry.is_tree() {
                    removed.push(oid);
                }
            }
        }
        Ok(())
    }
}
