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
