//! Switches a working tree to another commit as `git checkout` does: checks that nothing is lost, writes what
//! differs, and the index.
//!
//! Files that differ get the time at which they are written, and others keep theirs: a build tool that
//! compares times sees what has changed, whichever commit is older.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timestamps, utimensat};
use weir_git::{HashKind, Kind, Oid};
use weir_ground::thread::spawn_scoped;
use weir_repo::ObjectReader;
use weir_worktree::{
    CacheEntry, EntryStat, IndexChanges, IndexExtensions, IndexReader, IndexWriter, LINK, MODE, MODIFIED,
    SIZE, SUBMODULE, TreeFile, populate, stat_of,
};

use crate::error::{Error, Result};
use crate::file_times::{FileTime, FileTimes};
use crate::folders_above::{Above, FoldersAbove};
use crate::index::LowerFiles;
use crate::index_lock::{IndexLock, in_use};
use crate::known_files::{KnownFile, KnownFiles, refused};
use crate::status::heeds_modes;
use crate::tree::{PATH_HASH_START, PathHasher, path_hash};
use crate::tree_changes::{TreeChange, TreeChanges, tree_changes};

/// Files of git that say that it is in the middle of something, and how that is ended.
const UNFINISHED: [(&str, &str, &str); 6] = [
    ("MERGE_HEAD", "merge", "--abort"),
    ("CHERRY_PICK_HEAD", "cherry-pick", "--abort"),
    ("REVERT_HEAD", "revert", "--abort"),
    ("rebase-merge", "rebase", "--abort"),
    ("rebase-apply", "rebase", "--abort"),
    ("BISECT_LOG", "bisect", "reset"),
];

/// A switch of a working tree.
#[derive(Clone, Copy)]
pub(crate) struct TreeSwitch<'a> {
    /// The folder of the working tree.
    pub(crate) folder: &'a Path,
    /// The hash of its objects.
    pub(crate) hash: HashKind,
    /// The commit that HEAD is at, and the one that it will be.
    pub(crate) commits: [Oid; 2],
    /// The branch that HEAD will be on.
    pub(crate) asked: Option<&'a str>,
    /// Their trees.
    pub(crate) trees: [Oid; 2],
    /// The entries that an index has for files of the view.
    pub(crate) lower: LowerFiles<'a>,
    /// The token since which git is to ask what has changed.
    pub(crate) token: &'a str,
}

/// A switch that has the index locked.
pub(crate) struct BegunSwitch {
    pub(crate) lock: IndexLock,
    /// What differs.
    pub(crate) changes: TreeChanges,
    /// The index before the switch, and when it was written.
    index: Vec<u8>,
    index_time: FileTime,
    /// Whether it was begun before, and ended half way.
    pub(crate) resumes: bool,
}

impl BegunSwitch {
    /// Returns the time that files get which have to be newer than all others.
    pub(crate) fn time(&self) -> FileTime {
        self.lock.time.next()
    }

    /// Returns the times that files have below what was written, after the switch, if they are `times` now.
    /// A folder with a file that differs has another time, too, as if that had been written.
    pub(crate) fn times_after(&self, times: &FileTimes) -> FileTimes {
        let files = self.changes.files.iter().filter(|change| change.new.is_some());
        let files = files.map(|change| change.path.as_slice());
        let folders = self.changes.folders.keys().map(|path| path.strip_suffix(b"/").unwrap_or(path));
        times.after(self.time(), files.chain(folders).map(|path| path_hash(PATH_HASH_START, path)))
    }
}

/// The numbers of new files in an index, by their paths.
type NewStats<'c> = BTreeMap<&'c [u8], EntryStat>;

/// The entries of the index after a switch, and the extensions of the one before.
struct IndexDraft<'i> {
    entries: IndexWriter,
    extensions: IndexExtensions<'i>,
}

impl TreeSwitch<'_> {
    fn git_dir(&self) -> PathBuf {
        self.folder.join(".git")
    }

    /// Returns whether the same switch was begun before, and ended half way.
    ///
    /// # Errors
    /// If another one was, from the commit at which HEAD still is.
    fn resumes(&self) -> Result<bool> {
        let path = begun_path(&self.git_dir());
        let text = fs::read_to_string(&path).unwrap_or_default();
        let [from, to] = self.commits.map(|commit| commit.to_string());
        let Some((_, other)) = text.split_once(' ').filter(|(begun, _)| *begun == from) else {
            return Ok(false);
        };
        let (other, branch) = other.split_once(' ').unwrap_or((other, other));
        if other == to {
            return Ok(true);
        }
        Err(Error::Unfinished { folder: self.folder.to_owned(), other: branch.to_owned(), note: path })
    }

    /// Locks the index, and finds what differs.
    ///
    /// # Errors
    /// If git is in the middle of something, or another one writes the index.
    pub(crate) fn begin(&self, reader: &mut ObjectReader<'_>) -> Result<BegunSwitch> {
        let git_dir = self.git_dir();
        for (file, what, end) in UNFINISHED {
            if git_dir.join(file).exists() {
                return Err(Error::Odd(format!("a {what} is not finished; 'git {what} {end}' ends it")));
            }
        }
        // git would refuse to move HEAD when weir has written the files.
        let head_lock = git_dir.join("HEAD.lock");
        if head_lock.exists() {
            return Err(in_use(&head_lock));
        }
        let resumes = self.resumes()?;
        let lock = IndexLock::take(&git_dir)?;
        // What a switch left that ended half way.
        let _ = fs::remove_file(git_dir.join("switch.new"));
        let path = &git_dir.join("index");
        let read = || {
            let mut file = File::open(path)?;
            let about = file.metadata()?;
            let mut index = Vec::new();
            index.try_reserve_exact(usize::try_from(about.len()).map_err(io::Error::other)?)?;
            populate(index.spare_capacity_mut());
            file.read_to_end(&mut index)?;
            Ok((index, FileTime::modified(&about)))
        };
        let (changes, read) = std::thread::scope(|scope| {
            let reading = spawn_scoped("read", scope, read);
            let changes = tree_changes(reader, &self.trees[0], &self.trees[1]);
            (changes, reading.map(|reading| reading.join().unwrap_or_else(|panic| resume_unwind(panic))))
        });
        let (changes, (index, index_time)) = (changes?, read.flatten().map_err(Error::on(path))?);
        Ok(BegunSwitch { lock, changes, index, index_time, resumes })
    }

    /// Checks that nothing is lost: each file that differs is as the index has it, the index as the commit,
    /// and nothing is where a new file comes. The caller knows the former of files that are `untouched`, and
    /// has the `known` entries from [`TreeSwitch::known`].
    ///
    /// # Errors
    /// With what would be lost. Nothing has changed then.
    pub(crate) fn check(
        &self,
        switch: &BegunSwitch,
        known: &[KnownFile],
        untouched: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.check_files(switch, known, untouched)?;
        let path = begun_path(&self.git_dir());
        let [from, to] = self.commits;
        let branch = self.asked.map(|branch| format!(" {branch}")).unwrap_or_default();
        fs::write(&path, format!("{from} {to}{branch}")).map_err(Error::on(&path))
    }

    /// Writes the files at the paths for which `is_written` returns true. The others are below already.
    /// Returns the new index.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn write_files(
        &self,
        switch: &BegunSwitch,
        reader: &mut ObjectReader<'_>,
        is_written: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>> {
        self.remove(switch.changes.files.iter().filter(|change| is_written(&change.path)))?;
        let stats = self.write_new(switch, reader, is_written)?;
        let draft = self.draft(switch, &stats, |_, _| {})?;
        self.finish_index(switch, draft)
    }

    /// Returns the index after a switch of which all files are below already. Calls `tell` with what the
    /// index said before of the files that differ, as [`TreeSwitch::known`] returns it.
    ///
    /// # Errors
    /// If weir cannot read the index, or an object.
    pub(crate) fn index_of_view(
        &self,
        switch: &BegunSwitch,
        reader: &mut ObjectReader<'_>,
        tell: impl FnOnce(Result<Vec<KnownFile>>),
    ) -> Result<Vec<u8>> {
        let stats = self.write_new(switch, reader, |_| false)?;
        let mut known = KnownFiles::new(&switch.changes.files);
        let draft = self.draft(switch, &stats, |path, entry| known.look(path, entry))?;
        tell(known.finish());
        self.finish_index(switch, draft)
    }

    /// Writes the new files at the paths for which `is_written` returns true. Returns what the index says of
    /// all new ones.
    fn write_new<'c>(
        &self,
        switch: &'c BegunSwitch,
        reader: &mut ObjectReader<'_>,
        is_written: impl Fn(&[u8]) -> bool,
    ) -> Result<NewStats<'c>> {
        let mut stats = BTreeMap::new();
        for change in &switch.changes.files {
            let Some(new) = change.new else { continue };
            let stat = match is_written(&change.path) {
                true => self.write_file(reader, &change.path, new, switch.lock.time)?,
                false => self.lower.stat(&change.path, new.mode, size_of(reader, new)?),
            };
            stats.insert(&*change.path, stat);
        }
        Ok(stats)
    }

    /// Returns what the index says of the files that differ.
    ///
    /// # Errors
    /// If an entry forbids the switch, or weir cannot read the index.
    pub(crate) fn known(&self, switch: &BegunSwitch) -> Result<Vec<KnownFile>> {
        let mut entries = IndexReader::new(self.hash, &switch.index)?;
        let mut known = KnownFiles::new(&switch.changes.files);
        while let Some(entry) = entries.next_entry()? {
            known.look(&entries.path, &entry);
        }
        // It refuses what is split or sparse.
        entries.extensions()?;
        known.finish()
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        self.folder.join(OsStr::from_bytes(path))
    }

    /// Returns what is at `path`, if anything.
    fn about(&self, path: &[u8]) -> Result<Option<Metadata>> {
        let at = self.at(path);
        match fs::symlink_metadata(&at) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            about => about.map(Some).map_err(Error::on(&at)),
        }
    }

    /// Does the work of [`TreeSwitch::check`]. If the switch was begun before, files and the index may be the
    /// new ones already.
    fn check_files(
        &self,
        switch: &BegunSwitch,
        known: &[KnownFile],
        untouched: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let &BegunSwitch { ref changes, index_time, resumes, .. } = switch;
        let changes = &changes.files;
        let removed: BTreeSet<&[u8]> =
            changes.iter().filter(|c| c.old.is_some()).map(|c| c.path.as_slice()).collect();
        let mut above = FoldersAbove::new(self.folder);
        let (mut staged, mut changed, mut in_way) = (Vec::new(), Vec::new(), Vec::new());
        let mut full = Vec::new();
        for (change, known) in changes.iter().zip(known) {
            let is_as_in = |tree: Option<TreeFile>| match (tree, &known.entry) {
                (None, None) => true,
                (Some(file), Some(entry)) => file.oid == entry.oid && file.mode == entry.stat[MODE],
                _ => false,
            };
            if !(is_as_in(change.old) || resumes && is_as_in(change.new)) {
                staged.push(change.path.as_slice());
                continue;
            }
            if untouched(&change.path) {
                continue;
            }
            let state = above.of(&change.path, &removed);
            let about = match state {
                Above::Folders => self.about(&change.path)?,
                Above::Missing => None,
                // It was removed already, and a file is in the place of a folder.
                Above::File if resumes && change.new.is_none() => continue,
                Above::File => {
                    let list = if known.entry.is_some() { &mut changed } else { &mut in_way };
                    list.push(change.path.as_slice());
                    continue;
                }
            };
            match (&known.entry, about) {
                // What was deleted may be deleted, or written again.
                (_, None) => {}
                // A folder of the new commit is in its place already.
                (_, Some(about)) if resumes && change.new.is_none() && about.is_dir() => {}
                // Its files are those of another repository, which may have them alone.
                (Some(entry), Some(about))
                    if entry.stat[MODE] == SUBMODULE
                        && change.new.is_some_and(|new| new.mode != SUBMODULE)
                        && about.is_dir()
                        && !is_empty(&self.at(&change.path)) =>
                {
                    full.push(change.path.as_slice());
                }
                (Some(entry), Some(about)) => {
                    let is_clean = self.is_clean(&change.path, entry, &about, index_time)?;
                    let is_new = !is_clean && resumes && self.is_switched(change, &about)?;
                    if !is_clean && !is_new {
                        changed.push(change.path.as_slice());
                    }
                }
                (None, Some(about)) => {
                    let goes = about.is_dir()
                        && (self.is_repository_of(change)? || self.goes(&self.at(&change.path), &removed)?);
                    let is_new = !goes && resumes && self.is_switched(change, &about)?;
                    if !goes && !is_new {
                        in_way.push(change.path.as_slice());
                    }
                }
            }
        }
        for (what, paths) in [
            ("there are staged changes in", staged),
            ("there are changes in", changed),
            ("git does not track", in_way),
            ("there are files of the submodule", full),
        ] {
            if !paths.is_empty() {
                return Err(refused(what, &paths));
            }
        }
        Ok(())
    }

    /// Returns whether the new tree has a submodule where a repository is.
    fn is_repository_of(&self, change: &TreeChange) -> Result<bool> {
        let git_dir = [&change.path, &b"/.git"[..]].concat();
        Ok(change.new.is_some_and(|new| new.mode == SUBMODULE) && self.about(&git_dir)?.is_some())
    }

    /// Returns whether all files in `folder` are among those that the switch removes.
    fn goes(&self, folder: &Path, removed: &BTreeSet<&[u8]>) -> Result<bool> {
        for entry in fs::read_dir(folder).map_err(Error::on(folder))? {
            let path = entry.map_err(Error::on(folder))?.path();
            let goes = match fs::symlink_metadata(&path).map_err(Error::on(&path))?.is_dir() {
                true => self.goes(&path, removed)?,
                false => {
                    let name = path.strip_prefix(self.folder).unwrap_or(&path);
                    removed.contains(name.as_os_str().as_bytes())
                }
            };
            if !goes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the file at `path` is what the index says.
    fn is_clean(
        &self,
        path: &[u8],
        entry: &CacheEntry,
        about: &Metadata,
        index_time: FileTime,
    ) -> Result<bool> {
        let file = TreeFile { mode: entry.stat[MODE], oid: entry.oid };
        if file.mode == SUBMODULE {
            return Ok(about.is_dir());
        }
        let has_other_mode = || !heeds_modes(&self.git_dir()) && file.is_kind_of(about, false);
        if !file.is_kind_of(about, true) && !has_other_mode() {
            return Ok(false);
        }
        let is_known = |n: &usize| ![4, 7, 8].contains(n);
        let stat = stat_of(about, file.mode);
        let is_equal = (0..stat.len()).filter(is_known).all(|n| stat[n] == entry.stat[n]);
        // It may have changed at the same time without a trace.
        if is_equal && FileTime::modified(about) < index_time {
            return Ok(true);
        }
        Ok(file.is_content_of(self.hash, &self.at(path))?)
    }

    /// Returns whether the file of a change is the new one already.
    fn is_switched(&self, change: &TreeChange, about: &Metadata) -> Result<bool> {
        match change.new {
            Some(new) if new.mode != SUBMODULE && new.is_kind_of(about, true) => {
                Ok(new.is_content_of(self.hash, &self.at(&change.path))?)
            }
            _ => Ok(false),
        }
    }

    /// Removes the files that the new tree does not have, or has as another kind, and folders that are empty
    /// then.
    fn remove<'c>(&self, changes: impl Iterator<Item = &'c TreeChange>) -> Result<()> {
        let mut above = FoldersAbove::new(self.folder);
        let mut folders = BTreeSet::new();
        for change in changes.filter(|change| change.new.is_none()) {
            if above.of(&change.path, &BTreeSet::new()) != Above::Folders {
                continue;
            }
            let path = self.at(&change.path);
            let removed = match change.old {
                // What is in it stays, as git leaves it.
                Some(TreeFile { mode: SUBMODULE, .. }) => fs::remove_dir(&path).or(Ok(())),
                _ => fs::remove_file(&path),
            };
            match removed {
                // A folder is there if the switch ended half way before.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {}
                removed => removed.map_err(Error::on(&path))?,
            }
            let mut len = change.path.len();
            while let Some(at) = change.path[..len].iter().rposition(|byte| *byte == b'/') {
                folders.insert(&change.path[..at]);
                len = at;
            }
        }
        // The deepest first. One that is not empty stays.
        for folder in folders.into_iter().rev() {
            let _ = fs::remove_dir(self.at(folder));
        }
        Ok(())
    }

    /// Writes a file of the new tree, the time of which is later than `began`. Returns what the index says of
    /// it.
    fn write_file(
        &self,
        reader: &mut ObjectReader<'_>,
        path: &[u8],
        file: TreeFile,
        began: FileTime,
    ) -> Result<EntryStat> {
        let at = self.at(path);
        let failed = Error::on(&at);
        if let Some(above) = at.parent()
            && !above.is_dir()
        {
            fs::create_dir_all(above).map_err(&failed)?;
        }
        if file.mode == SUBMODULE {
            if fs::symlink_metadata(&at).is_ok_and(|about| !about.is_dir()) {
                fs::remove_file(&at).map_err(&failed)?;
            }
            fs::create_dir_all(&at).map_err(&failed)?;
            return Ok(stat_of(&fs::symlink_metadata(&at).map_err(&failed)?, file.mode));
        }
        let object = reader.require(&file.oid)?;
        if object.kind != Kind::Blob {
            return Err(Error::NotAFile);
        }
        // What others have open, or is a program that runs, stays as it is. A new file takes overlayfs longer
        // where it hid one than a renamed one does.
        let new = self.git_dir().join("switch.new");
        if file.mode == LINK {
            symlink(OsStr::from_bytes(&object.data), &new).map_err(Error::on(&new))?;
        } else {
            let mode = if file.mode & 0o100 != 0 { 0o777 } else { 0o666 };
            let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new);
            created.and_then(|mut file| file.write_all(&object.data)).map_err(Error::on(&new))?;
        }
        match fs::rename(&new, &at) {
            // A submodule that is not there any more, or a folder with empty ones, which hold nothing.
            Err(e) if e.kind() == ErrorKind::IsADirectory => {
                remove_empty(&at).and_then(|()| fs::rename(&new, &at)).map_err(&failed)?;
            }
            renamed => renamed.map_err(&failed)?,
        }
        let about = fs::symlink_metadata(&at).map_err(&failed)?;
        if FileTime::modified(&about) > began {
            return Ok(stat_of(&about, file.mode));
        }
        // What was built right before has the same time: the clock of files ticks a few hundred times a
        // second.
        let later = began.next().as_timespec();
        let times = Timestamps { last_access: later, last_modification: later };
        utimensat(CWD, &at, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| failed(e.into()))?;
        Ok(stat_of(&fs::symlink_metadata(&at).map_err(&failed)?, file.mode))
    }

    /// Returns the entries of the index after the switch. `stats` is what it says of the new files. Calls
    /// `look` with each entry before.
    fn draft<'s>(
        &self,
        switch: &'s BegunSwitch,
        stats: &NewStats<'_>,
        mut look: impl FnMut(&[u8], &CacheEntry),
    ) -> Result<IndexDraft<'s>> {
        let BegunSwitch { changes, index, index_time, .. } = switch;
        let mut entries = IndexReader::new(self.hash, index)?;
        let mut writer = IndexWriter::new(self.hash, entries.form());
        writer.reserve_bytes(index.len() + index.len() / 16);
        let mut left = changes.files.iter().peekable();
        // What is as it is in the lower layer is not looked at, unless it is among what was touched.
        let is_lower = |path: u32, entry: &CacheEntry| {
            entry.stat == self.lower.stat_of(path, entry.stat[MODE], u64::from(entry.stat[SIZE]))
        };
        let mut hasher = PathHasher::new();
        let add = |writer: &mut IndexWriter, change: &TreeChange| match (change.new, stats.get(&*change.path))
        {
            (Some(new), Some(stat)) => {
                let entry = CacheEntry::new(*stat, new.oid);
                writer.push(&change.path, &entry, !is_lower(path_hash(PATH_HASH_START, &change.path), &entry))
            }
            _ => Ok(()),
        };
        while let Some(entry) = entries.next_entry()? {
            look(&entries.path, &entry);
            while let Some(change) = left.next_if(|change| change.path < entries.path) {
                add(&mut writer, change)?;
            }
            if let Some(change) = left.next_if(|change| change.path == entries.path) {
                add(&mut writer, change)?;
                continue;
            }
            match is_lower(hasher.hash(&entries.path), &entry) {
                true => writer.copy(&entries, &entry, false)?,
                false => writer.push(&entries.path, &without_race(entry, *index_time), true)?,
            }
        }
        left.try_for_each(|change| add(&mut writer, change))?;
        // It refuses what is split or sparse.
        Ok(IndexDraft { entries: writer, extensions: entries.extensions()? })
    }

    /// Returns the index with the entries of `draft`.
    fn finish_index(&self, switch: &BegunSwitch, draft: IndexDraft<'_>) -> Result<Vec<u8>> {
        let (hash, changes) = (self.hash, &switch.changes);
        let IndexDraft { entries, extensions } = draft;
        let more = |change: &TreeChange| i64::from(change.new.is_some()) - i64::from(change.old.is_some());
        let files: Vec<(&[u8], i64)> =
            changes.files.iter().map(|change| (change.path.as_slice(), more(change))).collect();
        let changes = IndexChanges { files: &files, folders: &changes.folders };
        let trees = extensions.trees.filter(|trees| !trees.is_empty());
        let trees = trees.map_or(Ok(Vec::new()), |trees| changes.apply(hash, trees))?;
        // The monitor will name all that was written.
        Ok(entries.finish(&trees, extensions.untracked, Some(self.token))?)
    }
}

/// Returns the file that says between which commits the files are being switched, until HEAD is moved.
pub(crate) fn begun_path(git_dir: &Path) -> PathBuf {
    git_dir.join("switch.begun")
}

/// Returns whether nothing but folders is in a folder.
fn is_empty(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .into_iter()
        .all(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_empty(&entry.path()))
}

/// Removes a folder that has nothing but folders of this kind.
fn remove_empty(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// Returns an entry of an index that was written at `index_time`, for one that is written later. Within one
/// second git sees no change of a file that keeps its size, and compares contents if the index is not newer
/// (racy-git). A size of 0 has the same effect.
fn without_race(mut entry: CacheEntry, index_time: FileTime) -> CacheEntry {
    if entry.stat[MODIFIED] >= index_time.seconds as u32 {
        entry.stat[SIZE] = 0;
    }
    entry
}

/// Returns the size in bytes of a file of a tree.
fn size_of(reader: &mut ObjectReader<'_>, file: TreeFile) -> Result<u64> {
    if file.mode == SUBMODULE {
        return Ok(0);
    }
    match reader.kind_and_size(&file.oid)?.ok_or(weir_repo::Error::Missing(file.oid))? {
        (Kind::Blob, size) => Ok(size),
        _ => Err(Error::NotAFile),
    }
}
