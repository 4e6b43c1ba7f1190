//! Finds the entries of a tree that differ from other trees. It compares raw bytes, and skips equal parts
//! without parsing entries.

use weir_git::{HashKind, ObjectError, Oid, TreeEntry, TreeIter, tree_entry_len};

use crate::error::{Error, Result as RepoResult};
use crate::objects::reader::ObjectReader;

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
pub(crate) const TREE_DEPTH_MAX: usize = 2048;

/// The entries of a tree that none of some other trees has.
#[derive(Default)]
pub(crate) struct Changed {
    /// The trees, each with those of the same name in the others.
    pub(crate) trees: Vec<(Oid, Vec<Oid>)>,
    /// The blobs, each with the first of the same name in the others.
    pub(crate) blobs: Vec<(Oid, Option<Oid>)>,
}

/// Returns the entries that `tree` has and none of `before` has. Trees of `before` that are missing are
/// skipped.
///
/// # Errors
/// If `tree` is missing or malformed.
pub(crate) fn changed(reader: &mut ObjectReader<'_>, tree: &Oid, before: &[Oid]) -> RepoResult<Changed> {
    let mut found = Changed::default();
    each_changed(reader, tree, before, |entry, oid, alike| {
        if entry.is_tree() {
            found.trees.push((oid, alike.collect()));
        } else {
            found.blobs.push((oid, alike.next()));
        }
    })?;
    Ok(found)
}

/// Calls `changed` for each entry that `tree` has and none of `before` has, with its id and the ids of the
/// entries of the same name and sort in `before`.
///
/// # Errors
/// As [`changed()`].
pub(crate) fn each_changed(
    reader: &mut ObjectReader<'_>,
    tree: &Oid,
    before: &[Oid],
    mut changed: impl FnMut(&TreeEntry<'_>, Oid, &mut dyn Iterator<Item = Oid>),
) -> RepoResult<()> {
    let hash = reader.objects().hash;
    let object = reader.require(tree)?;
    let mut olds = Vec::with_capacity(before.len());
    for oid in before {
        olds.extend(reader.read(oid)?);
    }
    let old_data: Vec<&[u8]> = olds.iter().map(|o| o.data.as_slice()).collect();
    changed_entries(hash, &object.data, &old_data, |entry, same_name| {
        let id = |entry: &TreeEntry<'_>| Oid::from_bytes(hash, entry.id).expect("of its length");
        let mut alike =
            same_name.iter().filter(|o| o.is_tree() == entry.is_tree() && !o.is_gitlink()).map(id);
        changed(&entry, id(&entry), &mut alike);
    })
    .map_err(|source| Error::Object { oid: *tree, source })
}

/// Calls `changed` for each entry of `new` (except submodule links) that none of `olds` has with the same
/// name, sort and id. Passes the entries of its name and sort in `olds`.
///
/// # Errors
/// If `new` is malformed. Malformed entries in `olds` count as absent.
pub(crate) fn changed_entries<'n, 'o>(
    hash: HashKind,
    new: &'n [u8],
    olds: &[&'o [u8]],
    mut changed: impl FnMut(TreeEntry<'n>, &[TreeEntry<'o>]),
) -> Result<(), ObjectError> {
    unlike_entries(hash, new, olds, |entry, same_name| {
        if !entry.is_gitlink() {
            changed(entry, same_name);
        }
    })
}

/// Does what [`changed_entries`] does, and does not except submodule links.
///
/// # Errors
/// As [`changed_entries`].
pub(crate) fn unlike_entries<'n, 'o>(
    hash: HashKind,
    new: &'n [u8],
    olds: &[&'o [u8]],
    mut changed: impl FnMut(TreeEntry<'n>, &[TreeEntry<'o>]),
) -> Result<(), ObjectError> {
    let mut cursors: Vec<Cursor<'o>> = olds.iter().map(|old| Cursor::new(hash, old)).collect();
    let mut same_name = Vec::new();
    let mut rest = new;
    loop {
        // Nearly all entries of a large tree are as in its parent's: bytes that are equal are skipped.
        for cursor in &mut cursors {
            let alike = common_start(hash, rest, cursor.rest);
            (rest, cursor.rest) = (&rest[alike..], &cursor.rest[alike..]);
        }
        if rest.is_empty() {
            return Ok(());
        }
        let entry = TreeIter::new(hash, rest).next().expect("not empty")?;
        rest = &rest[tree_entry_len(hash, rest).ok_or(ObjectError::TreeEntry)?..];
        same_name.clear();
        let mut is_same = false;
        for cursor in &mut cursors {
            if let Some(old) = cursor.find(&entry) {
                is_same |= old.id == entry.id && old.mode == entry.mode;
                same_name.push(old);
            }
        }
        if !is_same {
            changed(entry, &same_name);
        }
    }
}

/// Returns the length of the common start of both.
pub(crate) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    // Compares in wide steps while everything is equal, then in narrower ones.
    let mut at = 0;
    for step in [2048, 256, 32] {
        let alike =
            a[at..].chunks_exact(step).zip(b[at..].chunks_exact(step)).take_while(|(a, b)| a == b).count();
        at += alike * step;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Returns the length in bytes of the whole entries that both start with.
fn common_start(hash: HashKind, a: &[u8], b: &[u8]) -> usize {
    common_entries(hash, a, common_bytes(a, b))
}

/// Returns the length in bytes of the whole entries among the first `bytes` of `tree`.
pub(crate) fn common_entries(hash: HashKind, tree: &[u8], bytes: usize) -> usize {
    let mut at = 0;
    while let Some(len) = tree_entry_len(hash, &tree[at..])
        && at + len <= bytes
    {
        at += len;
    }
    at
}

/// Moves through a tree in step with another tree.
struct Cursor<'a> {
    hash: HashKind,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn new(hash: HashKind, data: &'a [u8]) -> Self {
        Cursor { hash, rest: data }
    }

    /// Returns the entry of the same name and sort, and moves past it. Entries must be asked for in tree
    /// order.
    fn find(&mut self, wanted: &TreeEntry<'_>) -> Option<TreeEntry<'a>> {
        loop {
            let entry = TreeIter::new(self.hash, self.rest).next()?.ok()?;
            let order = tree_order(&entry, wanted);
            if order == std::cmp::Ordering::Greater {
                return None;
            }
            self.rest = &self.rest[tree_entry_len(self.hash, self.rest)?..];
            if order == std::cmp::Ordering::Equal {
                return Some(entry);
            }
        }
    }
}

/// Compares entries in the order of a tree: by name, with `/` after the names of trees.
pub(crate) fn tree_order(a: &TreeEntry<'_>, b: &TreeEntry<'_>) -> std::cmp::Ordering {
    let common = a.name.len().min(b.name.len());
    a.name[..common].cmp(&b.name[..common]).then_with(|| {
        let next =
            |e: &TreeEntry<'_>| e.name.get(common).copied().unwrap_or(if e.is_tree() { b'/' } else { 0 });
        next(a).cmp(&next(b)).then(a.name.len().cmp(&b.name.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, &str, u8)]) -> Vec<u8> {
        entries
            .iter()
            .flat_map(|(mode, name, id)| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[*id; 20]].concat())
            .collect()
    }

    fn diff(new: &[u8], olds: &[&[u8]]) -> Vec<(String, usize)> {
        let mut out = Vec::new();
        let name = |e: &TreeEntry<'_>| String::from_utf8_lossy(e.name).into_owned();
        changed_entries(HashKind::Sha1, new, olds, |e, same| out.push((name(&e), same.len()))).unwrap();
        out
    }

    #[test]
    fn only_what_changed() {
        let old = tree(&[
            ("100644", "a", 1),
            ("40000", "b", 2),
            ("100644", "b.c", 3),
            ("100644", "d", 0),
            ("160000", "m", 9),
        ]);
        let changed =
            |list: &[(&str, usize)]| list.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect::<Vec<_>>();
        assert_eq!(diff(&old, &[&old]), changed(&[]));
        let new = tree(&[
            ("100644", "a", 1),
            ("100644", "aa", 8),
            ("40000", "b", 7),
            ("100644", "b.c", 3),
            ("160000", "m", 1),
        ]);
        assert_eq!(diff(&new, &[&old]), changed(&[("aa", 0), ("b", 1)]));
        assert_eq!(diff(&new, &[&old, &new]), changed(&[]), "as in one of two parents");
        assert_eq!(diff(&new, &[]).len(), 4, "all but the submodule");
        assert_eq!(diff(&new, &[b"garbage"]).len(), 4);
        let file_to_folder = tree(&[("100644", "a", 1), ("40000", "d", 4)]);
        assert_eq!(diff(&file_to_folder, &[&old]), changed(&[("d", 0)]), "another sort of entry");
        let executable = tree(&[("100755", "a", 1)]);
        assert_eq!(diff(&executable, &[&old]), changed(&[("a", 1)]));
        assert!(changed_entries(HashKind::Sha1, &old[..old.len() - 1], &[], |_, _| ()).is_err());
    }
}
