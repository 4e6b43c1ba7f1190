//! Finds what an index says of the files that a switch changes.

use weir_worktree::CacheEntry;

use crate::error::{Error, Result};
use crate::staged_in_way::StagedInWay;
use crate::tree_changes::TreeChange;

/// Paths that an error names.
const NAMED_MAX: usize = 5;

/// The entry of the index for a file before the switch.
pub(crate) struct KnownFile {
    pub(crate) entry: Option<CacheEntry>,
    path: Vec<u8>,
}

/// Finds the entries for the files that differ, while the caller reads an index.
pub(crate) struct KnownFiles {
    files: Vec<KnownFile>,
    next: usize,
    staged: StagedInWay,
    /// The reason to refuse the switch, whatever else the index has.
    refusal: Option<Error>,
}

impl KnownFiles {
    pub(crate) fn new(changes: &[TreeChange]) -> KnownFiles {
        let files = changes.iter().map(|change| KnownFile { entry: None, path: change.path.clone() });
        KnownFiles { files: files.collect(), next: 0, staged: StagedInWay::new(changes), refusal: None }
    }

    /// Looks at an entry, the path of which is behind all others.
    pub(crate) fn look(&mut self, path: &[u8], entry: &CacheEntry) {
        if self.refusal.is_some() {
            return;
        }
        if entry.is_unmerged() {
            self.refusal = Some(refused("there is an unfinished merge of", &[path]));
        } else if entry.is_skipped() {
            let words = "this is a sparse checkout; switch with git, which knows how";
            self.refusal = Some(Error::Odd(words.to_owned()));
        }
        self.staged.look(path);
        while self.files.get(self.next).is_some_and(|file| file.path.as_slice() < path) {
            self.next += 1;
        }
        if let Some(file) = self.files.get_mut(self.next).filter(|file| file.path == path) {
            file.entry = Some(*entry);
        }
    }

    /// Returns what the index says of each file that differs.
    ///
    /// # Errors
    /// If an entry forbids the switch.
    pub(crate) fn finish(self) -> Result<Vec<KnownFile>> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        match self.staged.found.iter().map(Vec::as_slice).collect::<Vec<_>>() {
            found if !found.is_empty() => Err(refused("there are staged changes in", &found)),
            _ => Ok(self.files),
        }
    }
}

/// Returns the error that a switch would lose what is at `paths`.
pub(crate) fn refused(what: &str, paths: &[&[u8]]) -> Error {
    let named: Vec<String> =
        paths.iter().take(NAMED_MAX).map(|path| format!("'{}'", String::from_utf8_lossy(path))).collect();
    let more = match paths.len().checked_sub(NAMED_MAX) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    let names = named.join(", ");
    Error::Odd(format!("{what} {names}{more}, where the commits differ; commit, stash or remove it first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_first_paths_and_count_the_others() {
        let paths: Vec<Vec<u8>> = (0..8).map(|n| format!("p{n}").into_bytes()).collect();
        let paths: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
        let end = ", where the commits differ; commit, stash or remove it first";
        let five = "W 'p0', 'p1', 'p2', 'p3', 'p4'";
        for (count, said) in [(1, "W 'p0'"), (5, five), (6, &format!("{five} and 1 more"))] {
            assert_eq!(refused("W", &paths[..count]).to_string(), format!("{said}{end}"));
        }
    }
}
