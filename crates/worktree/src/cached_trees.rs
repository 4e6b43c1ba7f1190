//! The trees that an index knows the ids of (gitformat-index, extension "TREE"), so that git need not look at
//! files below those that HEAD has, too.

use std::collections::BTreeMap;

use weir_git::{HashKind, Oid};

use crate::error::{Error, Result};
use crate::names::DEPTH_MAX;

/// Returns the part of the extension for the tree `oid`, which is called `name` and has `files` files, those
/// below it included, with the names and parts of the trees in it.
pub fn cached_tree(name: &[u8], oid: &Oid, files: usize, mut children: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
    // As git sorts them (subtree_name_cmp): the shorter name first.
    children.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let counts = format!("{files} {}\n", children.len());
    let mut tree = [name, b"\0", counts.as_bytes(), oid.as_bytes()].concat();
    children.iter().for_each(|(_, child)| tree.extend_from_slice(child));
    tree
}

/// The files and folders that a switch changes in an index.
pub struct IndexChanges<'c> {
    /// The paths at which there are other files, ascending, with how many more there are: 1, 0 or -1.
    pub files: &'c [(&'c [u8], i64)],
    /// The trees of folders that differ before and after, by their paths with a slash at the end. The top
    /// folder has an empty path.
    pub folders: &'c BTreeMap<Vec<u8>, [Option<Oid>; 2]>,
}

impl IndexChanges<'_> {
    /// Returns the trees `data` of an index after the changes. A folder is not known any more if it was not
    /// the tree from which the changes were found, nor are those above it.
    ///
    /// # Errors
    /// If they are cut.
    pub fn apply(&self, hash: HashKind, data: &[u8]) -> Result<Vec<u8>> {
        debug_assert!(self.files.is_sorted_by(|a, b| a.0 <= b.0), "paths are out of order");
        let mut out = Vec::new();
        let done = self.copy(hash, &mut &*data, &mut Vec::new(), &mut out, 0);
        done.ok_or(Error::DamagedIndex("the cached trees are cut"))?;
        Ok(out)
    }

    /// Copies one tree with those below it. Deeper ones than git writes are not copied. Returns what is there
    /// after the changes; `None` if it is cut.
    fn copy(
        &self,
        hash: HashKind,
        rest: &mut &[u8],
        path: &mut Vec<u8>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Option<CopiedTree> {
        let name_len = rest.iter().position(|byte| *byte == 0)?;
        let (name, after) = rest.split_at(name_len + 1);
        let line_len = after.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&after[..line_len]).ok()?;
        let (count, below) = line.split_once(' ')?;
        let (count, below): (i64, u32) = (count.parse().ok()?, below.parse().ok()?);
        let (id, after) = after[line_len + 1..].split_at_checked(if count >= 0 { hash.len() } else { 0 })?;
        *rest = after;
        if depth > DEPTH_MAX {
            return None;
        }
        let len = path.len();
        if depth > 0 {
            path.extend_from_slice(&name[..name_len]);
            path.push(b'/');
        }
        let change = self.folders.get(path.as_slice());
        let (mut trees, mut left, mut are_known) = (Vec::new(), 0, true);
        for _ in 0..below {
            let copied = self.copy(hash, rest, path, &mut trees, depth + 1)?;
            left += u32::from(copied.is_there);
            are_known &= copied.is_known;
        }
        if depth > 0 && matches!(change, Some([_, None])) {
            path.truncate(len);
            return Some(CopiedTree { is_there: false, is_known: true });
        }
        let more = self.more_files(path);
        let now = match (more, change) {
            _ if count < 0 || !are_known => None,
            (None, _) => Some((count, id)),
            (Some(more), Some([Some(old), Some(new)])) if old.as_bytes() == id => {
                left += self.add_new(path, &mut trees, depth)?;
                Some((count.checked_add(more)?, new.as_bytes()))
            }
            (Some(_), _) => None,
        };
        let is_known = now.is_some();
        let (count, id) = now.unwrap_or((-1, &[]));
        out.extend_from_slice(name);
        out.extend_from_slice(format!("{count} {left}\n").as_bytes());
        out.extend_from_slice(id);
        out.append(&mut trees);
        path.truncate(len);
        Some(CopiedTree { is_there: true, is_known })
    }

    /// Returns how many more files there are below the folder `path`; `None` if none has changed.
    fn more_files(&self, path: &[u8]) -> Option<i64> {
        let from = self.files.partition_point(|(changed, _)| *changed < path);
        let mut files = self.files[from..].iter().take_while(|(changed, _)| changed.starts_with(path));
        let (_, first) = files.next()?;
        Some(first + files.map(|(_, more)| more).sum::<i64>())
    }

    /// Adds the trees that are new right in the folder `path`, and those below. Returns how many are right in
    /// it; `None` if they are too deep.
    fn add_new(&self, path: &[u8], out: &mut Vec<u8>, depth: usize) -> Option<u32> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut count = 0;
        let below = self.folders.range(path.to_vec()..).take_while(|(folder, _)| folder.starts_with(path));
        for (folder, trees) in below {
            let name = folder[path.len()..].strip_suffix(b"/").unwrap_or_default();
            let [None, Some(oid)] = trees else { continue };
            if name.is_empty() || name.contains(&b'/') {
                continue;
            }
            let mut inner = Vec::new();
            let left = self.add_new(folder, &mut inner, depth + 1)?;
            let files = self.more_files(folder).unwrap_or(0);
            out.extend_from_slice(name);
            out.extend_from_slice(format!("\0{files} {left}\n").as_bytes());
            out.extend_from_slice(oid.as_bytes());
            out.append(&mut inner);
            count += 1;
        }
        Some(count)
    }
}

/// A tree that was copied.
struct CopiedTree {
    /// Whether it is there after the changes.
    is_there: bool,
    /// Whether it is known, and all below.
    is_known: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(n: u8) -> Oid {
        Oid::from_bytes(HashKind::Sha1, &[n; 20]).unwrap()
    }

    fn tree(name: &str, count: i64, below: u32, n: u8) -> Vec<u8> {
        let id: &[u8] = if count < 0 { &[] } else { &[n; 20] };
        [name.as_bytes(), format!("\0{count} {below}\n").as_bytes(), id].concat()
    }

    #[test]
    fn trees_that_changed_are_known_if_they_were() {
        let data = [
            tree("", 6, 3, 1),
            tree("a", 2, 1, 2),
            tree("b", 1, 0, 3),
            tree("c", 1, 0, 4),
            tree("d", 2, 0, 5),
        ];
        let data = data.concat();
        let folder =
            |path: &str, old: u8, new: Option<u8>| (path.as_bytes().to_vec(), [Some(oid(old)), new.map(oid)]);
        let apply = |files: &[(&[u8], i64)], folders: &[(Vec<u8>, [Option<Oid>; 2])]| {
            let folders = folders.iter().cloned().collect();
            IndexChanges { files, folders: &folders }.apply(HashKind::Sha1, &data).unwrap()
        };
        assert_eq!(apply(&[], &[]), data);
        // A file more in a/b, one less in d, and c is gone.
        let files: [(&[u8], i64); 4] = [(b"a/b/new", 1), (b"a/b/old", 0), (b"c/x", -1), (b"d/y", -1)];
        let folders = [
            folder("", 1, Some(11)),
            folder("a/", 2, Some(12)),
            folder("a/b/", 3, Some(13)),
            folder("c/", 4, None),
        ];
        let expected =
            [tree("", -1, 2, 0), tree("a", 3, 1, 12), tree("b", 2, 0, 13), tree("d", -1, 0, 0)].concat();
        assert_eq!(apply(&files, &folders), expected, "of d nothing is known");
        // A folder is new, with one in it.
        let files: [(&[u8], i64); 3] = [(b"a/b/old", -1), (b"n/m/x", 1), (b"n/y", 1)];
        let new = |path: &str, n: u8| (path.as_bytes().to_vec(), [None, Some(oid(n))]);
        let folders = [
            folder("", 1, Some(11)),
            folder("a/", 2, Some(12)),
            folder("a/b/", 3, None),
            new("n/", 14),
            new("n/m/", 15),
        ];
        let expected = [tree("", 7, 4, 11), tree("a", 1, 0, 12), tree("c", 1, 0, 4), tree("d", 2, 0, 5)];
        let expected = [expected.concat(), tree("n", 2, 1, 14), tree("m", 1, 0, 15)].concat();
        assert_eq!(apply(&files, &folders), expected);
        // The index had something else in a: nothing above is known, either.
        let files: [(&[u8], i64); 1] = [(b"a/b/new", 1)];
        let folders = [folder("", 1, Some(11)), folder("a/", 9, Some(12)), folder("a/b/", 3, Some(13))];
        let expected = [tree("", -1, 3, 0), tree("a", -1, 1, 0), tree("b", 2, 0, 13), tree("c", 1, 0, 4)];
        assert_eq!(apply(&files, &folders), [expected.concat(), tree("d", 2, 0, 5)].concat());
        for end in 0..data.len() {
            let nothing = BTreeMap::new();
            let cut = IndexChanges { files: &[], folders: &nothing }.apply(HashKind::Sha1, &data[..end]);
            assert!(cut.is_err(), "{end}");
        }
    }
}
