//! What differs between the files of two trees.

use std::collections::BTreeMap;

use weir_git::{HashKind, Kind, Oid, TreeEntry, TreeIter};
use weir_repo::ObjectReader;

use crate::error::{Error, Result};
use weir_worktree::{DEPTH_MAX, TreeFile, index_mode, is_name};

/// A path at which two trees have different files.
#[derive(Clone, Debug)]
pub(crate) struct TreeChange {
    pub(crate) path: Vec<u8>,
    pub(crate) old: Option<TreeFile>,
    pub(crate) new: Option<TreeFile>,
}

/// What differs between two trees.
#[derive(Default)]
pub(crate) struct TreeChanges {
    /// The files, ascending by path.
    pub(crate) files: Vec<TreeChange>,
    /// The folders that differ, with both trees, by their paths with a slash at the end. The top folder has
    /// an empty path.
    pub(crate) folders: BTreeMap<Vec<u8>, [Option<Oid>; 2]>,
}

impl TreeChanges {
    /// Returns the paths of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.files.iter().map(|change| change.path.as_slice())
    }

    /// Returns whether the folder of the file at `path` has other names afterwards, or others are ignored.
    pub(crate) fn renames_in_folder(&self, path: &[u8]) -> bool {
        let found = self.files.binary_search_by(|change| change.path.as_slice().cmp(path));
        let is_other = |change: &TreeChange| change.old.is_none() || change.new.is_none();
        path.ends_with(b".gitignore") || found.is_ok_and(|at| is_other(&self.files[at]))
    }
}

/// Returns what differs between the trees `old` and `new`.
///
/// # Errors
/// If a tree is missing or corrupt, or git would not check the new one out.
pub(crate) fn tree_changes(reader: &mut ObjectReader<'_>, old: &Oid, new: &Oid) -> Result<TreeChanges> {
    let mut found = FoundChanges { changes: TreeChanges::default(), path: Vec::new() };
    if old != new {
        found.compare(reader, Some(old), Some(new), 0)?;
    }
    found.changes.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found.changes)
}

/// What is found, and where the search is.
struct FoundChanges {
    changes: TreeChanges,
    path: Vec<u8>,
}

impl FoundChanges {
    fn compare(
        &mut self,
        reader: &mut ObjectReader<'_>,
        old: Option<&Oid>,
        new: Option<&Oid>,
        depth: usize,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::unusable(&self.path, "is so deep"));
        }
        self.changes.folders.insert(self.path.clone(), [old.copied(), new.copied()]);
        let hash = reader.objects().hash();
        let mut read = |oid: Option<&Oid>| oid.map(|oid| tree(reader, oid)).transpose();
        let (old_tree, new_tree) = (read(old)?, read(new)?);
        let (a, b) = (entries(hash, old, &old_tree)?, entries(hash, new, &new_tree)?);
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        loop {
            let (old, new) = match (a.peek(), b.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => (a.next(), None),
                (None, Some(_)) => (None, b.next()),
                (Some(old), Some(new)) => match order(old).cmp(&order(new)) {
                    std::cmp::Ordering::Less => (a.next(), None),
                    std::cmp::Ordering::Greater => (None, b.next()),
                    std::cmp::Ordering::Equal => (a.next(), b.next()),
                },
            };
            if old.is_some_and(|old| new.is_some_and(|new| old.id == new.id && old.mode == new.mode)) {
                continue;
            }
            let Some(any) = old.or(new) else { continue };
            let len = self.path.len();
            self.path.extend_from_slice(any.name);
            if new.is_some() && !is_name(any.name) {
                return Err(Error::unusable(&self.path, "is a name"));
            }
            let oid = |entry: &TreeEntry<'_>| Oid::from_bytes(hash, entry.id).expect("entries have ids");
            let (old_oid, new_oid) = (old.map(oid), new.map(oid));
            if any.is_tree() {
                self.path.push(b'/');
                self.compare(reader, old_oid.as_ref(), new_oid.as_ref(), depth + 1)?;
            } else {
                let file = |entry: Option<&TreeEntry<'_>>| {
                    entry.map(|entry| TreeFile { mode: index_mode(entry.mode), oid: oid(entry) })
                };
                let (old, new) = (file(old), file(new));
                if old != new {
                    debug_assert!(old.is_some() || new.is_some(), "a change of nothing");
                    self.changes.files.push(TreeChange { path: self.path.clone(), old, new });
                }
            }
            self.path.truncate(len);
        }
    }
}

fn tree(reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<std::rc::Rc<Vec<u8>>> {
    let object = reader.require(oid)?;
    if object.kind != Kind::Tree {
        return Err(Error::NotAFolder);
    }
    Ok(object.data)
}

/// Returns the entries of a tree, in the order of [`order`], whichever they are stored in.
fn entries<'t>(
    hash: HashKind,
    oid: Option<&Oid>,
    tree: &'t Option<std::rc::Rc<Vec<u8>>>,
) -> Result<Vec<TreeEntry<'t>>> {
    let (Some(oid), Some(tree)) = (oid, tree) else { return Ok(Vec::new()) };
    let malformed = |source| weir_repo::Error::Object { oid: *oid, source };
    let list: std::result::Result<Vec<TreeEntry<'_>>, _> = TreeIter::new(hash, tree).collect();
    let mut list = list.map_err(malformed)?;
    list.sort_by(|a, b| order(a).cmp(&order(b)));
    Ok(list)
}

/// By name, and files before folders: a file and a folder of one name are not the same entry.
fn order<'e>(entry: &'e TreeEntry<'_>) -> (&'e [u8], bool) {
    (entry.name, entry.is_tree())
}
