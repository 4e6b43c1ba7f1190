//! Checks whether the folders above a path are there.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the folders above a path are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Above {
    Folders,
    Missing,
    /// A file, or a link, takes the place of one.
    File,
}

/// The folders above paths, which are looked at once each.
pub(crate) struct FoldersAbove<'a> {
    folder: &'a Path,
    known: HashMap<Vec<u8>, Above>,
}

impl<'a> FoldersAbove<'a> {
    pub(crate) fn new(folder: &'a Path) -> FoldersAbove<'a> {
        FoldersAbove { folder, known: HashMap::new() }
    }

    /// Returns what is above `path`. A file of `removed` counts as missing.
    pub(crate) fn of(&mut self, path: &[u8], removed: &BTreeSet<&[u8]>) -> Above {
        let Some(at) = path.iter().rposition(|byte| *byte == b'/') else { return Above::Folders };
        let above = &path[..at];
        if let Some(known) = self.known.get(above) {
            return *known;
        }
        let state = match self.of(above, removed) {
            Above::Folders => match fs::symlink_metadata(self.folder.join(OsStr::from_bytes(above))) {
                Ok(about) if about.is_dir() => Above::Folders,
                Ok(_) if removed.contains(above) => Above::Missing,
                Ok(_) => Above::File,
                Err(_) => Above::Missing,
            },
            other => other,
        };
        self.known.insert(above.to_vec(), state);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_above_are_there_or_missing_or_files() {
        let dir = weir_testing::folder();
        let at = dir.path();
        fs::create_dir_all(at.join("a/b")).unwrap();
        fs::write(at.join("file"), "").unwrap();
        fs::write(at.join("goes"), "").unwrap();
        std::os::unix::fs::symlink("a", at.join("link")).unwrap();
        let removed: BTreeSet<&[u8]> = [&b"goes"[..]].into();
        let mut above = FoldersAbove::new(at);
        // Each is asked for twice: the second time it is known.
        for _ in 0..2 {
            for (path, state) in [
                ("x", Above::Folders),
                ("a/b/x", Above::Folders),
                ("a/c/x", Above::Missing),
                ("a/c/d/x", Above::Missing),
                ("file/x", Above::File),
                ("file/y/x", Above::File),
                ("link/b/x", Above::File),
                ("goes/x", Above::Missing),
                ("goes/y/x", Above::Missing),
            ] {
                assert!(above.of(path.as_bytes(), &removed) == state, "{path}");
            }
        }
    }
}
