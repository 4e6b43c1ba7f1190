//! Remembers the names in the upper folders of a workspace from one scan to the next, so that a scan reads no
//! folder again that has not changed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that changed so shortly before it was looked at may change again at what the kernel takes for the
/// same time.
pub(crate) const RECENT: Duration = Duration::from_millis(50);
/// The number of names that a process remembers for a workspace. Beyond it, the process forgets all.
const NAMES_MAX: usize = 1 << 18;

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The marks of overlayfs that a folder has.
pub(crate) type FolderMarks = Arc<[Option<Vec<u8>>; 4]>;
/// The names of the entries of a folder.
pub(crate) type FolderNames = Arc<Vec<OsString>>;

/// The fields of stat(2) that change when a name in a folder, or a mark of the folder, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderStamp {
    device: u64,
    inode: u64,
    times: [i64; 4],
}

impl FolderStamp {
    fn of(about: &Metadata) -> FolderStamp {
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        FolderStamp { device: about.dev(), inode: about.ino(), times }
    }

    /// Returns whether the last change is so long ago that another one would give the folder other times.
    fn is_settled(&self) -> bool {
        let [_, _, seconds, nanoseconds] = self.times;
        let changed = Duration::new(seconds.max(0) as u64, nanoseconds as u32);
        now().checked_sub(changed).is_some_and(|since| since > RECENT)
    }
}

/// A folder that a scan has read.
#[derive(Debug)]
struct KnownFolder {
    stamp: FolderStamp,
    names: Option<FolderNames>,
    marks: Option<FolderMarks>,
}

/// The folders of a workspace that were read.
#[derive(Debug, Default)]
pub(crate) struct KnownFolders {
    folders: HashMap<PathBuf, KnownFolder>,
    /// Whether the commit has a folder at each of these paths. A commit never changes.
    lower: HashMap<PathBuf, bool>,
    names: usize,
}

impl KnownFolders {
    /// Returns the entry of the folder `at`, which stat(2) describes by `about`; `None` if the folder changed
    /// so lately that another change could leave its times as they are.
    fn known(&mut self, at: &Path, about: &Metadata) -> Option<&mut KnownFolder> {
        let stamp = FolderStamp::of(about);
        let is_known = self.folders.get(at).is_some_and(|known| known.stamp == stamp);
        if !is_known {
            if !stamp.is_settled() {
                return None;
            }
            self.make_room(1);
            self.folders.insert(at.to_owned(), KnownFolder { stamp, names: None, marks: None });
        }
        self.folders.get_mut(at)
    }

    /// Makes room for `count` more names.
    fn make_room(&mut self, count: usize) {
        self.names += count;
        if self.names > NAMES_MAX {
            *self = KnownFolders { names: count, ..KnownFolders::default() };
        }
    }

    /// Returns the names in the folder `at`, which stat(2) describes by `about`. Calls `read` unless they are
    /// known.
    pub(crate) fn names<E>(
        &mut self,
        at: &Path,
        about: &Metadata,
        read: impl FnOnce() -> Result<Vec<OsString>, E>,
    ) -> Result<FolderNames, E> {
        // What changes while it is read changes after this.
        let known = self.known(at, about);
        if let Some(KnownFolder { names: Some(names), .. }) = known {
            return Ok(Arc::clone(names));
        }
        let is_settled = known.is_some();
        let names = Arc::new(read()?);
        if is_settled {
            self.make_room(names.len());
            if let Some(known) = self.folders.get_mut(at) {
                known.names = Some(Arc::clone(&names));
            }
        }
        Ok(names)
    }

    /// Returns the marks of the folder `at`, as [`KnownFolders::names`] returns its names.
    pub(crate) fn marks(
        &mut self,
        at: &Path,
        about: &Metadata,
        read: impl FnOnce() -> [Option<Vec<u8>>; 4],
    ) -> FolderMarks {
        match self.known(at, about) {
            Some(known) => Arc::clone(known.marks.get_or_insert_with(|| Arc::new(read()))),
            None => Arc::new(read()),
        }
    }

    /// Returns whether `at` is a folder of the commit.
    pub(crate) fn is_lower(&mut self, at: &Path) -> bool {
        if let Some(is_folder) = self.lower.get(at) {
            return *is_folder;
        }
        // What cannot be read now may be read later.
        let Ok(about) = fs::symlink_metadata(at) else { return false };
        self.make_room(1);
        self.lower.insert(at.to_owned(), about.is_dir());
        about.is_dir()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_folder_is_read_again_when_it_has_changed() {
        let dir = weir_testing::folder();
        let (at, read) = (dir.path(), Cell::new(0));
        let mut known = KnownFolders::default();
        let mut names = || {
            let about = fs::symlink_metadata(at).unwrap();
            let names = known.names(at, &about, || {
                read.set(read.get() + 1);
                fs::read_dir(at)?.map(|entry| Ok::<_, std::io::Error>(entry?.file_name())).collect()
            });
            let mut names = names.unwrap().to_vec();
            names.sort();
            (names, read.get())
        };
        let settle = || std::thread::sleep(RECENT * 2);
        // What has changed just now may change again at the same time.
        fs::write(at.join("a"), b"").unwrap();
        assert_eq!((names().1, names().1), (1, 2));
        settle();
        assert_eq!((names().1, names()), (3, (vec!["a".into()], 3)));
        fs::write(at.join("b"), b"").unwrap();
        settle();
        assert_eq!((names(), names().1), ((vec!["a".into(), "b".into()], 4), 4));
        fs::rename(at.join("a"), at.join("c")).unwrap();
        assert_eq!(names(), (vec!["b".into(), "c".into()], 5));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let dir = weir_testing::folder();
        std::thread::sleep(RECENT * 2);
        let about = fs::symlink_metadata(dir.path()).unwrap();
        let mut known = KnownFolders::default();
        for n in 0..=NAMES_MAX {
            let read = || Ok::<_, ()>(vec![OsString::from("a")]);
            known.names(&PathBuf::from(n.to_string()), &about, read).unwrap();
            assert!(known.folders.len() <= known.names && known.names <= NAMES_MAX);
        }
        assert!(known.folders.len() < NAMES_MAX / 2);
    }
}
