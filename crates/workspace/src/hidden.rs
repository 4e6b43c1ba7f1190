//! Finds the files of a commit that are not seen through what was written above.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::touched_scan::{hides_below, was_renamed};

/// What a folder that was written in is to the commit's folder of that path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerFolder {
    /// It is not there: all below is seen.
    Missing,
    /// What is not in it is seen through it.
    Open,
    /// Nothing below is seen.
    Closed,
    /// What is below may be seen elsewhere.
    Moved,
}

/// The layers above a commit.
pub(crate) struct LayersAbove<'a> {
    /// The folders of what was written.
    layers: &'a [PathBuf],
    /// The files of the commit.
    lower: &'a Path,
    known: Vec<HashMap<Vec<u8>, LayerFolder>>,
}

impl<'a> LayersAbove<'a> {
    pub(crate) fn new(layers: &'a [PathBuf], lower: &'a Path) -> LayersAbove<'a> {
        LayersAbove { layers, lower, known: vec![HashMap::new(); layers.len()] }
    }

    /// Returns those of `paths` where the commit's file is not seen, or would not be if it had one. `None` if
    /// it may be seen at another path, because a folder above it was renamed.
    pub(crate) fn hidden<'p>(&mut self, paths: impl Iterator<Item = &'p [u8]>) -> Option<BTreeSet<&'p [u8]>> {
        let mut hidden = BTreeSet::new();
        for path in paths {
            for layer in 0..self.layers.len() {
                let above = path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at]);
                match above.map_or(LayerFolder::Open, |above| self.folder(layer, above)) {
                    LayerFolder::Missing => {}
                    LayerFolder::Moved => return None,
                    LayerFolder::Closed => {
                        hidden.insert(path);
                    }
                    LayerFolder::Open => {
                        if fs::symlink_metadata(self.layers[layer].join(OsStr::from_bytes(path))).is_ok() {
                            hidden.insert(path);
                        }
                    }
                }
            }
        }
        Some(hidden)
    }

    fn folder(&mut self, layer: usize, path: &[u8]) -> LayerFolder {
        if let Some(known) = self.known[layer].get(path) {
            return *known;
        }
        let above = path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at]);
        let above = above.map_or(LayerFolder::Open, |above| self.folder(layer, above));
        let found = if above == LayerFolder::Open { self.look(layer, path) } else { above };
        self.known[layer].insert(path.to_vec(), found);
        found
    }

    /// Looks at a folder of a layer. Those above it are open.
    fn look(&self, layer: usize, path: &[u8]) -> LayerFolder {
        let at = self.layers[layer].join(OsStr::from_bytes(path));
        let Ok(about) = fs::symlink_metadata(&at) else { return LayerFolder::Missing };
        if about.is_dir() && !was_renamed(&at) && !hides_below(&at) {
            return LayerFolder::Open;
        }
        // What hides a folder of the commit may stand where that was, and it be somewhere else.
        match fs::symlink_metadata(self.lower.join(OsStr::from_bytes(path))) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !was_renamed(&at) => LayerFolder::Closed,
            _ => LayerFolder::Moved,
        }
    }
}
