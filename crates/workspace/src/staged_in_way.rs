//! Finds what is staged where a switch puts files.

use std::collections::BTreeSet;

use crate::tree_changes::TreeChange;

/// Finds entries of an index that no commit has, and that are folders of new files, or in those.
pub(crate) struct StagedInWay {
    /// The paths of the changes, ascending.
    changed: Vec<Vec<u8>>,
    /// The new files as folders, with a slash, and the folders above new files; ascending.
    below: Vec<Vec<u8>>,
    above: BTreeSet<Vec<u8>>,
    next: usize,
    pub(crate) found: Vec<Vec<u8>>,
}

impl StagedInWay {
    pub(crate) fn new(changes: &[TreeChange]) -> StagedInWay {
        let added = || changes.iter().filter(|change| change.old.is_none()).map(|change| &change.path);
        let mut below: Vec<Vec<u8>> = added().map(|path| [path, &b"/"[..]].concat()).collect();
        below.sort();
        let mut above = BTreeSet::new();
        for path in added() {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            above.extend(slashes.map(|(at, _)| path[..at].to_vec()));
        }
        let changed: Vec<Vec<u8>> = changes.iter().map(|change| change.path.clone()).collect();
        debug_assert!(changed.is_sorted(), "changes are out of order");
        StagedInWay { changed, below, above, next: 0, found: Vec::new() }
    }

    /// Looks at an entry, the path of which is behind all others.
    pub(crate) fn look(&mut self, path: &[u8]) {
        while self
            .below
            .get(self.next)
            .is_some_and(|below| below.as_slice() < path && !path.starts_with(below))
        {
            self.next += 1;
        }
        let is_below = self.below.get(self.next).is_some_and(|below| path.starts_with(below));
        let is_in_way = is_below || !self.above.is_empty() && self.above.contains(path);
        if is_in_way && self.changed.binary_search_by(|changed| changed.as_slice().cmp(path)).is_err() {
            self.found.push(path.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use weir_git::Oid;
    use weir_worktree::TreeFile;

    #[test]
    fn entries_are_in_the_way_of_new_files_and_their_folders() {
        let oid = Oid::from_hex_any("1".repeat(40).as_bytes()).unwrap();
        let file = Some(TreeFile { mode: 0o100_644, oid });
        let change = |path: &str, is_new: bool| {
            let (old, new) = if is_new { (None, file) } else { (file, file) };
            TreeChange { path: path.as_bytes().to_vec(), old, new }
        };
        let changes = [
            change("a", true),
            change("a-b/c", true),
            change("d", false),
            change("e/f/g", true),
            change("h/i", false),
            change("z", true),
        ];
        let found = |changes: &[TreeChange], entries: &[&str]| {
            let mut staged = StagedInWay::new(changes);
            entries.iter().for_each(|path| staged.look(path.as_bytes()));
            staged.found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>()
        };
        let entries =
            ["a", "a-b", "a-b/c", "a-b/c/x", "a/x", "a/y/z", "ab/x", "d", "d/x", "e", "e/f", "e/f/g"];
        let more = ["e/f/g/x", "e/g", "h", "h/i/j", "y", "z/x"];
        let expected = ["a-b", "a-b/c/x", "a/x", "a/y/z", "e", "e/f", "e/f/g/x", "z/x"];
        assert_eq!(found(&changes, &[&entries[..], &more].concat()), expected);
        assert!(found(&[], &entries).is_empty());
        assert!(found(&changes[2..3], &entries).is_empty());
    }
}
