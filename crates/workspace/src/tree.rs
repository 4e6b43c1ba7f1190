//! The files of a commit, read from its repository when they are asked for.
//!
//! A node is a number: 1 is the top folder, and the entries of a folder get numbers in a row when the folder
//! is first read. A folder keeps its tree as it is stored; a file costs 12 bytes besides. A log of the
//! numbers lets another process go on with them: it reads a folder again when it meets one of its entries.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use weir_git::{HashKind, Kind, Oid, TreeEntry, TreeIter, commit_links, commit_time};
use weir_ground::printable;
use weir_repo::Repo;
use weir_worktree::is_name;

use crate::error::{Error, Result};
use crate::file_times::{FileTime, FileTimes};
use crate::numbers::{FolderNumber, NumberLog};
use crate::remote_commit::RemoteCommit;

/// The number of the top folder.
pub(crate) const TOP: u32 = 1;
/// A size that is not known yet.
const UNKNOWN: u64 = u64::MAX;
/// Larger files are kept decoded while they are read; smaller ones are read at once.
const KEPT_BYTES_MIN: usize = 128 << 10;
/// Bytes of decoded files that are kept; one larger file is kept alone.
const KEPT_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(KEPT_BYTES_MIN <= KEPT_BYTES_MAX, "they are bounds");

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Folder,
    File {
        is_executable: bool,
    },
    Link,
    /// A commit of another repository: an empty folder, as a clone without submodules leaves it.
    Submodule,
}

impl FileKind {
    fn of(mode: u32) -> FileKind {
        match mode & 0o170_000 {
            0o040_000 => FileKind::Folder,
            0o120_000 => FileKind::Link,
            0o160_000 => FileKind::Submodule,
            // git takes any other mode for a file, and its owner's bit for all.
            _ => FileKind::File { is_executable: mode & 0o100 != 0 },
        }
    }

    pub(crate) fn is_folder(self) -> bool {
        matches!(self, FileKind::Folder | FileKind::Submodule)
    }
}

/// The entries of a folder, by name.
pub(crate) struct TreeFolder {
    /// Its own number, and that of the folder above.
    number: u32,
    pub(crate) above: u32,
    /// The number of the first entry.
    first: u32,
    hash: HashKind,
    /// The hash of its path.
    path: u32,
    /// The tree, as it is stored.
    tree: Vec<u8>,
    /// Where the entries are in the tree.
    places: Box<[u32]>,
    /// The sizes of the entries, as far as they are known.
    sizes: Box<[AtomicU64]>,
}

/// An entry of a folder.
pub(crate) struct Entry<'f> {
    pub(crate) node: u32,
    pub(crate) name: &'f [u8],
    pub(crate) kind: FileKind,
    /// The hash of its path.
    pub(crate) path: u32,
    oid: Oid,
    size: &'f AtomicU64,
}

impl TreeFolder {
    fn raw(&self, at: usize) -> TreeEntry<'_> {
        let rest = &self.tree[self.places[at] as usize..];
        TreeIter::new(self.hash, rest).next().and_then(std::result::Result::ok).expect("it was parsed before")
    }

    fn entry(&self, at: usize) -> Entry<'_> {
        let TreeEntry { mode, name, id } = self.raw(at);
        let oid = Oid::from_bytes(self.hash, id).expect("entries have ids of the hash");
        let (node, path) = (self.first + at as u32, path_hash(self.path, name));
        Entry { node, name, kind: FileKind::of(mode), path, oid, size: &self.sizes[at] }
    }

    /// Returns the entry called `name`.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Entry<'_>> {
        let at = self.places.binary_search_by(|place| {
            let rest = &self.tree[*place as usize..];
            let entry = TreeIter::new(self.hash, rest).next().and_then(std::result::Result::ok);
            entry.map_or(&[][..], |entry| entry.name).cmp(name)
        });
        at.ok().map(|at| self.entry(at))
    }

    /// Returns the entries from the place `from` on.
    pub(crate) fn entries(&self, from: usize) -> impl Iterator<Item = Entry<'_>> {
        (from..self.places.len()).map(|at| self.entry(at))
    }
}

/// Where an entry is in a tree, and its size.
struct SizedPlace {
    at: u32,
    size: u64,
}

/// The files of a commit.
pub(crate) struct CommitTree {
    repo: Arc<Repo>,
    /// Set if the objects of the repository are on another machine. Then files are checked, too.
    remote: Option<Arc<RemoteCommit>>,
    top: Oid,
    /// The times of its files.
    times: FileTimes,
    folders: RwLock<ReadFolders>,
    kept: Mutex<KeptFiles>,
    log: Option<NumberLog>,
}

/// The folders that were read.
struct ReadFolders {
    by_number: HashMap<u32, Arc<TreeFolder>>,
    /// Those that have entries, by the number of the first.
    by_first: Vec<NumberedFolder>,
    /// The first number of those that another process read, by their own.
    logged: HashMap<u32, u32>,
    /// The first number that no node has.
    next: u32,
}

/// A folder with entries.
struct NumberedFolder {
    numbers: FolderNumber,
    /// Nothing if another process read it, and this one not yet.
    folder: Option<Arc<TreeFolder>>,
}

/// Decoded files, the last used at the end.
#[derive(Default)]
struct KeptFiles {
    list: Vec<(u32, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl CommitTree {
    /// Returns the files of `commit`, which may be a tag of one, or a tree. Without `times` all have the
    /// committer's.
    pub(crate) fn open(
        repo: Arc<Repo>,
        commit: &Oid,
        remote: Option<Arc<RemoteCommit>>,
        times: Option<FileTimes>,
    ) -> Result<CommitTree> {
        let (top, time) = match &remote {
            Some(remote) => top_of_commit(repo.hash(), commit, remote.trees.commit_data())?,
            None => CommitTree::top_of(&repo, commit)?,
        };
        let folders = ReadFolders {
            by_number: HashMap::new(),
            by_first: Vec::new(),
            logged: HashMap::new(),
            next: TOP + 1,
        };
        let folders = RwLock::new(folders);
        let times = times.unwrap_or_else(|| FileTimes::all(time));
        Ok(CommitTree { repo, remote, top, times, folders, kept: Mutex::default(), log: None })
    }

    /// Begins to log the numbers of folders.
    pub(crate) fn log_numbers(&mut self) -> Result<()> {
        self.log = Some(NumberLog::new()?);
        Ok(())
    }

    /// Goes on with the numbers that other processes logged.
    pub(crate) fn take_up(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut folders = self.folders.write().unwrap_or_else(PoisonError::into_inner);
        let all = log.read()?;
        folders.next = all.last().map_or(TOP + 1, |last| last.next);
        folders.logged = all.iter().map(|numbers| (numbers.folder, numbers.first)).collect();
        folders.by_first = all.into_iter().map(|numbers| NumberedFolder { numbers, folder: None }).collect();
        Ok(())
    }

    /// Returns the tree of `commit`, which may be a tag of one, or a tree, and the time of its files, in
    /// seconds since 1970.
    pub(crate) fn top_of(repo: &Repo, commit: &Oid) -> Result<(Oid, u64)> {
        let commit = repo.objects().peel(commit)?.unwrap_or(*commit);
        let object = repo.reader().require(&commit)?;
        match object.kind {
            Kind::Tree => Ok((commit, 0)),
            Kind::Commit => top_of_commit(repo.hash(), &commit, &object.data),
            Kind::Blob | Kind::Tag => Err(Error::NoCommit(commit)),
        }
    }

    /// Returns the folder with the number `node`.
    pub(crate) fn folder(&self, node: u32) -> Result<Arc<TreeFolder>> {
        // Those above it may have been read by another process only. They may be many: no recursion.
        let mut unread = Vec::new();
        let mut at = node;
        while self.known(at).is_none() {
            unread.push(at);
            if at == TOP {
                break;
            }
            at = self.numbered(at)?.numbers.folder;
        }
        while unread.len() > 1 {
            self.read_node(unread.pop().expect("there are two"))?;
        }
        self.read_node(node)
    }

    /// Returns the folder with the number `node`, if the folder above was read.
    fn read_node(&self, node: u32) -> Result<Arc<TreeFolder>> {
        if let Some(folder) = self.known(node) {
            return Ok(folder);
        }
        if node == TOP {
            return self.read_folder(TOP, TOP, PATH_HASH_START, &self.top);
        }
        let (folder, at) = self.place(node)?;
        let entry = folder.entry(at);
        match entry.kind {
            FileKind::Folder => {
                self.read_folder(node, folder.number, path_hash(entry.path, b"/"), &entry.oid)
            }
            FileKind::Submodule => self.add(node, folder.number, entry.path, Vec::new(), Vec::new()),
            FileKind::File { .. } | FileKind::Link => Err(Error::NotAFolder),
        }
    }

    fn known(&self, node: u32) -> Option<Arc<TreeFolder>> {
        let folders = self.folders.read().unwrap_or_else(PoisonError::into_inner);
        folders.by_number.get(&node).map(Arc::clone)
    }

    fn read_folder(&self, node: u32, above: u32, path: u32, tree: &Oid) -> Result<Arc<TreeFolder>> {
        let hash = self.repo.hash();
        let listed = self.remote.as_ref().map(|remote| remote.trees.tree(tree)).transpose();
        // weir reads a tree that is damaged here from the server.
        let listed = listed.inspect_err(|e| tracing::warn!("{e}")).unwrap_or_default();
        let (data, sizes) = match listed {
            Some((data, sizes)) => (data.to_vec(), Some(sizes)),
            None => {
                let object = self.repo.reader().require(tree)?;
                if object.kind != Kind::Tree {
                    return Err(Error::NotAFolder);
                }
                (Rc::try_unwrap(object.data).unwrap_or_else(|shared| shared.as_ref().clone()), None)
            }
        };
        let mut sizes = sizes.into_iter().flatten();
        let mut places: Vec<(&[u8], SizedPlace)> = Vec::new();
        let mut entries = TreeIter::new(hash, &data);
        let mut at = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|source| weir_repo::Error::Object { oid: *tree, source })?;
            let has_size = !FileKind::of(entry.mode).is_folder();
            let size = has_size.then(|| sizes.next().flatten()).flatten().unwrap_or(UNKNOWN);
            // As git checks them out: not at all.
            if is_name(entry.name) {
                let at = u32::try_from(at).map_err(|_| Error::Full)?;
                places.push((entry.name, SizedPlace { at, size }));
            } else {
                let name = printable(&String::from_utf8_lossy(entry.name));
                tracing::warn!(
                    "tree {tree} names a file '{name}', which git would not check out: it is not shown"
                );
            }
            at = data.len() - entries.rest().len();
        }
        // A tree sorts folders as if their names ended with a slash. Of doubled names the first counts.
        places.sort_by_key(|(name, place)| (*name, place.at));
        places.dedup_by_key(|(name, _)| *name);
        let places = places.into_iter().map(|(_, place)| place).collect();
        self.add(node, above, path, data, places)
    }

    fn add(
        &self,
        number: u32,
        above: u32,
        path: u32,
        tree: Vec<u8>,
        places: Vec<SizedPlace>,
    ) -> Result<Arc<TreeFolder>> {
        let mut folders = self.folders.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        if let Some(known) = folders.by_number.get(&number) {
            return Ok(Arc::clone(known));
        }
        let count = u32::try_from(places.len()).map_err(|_| Error::Full)?;
        let logged = folders.logged.get(&number).copied();
        let first = logged.unwrap_or(folders.next);
        let next = first.checked_add(count).ok_or(Error::Full)?;
        let sizes = places.iter().map(|place| AtomicU64::new(place.size)).collect();
        let folder = TreeFolder {
            number,
            above,
            first,
            hash: self.repo.hash(),
            path,
            tree,
            places: places.iter().map(|place| place.at).collect(),
            sizes,
        };
        let folder = Arc::new(folder);
        let numbers = FolderNumber { folder: number, first, next };
        if logged.is_some() {
            let at = folders.by_first.partition_point(|known| known.numbers.first < first);
            debug_assert_eq!(folders.by_first[at].numbers, numbers, "entries had other numbers before");
            folders.by_first[at].folder = Some(Arc::clone(&folder));
        } else if count > 0 {
            let is_free = folders.by_first.last().is_none_or(|last| last.numbers.next <= first);
            debug_assert!(is_free, "{numbers:?} were given before");
            if let Some(log) = &self.log {
                log.append(numbers)?;
            }
            folders.next = next;
            folders.by_first.push(NumberedFolder { numbers, folder: Some(Arc::clone(&folder)) });
        }
        folders.by_number.insert(number, Arc::clone(&folder));
        Ok(folder)
    }

    /// Returns the folder that the node is an entry of, and its place there.
    fn place(&self, node: u32) -> Result<(Arc<TreeFolder>, usize)> {
        let NumberedFolder { numbers, folder } = self.numbered(node)?;
        let folder = folder.map_or_else(|| self.folder(numbers.folder), Ok)?;
        let at = (node - numbers.first) as usize;
        if at < folder.places.len() { Ok((folder, at)) } else { Err(Error::NoNode) }
    }

    /// Returns the folder that the node is an entry of, which may not have been read.
    fn numbered(&self, node: u32) -> Result<NumberedFolder> {
        let folders = self.folders.read().unwrap_or_else(PoisonError::into_inner);
        let behind = folders.by_first.partition_point(|known| known.numbers.first <= node);
        let known = behind.checked_sub(1).map(|last| &folders.by_first[last]);
        let known = known.filter(|known| node < known.numbers.next).ok_or(Error::NoNode)?;
        Ok(NumberedFolder { numbers: known.numbers, folder: known.folder.clone() })
    }

    /// Returns what the node is, its size in bytes, and the hash of its path.
    pub(crate) fn attributes(&self, node: u32) -> Result<(FileKind, u64, u32)> {
        if node == TOP {
            return Ok((FileKind::Folder, 0, PATH_HASH_START));
        }
        let (folder, at) = self.place(node)?;
        let entry = folder.entry(at);
        Ok((entry.kind, self.size(&entry)?, entry.path))
    }

    /// Returns the time of a node the path of which has the hash `path`.
    pub(crate) fn time(&self, path: u32) -> FileTime {
        self.times.of(path)
    }

    /// Returns the size of a file or link in bytes.
    pub(crate) fn size(&self, entry: &Entry<'_>) -> Result<u64> {
        if entry.kind.is_folder() {
            return Ok(0);
        }
        let known = entry.size.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Ok(known);
        }
        let found = self.repo.reader().kind_and_size(&entry.oid)?;
        let (kind, size) = found.ok_or(weir_repo::Error::Missing(entry.oid))?;
        if kind != Kind::Blob {
            return Err(Error::NotAFile);
        }
        entry.size.store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// Returns the content of a file, or the target of a link.
    pub(crate) fn content(&self, node: u32) -> Result<Arc<Vec<u8>>> {
        if let Some(kept) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(node) {
            return Ok(kept);
        }
        let (folder, at) = self.place(node)?;
        let entry = folder.entry(at);
        if entry.kind.is_folder() {
            return Err(Error::NotAFile);
        }
        let data = match &self.remote {
            Some(remote) => remote.file(&self.repo, &entry.oid, self.size(&entry)?)?,
            None => {
                let object = self.repo.reader().require(&entry.oid)?;
                if object.kind != Kind::Blob {
                    return Err(Error::NotAFile);
                }
                object.data
            }
        };
        let data = Arc::new(Rc::try_unwrap(data).unwrap_or_else(|shared| shared.as_ref().clone()));
        if data.len() > KEPT_BYTES_MIN {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(node, &data);
        }
        Ok(data)
    }
}

/// Returns the tree of a commit, and its time in seconds since 1970.
pub(crate) fn top_of_commit(hash: HashKind, commit: &Oid, data: &[u8]) -> Result<(Oid, u64)> {
    let malformed = |source| weir_repo::Error::Object { oid: *commit, source };
    let links = commit_links(hash, data).map_err(malformed)?;
    Ok((links.tree, commit_time(data)))
}

impl KeptFiles {
    fn get(&mut self, node: u32) -> Option<Arc<Vec<u8>>> {
        let at = self.list.iter().position(|(kept, _)| *kept == node)?;
        let found = self.list.remove(at);
        let data = Arc::clone(&found.1);
        self.list.push(found);
        Some(data)
    }

    fn keep(&mut self, node: u32, data: &Arc<Vec<u8>>) {
        if self.list.iter().any(|(kept, _)| *kept == node) {
            return;
        }
        self.bytes += data.len();
        self.list.push((node, Arc::clone(data)));
        while self.bytes > KEPT_BYTES_MAX && self.list.len() > 1 {
            self.bytes -= self.list.remove(0).1.len();
        }
    }
}

/// The hash of the empty path (FNV-1a with 32 bits).
pub(crate) const PATH_HASH_START: u32 = 0x811c_9dc5;

/// Returns the hash of a path that goes on with `bytes`.
pub(crate) fn path_hash(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Hashes paths of which most are in the folder of the one before.
pub(crate) struct PathHasher {
    /// The folder of the path before, with a slash at its end, and the hash of that.
    folder: Vec<u8>,
    hash: u32,
}

impl PathHasher {
    pub(crate) fn new() -> PathHasher {
        PathHasher { folder: Vec::new(), hash: PATH_HASH_START }
    }

    /// Returns the hash of `path`.
    pub(crate) fn hash(&mut self, path: &[u8]) -> u32 {
        let folder_len = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (folder, name) = path.split_at(folder_len);
        if self.folder != folder {
            self.folder.clear();
            self.folder.extend_from_slice(folder);
            self.hash = path_hash(PATH_HASH_START, folder);
        }
        path_hash(self.hash, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_path_is_the_same_after_any_other() {
        let mut hasher = PathHasher::new();
        for path in [&b"a"[..], b"a/b", b"a/c", b"a/b/c", b"ab/c", b"a/b/d", b"a", b"", b"a/b/d"] {
            assert_eq!(hasher.hash(path), path_hash(PATH_HASH_START, path));
        }
    }

    #[test]
    fn modes_are_kinds_of_files_as_git_takes_them() {
        let file = |is_executable| FileKind::File { is_executable };
        for (mode, kind, is_folder) in [
            (0o040_000, FileKind::Folder, true),
            (0o120_000, FileKind::Link, false),
            (0o160_000, FileKind::Submodule, true),
            (0o100_644, file(false), false),
            (0o100_755, file(true), false),
            (0o100_700, file(true), false),
            (0o100_611, file(false), false),
            (0, file(false), false),
            (0o060_100, file(true), false),
        ] {
            assert_eq!((FileKind::of(mode), kind.is_folder()), (kind, is_folder), "{mode:o}");
        }
    }

    #[test]
    fn decoded_files_are_kept_up_to_a_limit_the_last_used_longest() {
        let (third, all) = (Arc::new(vec![0; KEPT_BYTES_MAX / 3]), Arc::new(vec![0; KEPT_BYTES_MAX + 1]));
        let mut kept = KeptFiles::default();
        (1..=3).for_each(|node| kept.keep(node, &third));
        kept.keep(3, &third);
        assert!(kept.get(1).is_some());
        let nodes = |kept: &KeptFiles| kept.list.iter().map(|(node, _)| *node).collect::<Vec<_>>();
        assert_eq!((nodes(&kept), kept.bytes), (vec![2, 3, 1], third.len() * 3));
        kept.keep(4, &third);
        assert_eq!((nodes(&kept), kept.bytes), (vec![3, 1, 4], third.len() * 3));
        assert!(kept.get(2).is_none());
        kept.keep(5, &all);
        assert_eq!((nodes(&kept), kept.bytes), (vec![5], all.len()), "a larger one is kept alone");
        kept.keep(6, &third);
        assert_eq!((nodes(&kept), kept.bytes), (vec![6], third.len()));
    }
}
