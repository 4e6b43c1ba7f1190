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
