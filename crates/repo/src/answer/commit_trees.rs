//! The trees of a commit with the sizes of its files, for who reads the files later, from another machine
//! (`docs/whole-clones.md`).

use std::ops::Range;

use weir_archive::Region;
use weir_git::{BatchHasher, HashKind, Kind, ObjectHasher, Oid, OidMap, OidSet, TreeIter, commit_links};

use crate::error::{Error, Result, corrupt};
use crate::objects::reader::ObjectReader;
use crate::repo::repository::Repo;

const MAGIC: &[u8] = b"weir trees 1\n";
const NOTES_MAGIC: &[u8] = b"weir tree ids 2\n";
/// The name of the format in errors.
const NAME: &str = "list of trees";
/// The most bytes of a list. A million files take about 50 MB.
pub const TREES_BYTES_MAX: usize = 1 << 30;
/// The most bytes of a tree in a list that arrives. Three million entries take this much.
const PIECE_BYTES_MAX: u32 = 128 << 20;
/// The most trees of a list: each takes some 200 bytes of memory, however small it is. A repository of ten
/// million files has about a million.
const TREES_MAX: u32 = 2_000_000;
/// The bytes of a number, but for a size.
const NUMBER_BYTES: usize = 4;
/// The most bytes of a size.
const SIZE_BYTES_MAX: usize = 10;
/// Stands for a file that the repository does not have.
const NO_SIZE: u64 = u64::MAX;

/// Lists the trees of a commit, each once, and the sizes of the files in them.
///
/// # Errors
/// If `commit` is no commit, a tree is missing or corrupt, or the list is too large.
pub fn write_commit_trees(repo: &Repo, commit: &Oid) -> Result<Vec<u8>> {
    let mut reader = repo.reader();
    let object = reader.require(commit)?;
    if object.kind != Kind::Commit {
        return Err(Error::NotFound(format!("{commit} is no commit")));
    }
    let links = commit_links(repo.hash(), &object.data);
    let top = links.map_err(|source| Error::Object { oid: *commit, source })?.tree;
    let mut list = MAGIC.to_vec();
    push_piece(&mut list, &object.data);
    let count_at = list.len();
    push_number(&mut list, 0);
    let mut sizes = Vec::new();
    let (mut seen, mut waiting, mut count) = (OidSet::default(), vec![top], 0);
    seen.insert(top);
    while let Some(oid) = waiting.pop() {
        let tree = reader.require(&oid)?;
        if tree.kind != Kind::Tree {
            return corrupt(oid.to_string(), "it is no tree");
        }
        push_piece(&mut list, &tree.data);
        count += 1;
        let folders = waiting.len();
        for entry in TreeIter::new(repo.hash(), &tree.data) {
            let entry = entry.map_err(|source| Error::Object { oid, source })?;
            let id = Oid::from_bytes(repo.hash(), entry.id).expect("entries have ids of the hash");
            if entry.is_tree() {
                if seen.insert(id) {
                    waiting.push(id);
                }
            } else if !entry.is_gitlink() {
                push_size(&mut sizes, size_of(&mut reader, &id)?);
            }
        }
        // The first folder comes next.
        waiting[folders..].reverse();
        if list.len() + sizes.len() > TREES_BYTES_MAX {
            return Err(Error::Unsupported(format!(
                "the trees of {commit} have over {TREES_BYTES_MAX} bytes"
            )));
        }
    }
    list[count_at..count_at + 4].copy_from_slice(&u32::to_be_bytes(count));
    list.extend_from_slice(&sizes);
    Ok(list)
}

fn size_of(reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<u64> {
    match reader.kind_and_size(oid)? {
        Some((Kind::Blob, size)) => Ok(size),
        Some(_) => corrupt(oid.to_string(), "it is no file"),
        None => Ok(NO_SIZE),
    }
}

fn push_number(list: &mut Vec<u8>, number: u32) {
    list.extend_from_slice(&number.to_be_bytes());
}

fn push_piece(list: &mut Vec<u8>, data: &[u8]) {
    push_number(list, u32::try_from(data.len()).expect("objects in memory are smaller"));
    list.extend_from_slice(data);
}

/// Appends a size: seven bits a byte, the lowest first; the highest bit says that more follow.
fn push_size(sizes: &mut Vec<u8>, mut size: u64) {
    while size > 0x7f {
        sizes.push(size as u8 | 0x80);
        size >>= 7;
    }
    sizes.push(size as u8);
}

/// The trees of a commit, and the sizes of the files in them.
pub struct CommitTrees {
    hash: HashKind,
    list: Region,
    commit: Oid,
    commit_at: Range<usize>,
    trees: OidMap<ListedTree>,
    sizes: Vec<u64>,
    /// Where the sizes begin in the list.
    sizes_at: usize,
    /// Whether the trees are known to be what their ids say.
    is_hashed: bool,
    /// The number of files, links and submodules below the commit, if it is known.
    entry_count: Option<u32>,
}

/// Where a tree is in the list, and the sizes of its files among all.
struct ListedTree {
    /// Its number among all.
    number: usize,
    at: Range<usize>,
    sizes: Range<usize>,
}

impl CommitTrees {
    /// Reads what [`write_commit_trees`] wrote of `commit`. The commit and all trees below it are there, and
    /// are what their ids say. Nobody vouches for the sizes.
    ///
    /// # Errors
    /// If the list is damaged, or of another commit.
    pub fn parse(hash: HashKind, commit: &Oid, list: Region) -> Result<CommitTrees> {
        let mut hasher = ListHasher::new(hash);
        hasher.push(&list)?;
        let hashed = hasher.finish()?;
        CommitTrees::with_hashed(hash, commit, list, &hashed)
    }

    /// Reads a list, the trees of which are `hashed`.
    ///
    /// # Errors
    /// As [`CommitTrees::parse`].
    pub fn with_hashed(
        hash: HashKind,
        commit: &Oid,
        list: Region,
        hashed: &HashedTrees,
    ) -> Result<CommitTrees> {
        let mut read = CommitTrees::without_trees(hash, commit, list, hashed.trees.len())?;
        let mut at_tree = read.sizes_at;
        let pieces: Result<Vec<Range<usize>>> =
            hashed.trees.iter().map(|tree| read.piece_of(&mut at_tree, tree.len)).collect();
        read.sizes_at = at_tree;
        let mut at = read.sizes_at;
        read.trees.reserve(hashed.trees.len());
        let mut empty = hashed.empty.iter().peekable();
        for (number, (at_tree, tree)) in pieces?.into_iter().zip(&hashed.trees).enumerate() {
            let first = read.sizes.len();
            for n in first..first + tree.files as usize {
                let size = size(&read.list, &mut at)?;
                // Nobody reads an empty file, and so nobody would check it.
                let is_empty = empty.next_if(|at| **at as usize == n).is_some();
                if (size == 0) != is_empty {
                    return corrupt(NAME, "a size is wrong");
                }
                read.sizes.push(size);
            }
            let listed = ListedTree { number, at: at_tree, sizes: first..read.sizes.len() };
            if read.trees.insert(tree.oid, listed).is_some() {
                return corrupt(NAME, format!("the tree {} is in it twice", tree.oid));
            }
        }
        if at != read.list.len() {
            return corrupt(NAME, "something follows its end");
        }
        read.is_hashed = true;
        let links = commit_links(hash, read.commit_data());
        let top = links.map_err(|source| Error::Object { oid: *commit, source })?.tree;
        read.entry_count = u32::try_from(hashed.count_below(top, &read)?).ok();
        read.list.check()?;
        Ok(read)
    }

    /// Checks that a list is of `commit`, and has `count` trees. Returns it without its trees and sizes, with
    /// the place of the first tree in place of that of the sizes.
    fn without_trees(hash: HashKind, commit: &Oid, list: Region, count: usize) -> Result<CommitTrees> {
        let mut at = 0;
        if !list.starts_with(MAGIC) {
            return corrupt(NAME, "it does not begin as one");
        }
        at += MAGIC.len();
        let commit_at = piece(&list, &mut at)?;
        if number(&list, &mut at)? as usize != count {
            return corrupt(NAME, "it is cut");
        }
        let found = ObjectHasher::hash(hash, Kind::Commit, &list[commit_at.clone()]);
        if !found.is_ok_and(|found| found == *commit) {
            return corrupt(NAME, format!("it is not of the commit {commit}"));
        }
        Ok(CommitTrees {
            hash,
            list,
            commit: *commit,
            commit_at,
            trees: OidMap::default(),
            sizes: Vec::new(),
            sizes_at: at,
            is_hashed: false,
            entry_count: None,
        })
    }

    /// Returns where the tree of `len` bytes is that follows `at`, and moves `at` behind it.
    fn piece_of(&self, at: &mut usize, len: u32) -> Result<Range<usize>> {
        let begin = *at + NUMBER_BYTES;
        *at = begin + len as usize;
        if *at > self.list.len() {
            return corrupt(NAME, "it is cut");
        }
        Ok(begin..*at)
    }

    /// Returns what [`CommitTrees::with_notes`] needs to read this list again without a look at its trees:
    ///
    /// ```text
    /// "weir tree ids 2\n"
    /// of each tree, in order: its id, how many bytes it has, and how many sizes (32 bits each)
    /// a CRC-32 of all that, and of the sizes in the list
    /// ```
    pub fn notes(&self) -> Vec<u8> {
        let mut trees: Vec<(&Oid, &ListedTree)> = self.trees.iter().collect();
        trees.sort_unstable_by_key(|(_, tree)| tree.at.start);
        let mut notes = NOTES_MAGIC.to_vec();
        for (oid, tree) in trees {
            notes.extend_from_slice(oid.as_bytes());
            push_number(&mut notes, u32::try_from(tree.at.len()).expect("a list has a GiB at most"));
            push_number(&mut notes, u32::try_from(tree.sizes.len()).expect("a list has a GiB at most"));
        }
        let sum = sum_of_notes(&notes, &self.list[self.sizes_at..]);
        push_number(&mut notes, sum);
        notes
    }

    /// Reads a list that was read before, and of which these are the [`CommitTrees::notes`], but no tree. A
    /// tree is checked each time that it is read.
    ///
    /// # Errors
    /// If the notes, the commit or the sizes are damaged, or those of another list.
    pub fn with_notes(hash: HashKind, commit: &Oid, list: Region, notes: &[u8]) -> Result<CommitTrees> {
        let damaged = || corrupt(NAME, "the notes of it are damaged");
        let Some((content, sum)) = notes.split_last_chunk() else { return damaged() };
        let Some(records) = content.strip_prefix(NOTES_MAGIC) else { return damaged() };
        let record_len = hash.len() + 2 * NUMBER_BYTES;
        if !records.len().is_multiple_of(record_len) {
            return damaged();
        }
        let count = records.len() / record_len;
        let mut read = CommitTrees::without_trees(hash, commit, list, count)?;
        let mut found = Vec::with_capacity(count);
        let mut at = read.sizes_at;
        for record in records.chunks_exact(record_len) {
            let (id, mut number_at) = (&record[..hash.len()], hash.len());
            let len = number(record, &mut number_at)?;
            let sizes = number(record, &mut number_at)?;
            let at_tree = read.piece_of(&mut at, len)?;
            found.push((Oid::from_bytes(hash, id).expect("it has the bytes of one"), at_tree, sizes));
        }
        read.sizes_at = at;
        if u32::from_be_bytes(*sum) != sum_of_notes(content, &read.list[at..]) {
            return damaged();
        }
        read.trees.reserve(count);
        for (number, (oid, at_tree, sizes)) in found.into_iter().enumerate() {
            let first = read.sizes.len();
            for _ in 0..sizes {
                read.sizes.push(size(&read.list, &mut at)?);
            }
            read.trees.insert(oid, ListedTree { number, at: at_tree, sizes: first..read.sizes.len() });
        }
        read.list.check()?;
        Ok(read)
    }

    /// Returns how many files, links and submodules are below the commit, if that is known, and if an index
    /// can have as many.
    pub fn entry_count(&self) -> Option<u32> {
        self.entry_count
    }

    /// Returns how many files and links the trees have, each tree taken once.
    pub fn file_count(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the commit's id.
    pub fn commit(&self) -> &Oid {
        &self.commit
    }

    /// Returns the commit, as it is stored.
    pub fn commit_data(&self) -> &[u8] {
        &self.list[self.commit_at.clone()]
    }

    /// Returns a tree, as it is stored, and the sizes of its files and links, in order, in bytes; `None` for
    /// a file that the server does not have.
    ///
    /// # Errors
    /// If there is no such tree, or it is damaged.
    pub fn tree<'t>(&'t self, oid: &Oid) -> Result<(&'t [u8], impl Iterator<Item = Option<u64>> + use<'t>)> {
        let ListedTree { at, sizes, .. } = self.trees.get(oid).ok_or(Error::Missing(*oid))?;
        let data = &self.list[at.clone()];
        if !self.is_hashed && ObjectHasher::hash(self.hash, Kind::Tree, data).ok() != Some(*oid) {
            return corrupt(NAME, format!("the tree {oid} in it is damaged"));
        }
        let sizes = self.sizes[sizes.clone()].iter().map(|size| (*size != NO_SIZE).then_some(*size));
        Ok((data, sizes))
    }
}

/// The ids and the contents of a list's trees, as [`ListHasher`] finds them.
pub struct HashedTrees {
    trees: Vec<FoundTree>,
    /// The places of the ids of their folders in the list.
    folders: Vec<u32>,
    /// The numbers of the files without bytes among all that have a size.
    empty: Vec<u32>,
}

/// A tree of a list.
struct FoundTree {
    oid: Oid,
    /// Its bytes.
    len: u32,
    /// The numbers of files and links, and of submodules, in it but not below.
    files: u32,
    modules: u32,
    /// Its folders among all.
    folders: Range<usize>,
}

/// A tree the entries of which are being counted.
struct CountedTree {
    number: usize,
    count: u64,
    /// Its folders that are not counted yet.
    folders: Range<usize>,
}

impl HashedTrees {
    /// Returns whether the tree `oid` is among them.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.trees.iter().any(|tree| tree.oid == *oid)
    }

    /// Returns how many files, links and submodules are below the tree `top`, which `list` has.
    fn count_below(&self, top: Oid, list: &CommitTrees) -> Result<u64> {
        let number_of = |oid: &Oid| list.trees.get(oid).map(|tree| tree.number).ok_or(Error::Missing(*oid));
        let counted = |number: usize| {
            let tree = &self.trees[number];
            let count = u64::from(tree.files) + u64::from(tree.modules);
            CountedTree { number, count, folders: tree.folders.clone() }
        };
        let (mut counts, mut above) = (vec![None; self.trees.len()], Vec::new());
        let mut tree = counted(number_of(&top)?);
        loop {
            if let Some(folder) = tree.folders.next() {
                let id = list.list.get(self.folders[folder] as usize..).unwrap_or_default();
                let id = id.get(..list.hash.len()).and_then(|id| Oid::from_bytes(list.hash, id));
                let number = number_of(&id.ok_or(Error::Missing(top))?)?;
                match counts[number] {
                    Some(count) => tree.count = tree.count.saturating_add(count),
                    None => above.push(std::mem::replace(&mut tree, counted(number))),
                }
                continue;
            }
            counts[tree.number] = Some(tree.count);
            let Some(folder) = above.pop() else { return Ok(tree.count) };
            let CountedTree { count, .. } = std::mem::replace(&mut tree, folder);
            tree.count = tree.count.saturating_add(count);
        }
    }
}

/// Hashes the trees of a list while it arrives.
pub struct ListHasher {
    batch: BatchHasher<HashedTree>,
    /// The last bytes that have arrived: the beginning of an object or number, the rest of which has not.
    rest: Vec<u8>,
    /// The place of these bytes in the list.
    rest_at: usize,
    next: NextPart,
    found: HashedTrees,
    /// The number of files that have a size, and the bytes that follow those that end the last tree.
    files: u32,
    sizes_bytes: usize,
    /// Stands for a tree that is being hashed.
    unknown: Oid,
    /// The id of a file without bytes.
    empty: Oid,
}

/// A tree in a list while it is hashed.
struct HashedTree {
    data: Vec<u8>,
    number: usize,
}

impl AsRef<[u8]> for HashedTree {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// The part of a list that a hasher reads next.
#[derive(Clone, Copy)]
enum NextPart {
    Magic,
    Commit,
    Count,
    /// This number of trees. The sizes behind them are not hashed.
    Trees(u32),
}

impl ListHasher {
    /// Returns a hasher for a list of objects with this hash.
    pub fn new(hash: HashKind) -> ListHasher {
        let unknown = ObjectHasher::hash(hash, Kind::Tree, b"").expect("it is no attack");
        let empty = ObjectHasher::hash(hash, Kind::Blob, b"").expect("it is no attack");
        let found = HashedTrees { trees: Vec::new(), folders: Vec::new(), empty: Vec::new() };
        let batch = BatchHasher::new(hash);
        ListHasher {
            batch,
            rest: Vec::new(),
            rest_at: 0,
            next: NextPart::Magic,
            found,
            files: 0,
            sizes_bytes: 0,
            unknown,
            empty,
        }
    }

    /// Hashes the trees that end in `data`, the next bytes of the list.
    ///
    /// # Errors
    /// If the bytes are those of no list, or a tree is malformed or attacks SHA-1.
    pub fn push(&mut self, data: &[u8]) -> Result<()> {
        if matches!(self.next, NextPart::Trees(0)) {
            // The sizes follow.
            self.sizes_bytes = self.sizes_bytes.saturating_add(data.len());
            if self.sizes_bytes > self.files as usize * SIZE_BYTES_MAX {
                return corrupt(NAME, "something follows its end");
            }
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(data);
        let mut at = 0;
        while let Some(len) = self.take(&rest[at..], self.rest_at + at)? {
            at += len;
        }
        rest.drain(..at);
        self.rest = rest;
        self.rest_at += at;
        Ok(())
    }

    /// Reads the next part, which is at `at` in the list, and returns its length; `None` if `data` does not
    /// have all of it, or all trees were read.
    fn take(&mut self, data: &[u8], at: usize) -> Result<Option<usize>> {
        let first = data.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let piece = || data.get(4..)?.get(..first? as usize);
        let is_piece = matches!(self.next, NextPart::Commit | NextPart::Trees(1..));
        if is_piece && first.is_some_and(|len| len > PIECE_BYTES_MAX) {
            return corrupt(NAME, format!("an object in it has over {PIECE_BYTES_MAX} bytes"));
        }
        match self.next {
            NextPart::Magic if data.len() < MAGIC.len() => Ok(None),
            NextPart::Magic if !data.starts_with(MAGIC) => corrupt(NAME, "it does not begin as one"),
            NextPart::Magic => {
                self.next = NextPart::Commit;
                Ok(Some(MAGIC.len()))
            }
            NextPart::Commit => {
                let Some(commit) = piece() else { return Ok(None) };
                self.next = NextPart::Count;
                Ok(Some(4 + commit.len()))
            }
            NextPart::Count => {
                let Some(count) = first else { return Ok(None) };
                if count > TREES_MAX {
                    return corrupt(NAME, format!("it has {count} trees, over {TREES_MAX}"));
                }
                self.next = NextPart::Trees(count);
                Ok(Some(4))
            }
            NextPart::Trees(0) => Ok(None),
            NextPart::Trees(left) => {
                let Some(tree) = piece() else { return Ok(None) };
                self.next = NextPart::Trees(left - 1);
                self.note_entries(tree, at + 4)?;
                let number = self.found.trees.len() - 1;
                self.batch.push(Kind::Tree, HashedTree { data: tree.to_vec(), number });
                self.take_hashed()?;
                Ok(Some(4 + tree.len()))
            }
        }
    }

    /// Notes what is in a tree, the content of which is at `at` in the list.
    fn note_entries(&mut self, tree: &[u8], at: usize) -> Result<()> {
        if at + tree.len() > TREES_BYTES_MAX {
            return corrupt(NAME, format!("it has over {TREES_BYTES_MAX} bytes"));
        }
        let (first, before) = (self.found.folders.len(), self.files);
        let mut modules = 0;
        let mut entries = TreeIter::new(self.unknown.kind(), tree);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return corrupt(NAME, "a tree in it is malformed") };
            if entry.is_tree() {
                let end = at + tree.len() - entries.rest().len();
                // A list has fewer bytes than a number of 32 bits can count.
                self.found.folders.push((end - entry.id.len()) as u32);
            } else if entry.is_gitlink() {
                modules += 1;
            } else {
                if entry.id == self.empty.as_bytes() {
                    self.found.empty.push(self.files);
                }
                self.files += 1;
            }
        }
        let folders = first..self.found.folders.len();
        let (oid, len, files) = (self.unknown, tree.len() as u32, self.files - before);
        self.found.trees.push(FoundTree { oid, len, files, modules, folders });
        Ok(())
    }

    fn take_hashed(&mut self) -> Result<()> {
        while let Some((HashedTree { number, .. }, oid)) = self.batch.pop() {
            self.found.trees[number].oid = oid.or_else(|_| corrupt(NAME, "an object in it attacks SHA-1"))?;
        }
        Ok(())
    }

    /// Returns what it has found.
    ///
    /// # Errors
    /// If the list is cut, or a tree attacks SHA-1.
    pub fn finish(mut self) -> Result<HashedTrees> {
        self.batch.flush();
        self.take_hashed()?;
        match self.next {
            NextPart::Trees(0) => Ok(self.found),
            _ => corrupt(NAME, "it is cut"),
        }
    }
}

/// Returns the sum of the notes, but for the sum, and of the sizes in a list.
fn sum_of_notes(notes: &[u8], sizes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(notes);
    sum.update(sizes);
    sum.finalize()
}

fn number(list: &[u8], at: &mut usize) -> Result<u32> {
    match list.get(*at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => {
            *at += 4;
            Ok(u32::from_be_bytes(*bytes))
        }
        None => corrupt(NAME, "it is cut"),
    }
}

fn piece(list: &[u8], at: &mut usize) -> Result<Range<usize>> {
    let len = number(list, at)? as usize;
    let piece = *at..at.saturating_add(len);
    if piece.end > list.len() {
        return corrupt(NAME, "it is cut");
    }
    *at = piece.end;
    Ok(piece)
}

fn size(list: &[u8], at: &mut usize) -> Result<u64> {
    let mut size = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let Some(byte) = list.get(*at) else { break };
        *at += 1;
        size |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(size);
        }
    }
    corrupt(NAME, "a size is cut")
}
