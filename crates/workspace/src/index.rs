//! The index of a commit's files (gitformat-index, version 4), made without looking at a work tree: what git
//! would write after a checkout, since the times and sizes of a view are known.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::unistd::{Gid, Uid};
use weir_git::{Kind, Oid, TreeEntry, TreeIter};
use weir_ground::thread::spawn_scoped;
use weir_repo::{CommitTrees, ObjectReader, Repo};
use weir_worktree::{
    Buffers, CacheEntry, DEPTH_MAX, EntryStat, FolderStat, IndexOutput, IndexWriter, PathForm, SUBMODULE,
    UntrackedFolders, asks_to_convert, cached_tree, index_mode, is_name, write_index,
};

use crate::error::{Error, Result};
use crate::file_times::FileTimes;
use crate::tree::{PATH_HASH_START, path_hash};

/// Up to this number of files, weir writes an index with whole paths, which every program reads; beyond it,
/// version 4, which is smaller, and which git and libgit2 read.
const WHOLE_PATHS_MAX: u32 = 100_000;
/// Threads that write the index of one commit at most.
const THREADS_MAX: usize = 8;
/// So many folders are enough for the threads to share.
const SHARED_FOLDERS: usize = 64;
/// How deep the folders are at most that the threads share.
const SHARED_DEPTH_MAX: usize = 8;

/// Writes the index of a commit, or of a folder in it.
struct CommitIndexWriter<'r> {
    commit: CommitFiles<'r>,
    reader: ObjectReader<'r>,
    index: IndexWriter,
    /// The first file of attributes by which git would check out other bytes than are stored.
    converts: Option<Vec<u8>>,
    /// The folders that other threads write.
    shared: SharedFolders,
    /// The file that the index is written to while it is made.
    output: Option<IndexOutput>,
}

/// The files that an index is written of.
#[derive(Clone, Copy)]
struct CommitFiles<'r> {
    repo: &'r Repo,
    /// The trees and sizes, if the objects are on another machine.
    listed: Option<&'r CommitTrees>,
    stats: LowerFiles<'r>,
}

/// A folder of a commit.
struct CommitFolder {
    oid: Oid,
    name: Vec<u8>,
    /// Its path, with a slash at its end.
    path: Vec<u8>,
    depth: usize,
}

/// A folder that a thread has written.
struct WrittenFolder {
    entries: IndexWriter,
    parts: FolderParts,
    converts: Option<Vec<u8>>,
}

/// A folder that a thread has written, and its path.
type SentFolder = Result<(Vec<u8>, WrittenFolder)>;

/// Folders that other threads write, while one thread puts them together.
#[derive(Default)]
struct SharedFolders {
    /// The paths of the folders that are not in the index yet.
    paths: HashSet<Vec<u8>>,
    /// The folders that a thread has sent before their turn.
    written: HashMap<Vec<u8>, WrittenFolder>,
    coming: Option<Receiver<SentFolder>>,
}

impl SharedFolders {
    /// Returns the folder at `path` when it is written; `None` if no thread writes it.
    fn take(&mut self, path: &[u8]) -> Result<Option<WrittenFolder>> {
        if !self.paths.remove(path) {
            return Ok(None);
        }
        while !self.written.contains_key(path)
            && let Some(next) = self.coming.as_ref().and_then(|coming| coming.recv().ok())
        {
            let (path, folder) = next?;
            self.written.insert(path, folder);
        }
        Ok(self.written.remove(path))
    }
}

/// The bytes of a tree.
enum TreeData<'r> {
    Listed(&'r [u8]),
    Read(Rc<Vec<u8>>),
}

impl Deref for TreeData<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            TreeData::Listed(data) => data,
            TreeData::Read(data) => data,
        }
    }
}

/// The workspace that an index is written for, and what git will compare with it.
pub(crate) struct WantedIndex<'a> {
    /// The folder of the workspace.
    pub(crate) folder: &'a Path,
    /// The token as of which no file has changed (fsmonitor).
    pub(crate) token: &'a str,
    /// The content of the user's file of ignored names.
    pub(crate) ignores: Option<&'a [u8]>,
}

/// A folder's parts of extensions, with those below it.
struct FolderParts {
    /// The part of the extension "TREE".
    trees: Vec<u8>,
    /// The part of the extension "UNTR".
    untracked: UntrackedFolders,
}

/// Writes the index of the files below the tree `top`, all of which have the time `time`, in seconds since
/// 1970, to the file at `path`. The trees may be `listed`. Returns the first file of attributes by which git
/// would check out other bytes than are stored.
///
/// # Errors
/// If an object is missing or corrupt, git would not check the tree out, or the file cannot be written.
pub(crate) fn write_index_of(
    repo: &Repo,
    listed: Option<&CommitTrees>,
    top: &Oid,
    time: u64,
    wanted: &WantedIndex<'_>,
    path: &Path,
) -> Result<Option<String>> {
    let times = FileTimes::all(time);
    let commit = CommitFiles { repo, listed, stats: LowerFiles::new(&times) };
    let mut writer = CommitIndexWriter::new(commit, Vec::new());
    // The file begins with the number of entries. If that is known, weir can write the file from the start.
    let announced = listed.and_then(CommitTrees::entry_count).filter(|count| *count > WHOLE_PATHS_MAX);
    match announced {
        Some(count) => {
            writer.index.announce(count);
            writer.output = Some(IndexOutput::create(repo.hash(), path).map_err(Error::on(path))?);
        }
        None => writer.index.reserve(listed.map_or(0, CommitTrees::file_count)),
    }
    let buffers = writer.output.as_ref().map(IndexOutput::buffers).unwrap_or_default();
    let folders = writer.shared_folders(top)?;
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(folders.len());
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let written = thread::scope(|scope| {
        if threads >= 2 {
            let (written, coming) = channel();
            for _ in 0..threads {
                let (written, folders, next, is_over) = (written.clone(), &folders, &next, &is_over);
                let buffers = &buffers;
                let work = move || write_shared(commit, buffers, folders, next, is_over, &written);
                // If this thread cannot be started, the others write its folders, or the caller does.
                let _ = spawn_scoped("index", scope, work);
            }
            let paths = folders.iter().map(|folder| folder.path.clone()).collect();
            writer.shared = SharedFolders { paths, coming: Some(coming), ..SharedFolders::default() };
        }
        let written = writer.tree(top, b"", &mut Vec::new(), 0);
        is_over.store(true, Ordering::Relaxed);
        written
    });
    let FolderParts { trees, untracked } = written?;
    let untracked = untracked.extension(repo.hash(), wanted.folder, wanted.ignores);
    let CommitIndexWriter { mut index, converts, output, .. } = writer;
    if index.count <= WHOLE_PATHS_MAX {
        index = index.with_whole_paths()?;
    }
    if let Some(count) = announced.filter(|count| *count != index.count) {
        let words = format!("{} files are below the tree {top}, not {count} as counted", index.count);
        return Err(Error::Odd(words));
    }
    let content = index.finish_content(&trees, Some(&untracked), Some(wanted.token))?;
    let finished = match output {
        Some(output) => output.finish(content),
        None => write_index(repo.hash(), path, &content),
    };
    finished.map_err(Error::on(path))?;
    Ok(converts.map(|path| String::from_utf8_lossy(&path).into_owned()))
}

/// Writes folders that no other thread writes, one after the other, and sends them.
fn write_shared(
    commit: CommitFiles<'_>,
    buffers: &Buffers,
    folders: &[CommitFolder],
    next: &AtomicUsize,
    is_over: &AtomicBool,
    written: &Sender<SentFolder>,
) {
    // Some more than the mean.
    let count = commit.listed.map_or(0, CommitTrees::file_count) / folders.len().max(1) * 5 / 4;
    while !is_over.load(Ordering::Relaxed)
        && let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed))
    {
        let mut writer = CommitIndexWriter::new(commit, buffers.take());
        writer.index.reserve(count);
        let parts = writer.tree(&folder.oid, &folder.name, &mut folder.path.clone(), folder.depth);
        let CommitIndexWriter { index: entries, converts, .. } = writer;
        let folder = parts.map(|parts| (folder.path.clone(), WrittenFolder { entries, parts, converts }));
        // If the receiver is gone, the thread that puts the folders together has failed.
        let _ = written.send(folder);
    }
}

impl<'r> CommitIndexWriter<'r> {
    /// Returns a writer of an index without entries, which it puts in `buffer`.
    fn new(commit: CommitFiles<'r>, buffer: Vec<u8>) -> CommitIndexWriter<'r> {
        CommitIndexWriter {
            commit,
            reader: commit.repo.reader(),
            index: IndexWriter::new_in(commit.repo.hash(), PathForm::Shared, buffer),
            converts: None,
            shared: SharedFolders::default(),
            output: None,
        }
    }

    /// Returns folders of one depth below the tree `top`, of which there are enough for several threads, if
    /// the tree has as many.
    fn shared_folders(&mut self, top: &Oid) -> Result<Vec<CommitFolder>> {
        let mut folders = vec![CommitFolder { oid: *top, name: Vec::new(), path: Vec::new(), depth: 0 }];
        while folders.len() < SHARED_FOLDERS && folders[0].depth < SHARED_DEPTH_MAX {
            let mut below = Vec::new();
            for folder in &folders {
                self.add_folders_in(folder, &mut below)?;
            }
            if below.len() < folders.len() {
                break;
            }
            folders = below;
        }
        Ok(folders)
    }

    fn add_folders_in(&mut self, folder: &CommitFolder, below: &mut Vec<CommitFolder>) -> Result<()> {
        let (tree, _) = self.read_tree(&folder.oid)?;
        let hash = self.commit.repo.hash();
        // A damaged entry is an error when all are read.
        for entry in TreeIter::new(hash, &tree).map_while(std::result::Result::ok).filter(TreeEntry::is_tree)
        {
            let oid = Oid::from_bytes(hash, entry.id).expect("entries have ids of the hash");
            let path = [&folder.path, entry.name, b"/"].concat();
            below.push(CommitFolder { oid, name: entry.name.to_vec(), path, depth: folder.depth + 1 });
        }
        Ok(())
    }

    /// Returns the tree `oid`, and the sizes of its files, if they are listed.
    fn read_tree(
        &mut self,
        oid: &Oid,
    ) -> Result<(TreeData<'r>, Option<impl Iterator<Item = Option<u64>> + use<'r>>)> {
        if let Some(listed) = self.commit.listed {
            let (tree, sizes) = listed.tree(oid)?;
            return Ok((TreeData::Listed(tree), Some(sizes)));
        }
        let object = self.reader.require(oid)?;
        match object.kind {
            Kind::Tree => Ok((TreeData::Read(object.data), None)),
            _ => Err(Error::NotAFolder),
        }
    }

    /// Adds all files below the tree `oid`, which is called `name` and is at `path` (with a slash at its
    /// end). Returns its parts of the extensions.
    fn tree(&mut self, oid: &Oid, name: &[u8], path: &mut Vec<u8>, depth: usize) -> Result<FolderParts> {
        if depth > DEPTH_MAX {
            return Err(Error::unusable(path, "is so deep"));
        }
        let (tree, mut sizes) = self.read_tree(oid)?;
        let hash = self.commit.repo.hash();
        let (before, len) = (self.index.count, path.len());
        let place = path_hash(PATH_HASH_START, path);
        let mut children: Vec<(Vec<u8>, FolderParts)> = Vec::new();
        let mut ignores = None;
        for entry in TreeIter::new(hash, &tree) {
            let entry = entry.map_err(|source| weir_repo::Error::Object { oid: *oid, source })?;
            path.extend_from_slice(entry.name);
            if !is_name(entry.name) {
                return Err(Error::unusable(path, "is a name"));
            }
            let id = Oid::from_bytes(hash, entry.id).expect("entries have ids of the hash");
            if entry.is_tree() {
                path.push(b'/');
                let child = match self.shared.take(path)? {
                    Some(folder) => self.take_in(folder)?,
                    None => self.tree(&id, entry.name, path, depth + 1)?,
                };
                children.push((entry.name.to_vec(), child));
            } else {
                if *path <= self.index.last {
                    return Err(Error::unusable(path, "is out of order"));
                }
                // git follows no link there.
                if entry.name == b".gitignore" && index_mode(entry.mode) & 0o170_000 == 0o100_000 {
                    ignores = Some(id);
                }
                if entry.name == b".gitattributes" && self.converts.is_none() {
                    let asks = self.reader.read(&id)?.is_some_and(|object| asks_to_convert(&object.data));
                    self.converts = asks.then(|| path.clone());
                }
                let mode = index_mode(entry.mode);
                let size = match &mut sizes {
                    _ if mode == SUBMODULE => 0,
                    Some(sizes) => sizes.next().flatten().ok_or(weir_repo::Error::Missing(id))?,
                    None => self.size(&id)?,
                };
                let stat = self.commit.stats.stat_of(path_hash(place, entry.name), mode, size);
                self.index.push(path, &CacheEntry::new(stat, id), false)?;
            }
            path.truncate(len);
        }
        // The extension of what is not tracked sorts names by their bytes.
        children.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (mut below, mut trees) = (Vec::new(), Vec::new());
        for (name, child) in children {
            below.push(child.untracked);
            trees.push((name, child.trees));
        }
        let trees = cached_tree(name, oid, (self.index.count - before) as usize, trees);
        let stat = self.commit.stats.folder_stat(path.strip_suffix(b"/").unwrap_or(path));
        Ok(FolderParts { trees, untracked: UntrackedFolders::of(name, &stat, ignores, below) })
    }

    /// Adds the files of a folder that another thread has written.
    fn take_in(&mut self, folder: WrittenFolder) -> Result<FolderParts> {
        match &mut self.output {
            Some(output) => output.append(&mut self.index, folder.entries)?,
            None => self.index.append(&folder.entries)?,
        }
        self.converts = self.converts.take().or(folder.converts);
        Ok(folder.parts)
    }

    fn size(&mut self, oid: &Oid) -> Result<u64> {
        let (kind, size) = self.reader.kind_and_size(oid)?.ok_or(weir_repo::Error::Missing(*oid))?;
        if kind == Kind::Blob { Ok(size) } else { Err(Error::NotAFile) }
    }
}

/// The entries that an index has for files of a lower layer.
#[derive(Clone, Copy)]
pub(crate) struct LowerFiles<'t> {
    times: &'t FileTimes,
    /// The user and the group.
    owner: [u32; 2],
}

impl<'t> LowerFiles<'t> {
    /// Returns what an index says of files with these times that are this user's.
    pub(crate) fn new(times: &'t FileTimes) -> LowerFiles<'t> {
        LowerFiles { times, owner: [Uid::current().as_raw(), Gid::current().as_raw()] }
    }

    /// Returns what an index says of the file at `path`.
    pub(crate) fn stat(self, path: &[u8], mode: u32, size: u64) -> EntryStat {
        self.stat_of(path_hash(PATH_HASH_START, path), mode, size)
    }

    /// Returns the same of the file the path of which has the hash `path`.
    pub(crate) fn stat_of(self, path: u32, mode: u32, size: u64) -> EntryStat {
        let (time, [user, group]) = (self.times.of(path), self.owner);
        // The fields of an index have 32 bits.
        let (seconds, nanoseconds) = (time.seconds as u32, time.nanoseconds);
        [seconds, nanoseconds, seconds, nanoseconds, 0, path, mode, user, group, size as u32]
    }

    /// Returns what an index says of the folder at `path`.
    pub(crate) fn folder_stat(self, path: &[u8]) -> FolderStat {
        let path = path_hash(PATH_HASH_START, path);
        let (time, [user, group]) = (self.times.of(path), self.owner);
        let (seconds, nanoseconds) = (time.seconds as u32, time.nanoseconds);
        [seconds, nanoseconds, seconds, nanoseconds, 0, path, user, group, 0]
    }
}
