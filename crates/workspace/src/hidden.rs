//! Finds the files of a commit that files of the layers above cover.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::touched_scan::{hides_below, was_renamed};

/// The number of folders that weir searches for renamed ones.
const FOLDERS_MAX: usize = 10_000;

/// How a layer covers the commit's folder at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerFolder {
    /// The layer has no such folder, and covers nothing.
    Missing,
    /// The layer has the folder, and covers the files that it has in it.
    Open,
    /// The layer covers the whole folder.
    Closed,
    /// The user may have renamed the commit's folder: its files may appear at another path.
    Moved,
}

/// The layers above a commit.
pub(crate) struct LayersAbove<'a> {
    /// The folders of the layers.
    layers: &'a [PathBuf],
    /// The files of the commit.
    lower: &'a Path,
    known: Vec<HashMap<Vec<u8>, LayerFolder>>,
    /// Whether the user may have renamed a folder of the commit; `None` until weir has searched.
    has_moved: Option<bool>,
}

impl<'a> LayersAbove<'a> {
    pub(crate) fn new(layers: &'a [PathBuf], lower: &'a Path) -> LayersAbove<'a> {
        LayersAbove { layers, lower, known: vec![HashMap::new(); layers.len()], has_moved: None }
    }

    /// Returns those of `paths` at which a layer covers the commit's file, or would cover one. `None` if the
    /// file may appear at another path, because the user may have renamed a folder above it.
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
                        let at = self.layers[layer].join(OsStr::from_bytes(path));
                        match fs::symlink_metadata(at) {
                            Ok(_) => drop(hidden.insert(path)),
                            Err(e) if e.kind() == ErrorKind::NotFound => {}
                            Err(_) => return None,
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
    fn look(&mut self, layer: usize, path: &[u8]) -> LayerFolder {
        let at = self.layers[layer].join(OsStr::from_bytes(path));
        let about = match fs::symlink_metadata(&at) {
            Ok(about) => about,
            Err(e) if e.kind() == ErrorKind::NotFound => return LayerFolder::Missing,
            // weir cannot tell what a folder is that it cannot read.
            Err(_) => return LayerFolder::Moved,
        };
        if about.is_dir() && !was_renamed(&at) && !hides_below(&at) {
            return LayerFolder::Open;
        }
        // The user may have renamed the commit's folder, and put this in its place.
        if *self.has_moved.get_or_insert_with(|| has_moved(self.layers)) {
            let below = fs::symlink_metadata(self.lower.join(OsStr::from_bytes(path)));
            let is_new = below.is_err_and(|e| e.kind() == ErrorKind::NotFound);
            return if is_new && !was_renamed(&at) { LayerFolder::Closed } else { LayerFolder::Moved };
        }
        LayerFolder::Closed
    }
}

/// Returns whether the user renamed a folder in `layers`, or weir cannot tell: it cannot read one, or there
/// are too many.
fn has_moved(layers: &[PathBuf]) -> bool {
    let mut folders: Vec<PathBuf> = layers.to_vec();
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        looked_at += 1;
        if looked_at > FOLDERS_MAX || was_renamed(&folder) {
            return true;
        }
        // No commit has git's own folders.
        let is_git = |name: &OsStr| name == ".git" && layers.contains(&folder);
        let Ok(entries) = fs::read_dir(&folder) else { return true };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.filter(|entry| !is_git(&entry.file_name())).map(|entry| entry.path()));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_with_too_many_folders_may_have_renamed_ones() {
        let dir = weir_testing::folder();
        let layers = [dir.path().to_owned()];
        fs::create_dir_all(dir.path().join(".git/objects")).unwrap();
        (2..FOLDERS_MAX).for_each(|n| fs::create_dir(dir.path().join(n.to_string())).unwrap());
        fs::create_dir(dir.path().join("2/last")).unwrap();
        assert!(!has_moved(&layers), "git's own do not count");
        fs::create_dir(dir.path().join("2/more")).unwrap();
        assert!(has_moved(&layers));
        fs::remove_dir(dir.path().join("2/more")).unwrap();
        assert!(has_moved(&[dir.path().to_owned(), dir.path().join("none")]), "it cannot be read");
    }
}
