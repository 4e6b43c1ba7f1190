//! A scan of the upper folders of a workspace: all that was written lies there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::known_folders::{FolderMarks, FolderNames, KnownFolders, RECENT, now};

/// Of a new folder with more files, as builds make them, only the folders in it are looked at from then on:
/// each answer names it, and git looks at those of its files that it tracks.
pub(crate) const LARGE_MIN: usize = 1000;
/// What stands for such a folder in place of a hash, and for a path at which nothing is.
pub(crate) const LARGE: u64 = 1;
pub(crate) const GONE: u64 = 0;
const _: () = assert!(GONE != LARGE, "marks differ");
/// How overlayfs marks a folder that was renamed, and one that hides the one below.
const MARKS: [&str; 4] =
    ["trusted.overlay.redirect", "user.overlay.redirect", "trusted.overlay.opaque", "user.overlay.opaque"];
const REDIRECTS: usize = 2;

/// A path that was touched.
pub(crate) struct TouchedPath {
    /// The number of the change that was seen last.
    pub(crate) seq: u64,
    /// A hash of what it was then, [`LARGE`] or [`GONE`].
    pub(crate) state: u64,
}

/// A working tree that git asks about, and the workspace whose git asks.
pub(crate) struct Asked<'a> {
    /// The folder of the workspace's records.
    pub(crate) place: &'a Path,
    /// The folder of the workspace.
    pub(crate) folder: &'a Path,
    /// The working tree.
    pub(crate) tree: &'a Path,
    /// The files of the workspace's commit.
    pub(crate) lower: &'a Path,
    /// The folders of what was written above it, the last at the end.
    pub(crate) layers: &'a [PathBuf],
}

/// A scan of what was written.
pub(crate) struct TouchedScan<'k> {
    /// The workspace as it is shown.
    tree: &'k Path,
    /// What was found before.
    known: &'k BTreeMap<Vec<u8>, TouchedPath>,
    /// The paths that were found, each with a hash of what is there.
    pub(crate) found: BTreeMap<Vec<u8>, u64>,
    /// Those of them that are folders.
    pub(crate) folders: BTreeSet<Vec<u8>>,
    /// The folders in large ones, each with a hash.
    pub(crate) in_large: BTreeMap<Vec<u8>, u64>,
    /// The names and marks that earlier scans read.
    remembered: &'k mut KnownFolders,
    /// In a new folder, how many files it may still have without being large.
    left: Option<usize>,
}

impl<'k> TouchedScan<'k> {
    pub(crate) fn of(
        asked: &Asked<'k>,
        known: &'k BTreeMap<Vec<u8>, TouchedPath>,
        remembered: &'k mut KnownFolders,
    ) -> Result<TouchedScan<'k>> {
        let (found, in_large) = (BTreeMap::new(), BTreeMap::new());
        let folders = BTreeSet::new();
        let mut scan =
            TouchedScan { tree: asked.folder, known, found, folders, in_large, remembered, left: None };
        for layer in asked.layers {
            // What was about to be frozen for a fork may be somewhere else by now.
            if let Ok(about) = fs::symlink_metadata(layer) {
                scan.folder(layer, &about, Some(asked.lower), &mut Vec::new())?;
            }
        }
        Ok(scan)
    }

    /// Adds all that lies in the upper folder `at`, which is called `path` in the workspace; of folders only
    /// those that the commit does not have. `lower` is the commit's folder of that name, if it is seen
    /// through this one. Ends early in a folder that turns out to be large.
    fn folder(
        &mut self,
        at: &Path,
        about: &Metadata,
        lower: Option<&Path>,
        path: &mut Vec<u8>,
    ) -> Result<()> {
        let names = match self.names(at, about) {
            // It was deleted meanwhile, and the next question finds it gone; or it is a folder of an older
            // layer of a fork, and a file of a newer one is shown in its place.
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
            {
                return Ok(());
            }
            names => names.map_err(Error::on(at))?,
        };
        let len = path.len();
        for name in names.iter() {
            // git's own files are not asked about.
            if len == 0 && name == ".git" {
                continue;
            }
            if let Some(left) = &mut self.left {
                let Some(less) = left.checked_sub(1) else { return Ok(()) };
                *left = less;
            }
            let file = at.join(name);
            let Ok(about) = fs::symlink_metadata(&file) else { continue };
            path.extend_from_slice(name.as_bytes());
            if about.is_dir() {
                self.folder_in(&file, &about, lower.map(|lower| lower.join(name)), path)?;
            } else {
                self.folders.remove(path.as_slice());
                self.found.insert(path.clone(), state(&about, &[]));
            }
            path.truncate(len);
        }
        Ok(())
    }

    /// Adds the folder `at`, and what is in it. `lower` is the commit's folder of that name, if there is one
    /// that may be seen through this one.
    fn folder_in(
        &mut self,
        at: &Path,
        about: &Metadata,
        lower: Option<PathBuf>,
        path: &mut Vec<u8>,
    ) -> Result<()> {
        let marks = self.marks(at, about);
        let is_marked = marks.iter().any(Option::is_some);
        let below = lower.filter(|_| !is_marked);
        let below = below.filter(|below| self.remembered.is_lower(below));
        if below.is_some() {
            path.push(b'/');
            return self.folder(at, about, below.as_deref(), path);
        }
        // Files of the commit in a renamed folder lie in no upper folder: the mount shows them.
        let is_renamed = marks[..REDIRECTS].iter().any(Option::is_some);
        let shown = is_renamed.then(|| self.tree.join(OsStr::from_bytes(path)));
        let at = shown.as_deref().unwrap_or(at);
        // git looks for untracked files in a folder that it does not know only if it is named itself.
        let name = path.clone();
        self.folders.insert(name.clone());
        let is_top = self.left.is_none();
        if is_top && self.known.get(&name).is_some_and(|known| known.state == LARGE) {
            self.large(at, &name);
            return Ok(());
        }
        self.found.insert(name.clone(), state(about, &marks[..]));
        if is_top {
            self.left = Some(LARGE_MIN);
        }
        path.push(b'/');
        self.folder(at, about, None, path)?;
        if is_top && self.left.take() == Some(0) {
            let below = [name.as_slice(), b"/"].concat();
            self.found.retain(|path, _| !path.starts_with(&below));
            self.folders.retain(|path| !path.starts_with(&below));
            path.truncate(name.len());
            self.large(at, &name);
        }
        Ok(())
    }

    /// Returns whether `at` lies in an upper folder, and is not what the mount shows.
    fn is_upper(&self, at: &Path) -> bool {
        !at.starts_with(self.tree)
    }

    fn names(&mut self, at: &Path, about: &Metadata) -> std::io::Result<FolderNames> {
        let read = || fs::read_dir(at)?.map(|entry| Ok(entry?.file_name())).collect();
        match self.is_upper(at) {
            true => self.remembered.names(at, about, read),
            false => read().map(Arc::new),
        }
    }

    fn marks(&mut self, at: &Path, about: &Metadata) -> FolderMarks {
        let read = || MARKS.map(|mark| xattr(at, mark));
        match self.is_upper(at) {
            true => self.remembered.marks(at, about, read),
            false => Arc::new(read()),
        }
    }

    /// Adds the large folder `at`, which is called `name` in the workspace, and the folders in it. A folder
    /// that has not changed since the last scan is not read again.
    fn large(&mut self, at: &Path, name: &[u8]) {
        let below = [name, b"/"].concat();
        let place = |path: &[u8]| at.join(OsStr::from_bytes(&path[below.len()..]));
        let is_known = |path: &Vec<u8>| self.known.get(path).is_some_and(|known| known.state != GONE);
        let mut new: Vec<Vec<u8>> = folders_in(at, name).into_iter().filter(|path| !is_known(path)).collect();
        for (path, known) in
            self.known.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below))
        {
            let now = folder_state(&place(path)).filter(|_| known.state != GONE);
            let Some(now) = now else { continue };
            if now != known.state {
                new.extend(folders_in(&place(path), path).into_iter().filter(|path| !is_known(path)));
            }
            self.in_large.insert(path.clone(), now);
        }
        while let Some(path) = new.pop() {
            // It may be deleted meanwhile.
            if let Some(now) = folder_state(&place(&path)) {
                new.extend(folders_in(&place(&path), &path));
                self.in_large.insert(path, now);
            }
        }
        self.found.insert(name.to_vec(), LARGE);
    }
}

/// Returns a hash of what the folder `at` is, if it is one.
fn folder_state(at: &Path) -> Option<u64> {
    let about = fs::symlink_metadata(at).ok().filter(Metadata::is_dir)?;
    Some(state(&about, &[]))
}

/// Returns the folders in the folder `at`, which is called `path`: none if it cannot be read, as git sees it.
fn folders_in(at: &Path, path: &[u8]) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(at).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| [path, b"/", entry.file_name().as_bytes()].concat()).collect()
}

/// Returns a hash of what a file is.
fn state(about: &Metadata, marks: &[Option<Vec<u8>>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (about.ino(), about.ctime(), about.ctime_nsec(), about.mtime(), about.mtime_nsec()).hash(&mut hasher);
    (about.size(), about.mode(), about.file_type().is_char_device(), marks).hash(&mut hasher);
    let changed = Duration::new(about.ctime().max(0) as u64, about.ctime_nsec() as u32);
    let now = now();
    // The next question finds another state.
    if now.saturating_sub(changed) < RECENT {
        now.hash(&mut hasher);
    }
    hasher.finish().max(LARGE + 1)
}

/// Returns whether overlayfs notes of the upper folder `at` that it was renamed.
pub(crate) fn was_renamed(at: &Path) -> bool {
    MARKS[..REDIRECTS].iter().any(|mark| xattr(at, mark).is_some())
}

/// Returns whether nothing of the layers below is seen through the upper folder `at`.
pub(crate) fn hides_below(at: &Path) -> bool {
    MARKS[REDIRECTS..].iter().any(|mark| xattr(at, mark).is_some())
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 512];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    Some(value[..len].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes files and folders at random: a scan that remembers finds the same as one that does not.
    #[test]
    fn what_is_remembered_is_what_is_there() {
        let dir = weir_testing::folder();
        let (upper, lower, tree) =
            (dir.path().join("upper"), dir.path().join("lower"), dir.path().join("tree"));
        for folder in ["a", "a/b", "c"] {
            fs::create_dir_all(lower.join(folder)).unwrap();
        }
        fs::create_dir(&upper).unwrap();
        let (nothing, layers) = (BTreeMap::new(), [upper.clone()]);
        let asked = Asked { place: dir.path(), folder: &tree, tree: &tree, lower: &lower, layers: &layers };
        let mut remembered = KnownFolders::default();
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let folders = ["", "a", "a/b", "a/new", "c", "c/x", "c/x/y"];
        for n in 0..400 {
            let folder = upper.join(folders[random(7) as usize]);
            let (file, other) = (folder.join(random(3).to_string()), upper.join(random(3).to_string()));
            // What cannot be done is not.
            let _ = match random(6) {
                0 => fs::create_dir_all(&folder),
                1 => fs::write(&file, n.to_string()),
                2 => fs::remove_file(&file),
                3 => fs::rename(&file, &other),
                4 if folder != upper => fs::remove_dir_all(&folder),
                _ => fs::write(&other, "x").and_then(|()| fs::remove_file(&other)),
            };
            // Folders are remembered only when they are settled.
            if n % 40 == 0 {
                std::thread::sleep(RECENT * 2);
            }
            let scan = |remembered: &mut KnownFolders| {
                let scan = TouchedScan::of(&asked, &nothing, remembered).unwrap();
                (scan.found.into_keys().collect::<Vec<_>>(), scan.folders)
            };
            assert_eq!(scan(&mut remembered), scan(&mut KnownFolders::default()), "{n}");
        }
    }
}
