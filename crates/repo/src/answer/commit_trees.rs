//! The trees of a commit with the sizes of its files, for who reads the files later, from another machine
//! (`docs/whole-clones.md`).

use std::ops::Range;

use weir_archive::Region;
use weir_git::{BatchHasher, HashKind, Kind, ObjectHasher, Oid, OidMap, OidSet, TreeIter, commit_links};

use crate::error::{Error, Result, corrupt};
use crate::objects::reader::ObjectReader;
use crate::repo::repository::Repo;

const MAGIC: &[u8] = b"weir trees 1\n";
const NOTES_MAGIC: &[u8] = b"weir tree ids 1\n";
/// The name of the format in errors.
const NAME: &str = "list of trees";
/// The most bytes of a list. A million files take about 50 MB.
pub const TREES_BYTES_MAX: usize = 1 << 30;
/// The most bytes of a tree in a list that arrives. Three million entries take this much.
const PIECE_BYTES_MAX: u32 = 128 << 20;
/// The most trees of a list: each takes some 200 bytes of memory, however small it is. A repository of ten
/// million files has about a million.
const TREES_MAX: u32 = 2_000_000;
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

/// A tree the entries of which are being counted.
struct CountedTree<'l> {
    oid: Oid,
    entries: TreeIter<'l>,
    count: u64,
}

/// Where a tree is in the list, and the sizes of its files among all.
struct ListedTree {
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
        let oids = hasher.finish()?;
        CommitTrees::with_ids(hash, commit, list, oids)
    }

    /// Reads a list the trees of which have the ids `oids`, as [`ListHasher`] found them.
    ///
    /// # Errors
    /// As [`CommitTrees::parse`].
    pub fn with_ids(hash: HashKind, commit: &Oid, list: Region, oids: Vec<Oid>) -> Result<CommitTrees> {
        let (mut read, pieces) = CommitTrees::without_trees(hash, commit, list)?;
        if pieces.len() != oids.len() {
            return corrupt(NAME, "it is cut");
        }
        let mut at = read.sizes_at;
        let empty = ObjectHasher::hash(hash, Kind::Blob, b"").expect("it is no attack");
        read.trees.reserve(oids.len());
        for (at_tree, oid) in pieces.into_iter().zip(oids) {
            let first = read.sizes.len();
            for entry in TreeIter::new(hash, &read.list[at_tree.clone()]) {
                let entry = entry.map_err(|source| Error::Object { oid, source })?;
                if !entry.is_tree() && !entry.is_gitlink() {
                    let size = size(&read.list, &mut at)?;
                    // Nobody reads an empty file, and so nobody would check it.
                    if (size == 0) != (entry.id == empty.as_bytes()) {
                        return corrupt(NAME, "a size is wrong");
                    }
                    read.sizes.push(size);
                }
            }
            let tree = ListedTree { at: at_tree, sizes: first..read.sizes.len() };
            if read.trees.insert(oid, tree).is_some() {
                return corrupt(NAME, format!("the tree {oid} is in it twice"));
            }
        }
        if at != read.list.len() {
            return corrupt(NAME, "something follows its end");
        }
        read.is_hashed = true;
        read.entry_count = u32::try_from(read.count_entries()?).ok();
        read.list.check()?;
        Ok(read)
    }

    /// Checks that a list is of `commit`. Returns it without its trees and sizes, and where its trees are.
    fn without_trees(hash: HashKind, commit: &Oid, list: Region) -> Result<(CommitTrees, Vec<Range<usize>>)> {
        let mut at = 0;
        if !list.starts_with(MAGIC) {
            return corrupt(NAME, "it does not begin as one");
        }
        at += MAGIC.len();
        let commit_at = piece(&list, &mut at)?;
        let count = number(&list, &mut at)? as usize;
        let pieces = (0..count.min(list.len() / 4)).map(|_| piece(&list, &mut at));
        let pieces: Vec<Range<usize>> = pieces.collect::<Result<_>>()?;
        if pieces.len() != count {
            return corrupt(NAME, "it is cut");
        }
        let found = ObjectHasher::hash(hash, Kind::Commit, &list[commit_at.clone()]);
        if !found.is_ok_and(|found| found == *commit) {
            return corrupt(NAME, format!("it is not of the commit {commit}"));
        }
        let read = CommitTrees {
            hash,
            list,
            commit: *commit,
            commit_at,
            trees: OidMap::default(),
            sizes: Vec::new(),
            sizes_at: at,
            is_hashed: false,
            entry_count: None,
        };
        Ok((read, pieces))
    }

    /// Returns what [`CommitTrees::with_notes`] needs to read this list again without a look at its trees:
    ///
    /// ```text
    /// "weir tree ids 1\n"
    /// of each tree, in order: its id, and how many sizes it has (32 bits)
    /// a CRC-32 of all that, and of the sizes in the list
    /// ```
    pub fn notes(&self) -> Vec<u8> {
        let mut trees: Vec<(&Oid, &ListedTree)> = self.trees.iter().collect();
        trees.sort_unstable_by_key(|(_, tree)| tree.at.start);
        let mut notes = NOTES_MAGIC.to_vec();
        for (oid, tree) in trees {
            notes.extend_from_slice(oid.as_bytes());
            push_number(&mut notes, u32::try_from(tree.sizes.len()).expect("a list has a GiB at most"));
        }
        let sum = sum_of_notes(&notes, &self.list[self.sizes_at..]);
        push_number(&mut notes, sum);
        notes
    }

    /// Reads a list that was read before, and of which these are the [`CommitTrees::notes`]. A tree is
    /// checked each time that it is read.
    ///
    /// # Errors
    /// If the notes, the commit or the sizes are damaged, or those of another list.
    pub fn with_notes(hash: HashKind, commit: &Oid, list: Region, notes: &[u8]) -> Result<CommitTrees> {
        let (mut read, pieces) = CommitTrees::without_trees(hash, commit, list)?;
        let damaged = || corrupt(NAME, "the notes of it are damaged");
        let Some((content, sum)) = notes.split_last_chunk() else { return damaged() };
        let records = content.strip_prefix(NOTES_MAGIC).unwrap_or_default();
        let record_len = hash.len() + std::mem::size_of::<u32>();
        if u32::from_be_bytes(*sum) != sum_of_notes(content, &read.list[read.sizes_at..])
            || records.len() != pieces.len() * record_len
        {
            return damaged();
        }
        let mut at = read.sizes_at;
        read.trees.reserve(pieces.len());
        for (at_tree, record) in pieces.into_iter().zip(records.chunks_exact(record_len)) {
            let (oid, mut count_at) = (Oid::from_bytes(hash, &record[..hash.len()]), hash.len());
            let first = read.sizes.len();
            for _ in 0..number(record, &mut count_at)? {
                read.sizes.push(size(&read.list, &mut at)?);
            }
            let oid = oid.expect("it has the bytes of one");
            read.trees.insert(oid, ListedTree { at: at_tree, sizes: first..read.sizes.len() });
        }
        read.list.check()?;
        Ok(read)
    }

    /// Returns the number of files, links and submodules below the commit. It may be larger than any disk:
    /// equal folders are one tree.
    ///
    /// # Errors
    /// If a tree below the commit is not there.
    fn count_entries(&self) -> Result<u64> {
        let links = commit_links(self.hash, self.commit_data());
        let top = links.map_err(|source| Error::Object { oid: self.commit, source })?.tree;
        let counted = |oid: Oid| -> Result<CountedTree<'_>> {
            let (tree, _) = self.tree(&oid)?;
            Ok(CountedTree { oid, entries: TreeIter::new(self.hash, tree), count: 0 })
        };
        let (mut counts, mut above) = (OidMap::<u64>::default(), Vec::new());
        let mut tree = counted(top)?;
        loop {
            match tree.entries.next() {
                Some(entry) => {
                    let entry = entry.map_err(|source| Error::Object { oid: tree.oid, source })?;
                    if !entry.is_tree() {
                        tree.count = tree.count.saturating_add(1);
                        continue;
                    }
                    let id = Oid::from_bytes(self.hash, entry.id).expect("entries have ids of the hash");
                    match counts.get(&id) {
                        Some(count) => tree.count = tree.count.saturating_add(*count),
                        None => above.push(std::mem::replace(&mut tree, counted(id)?)),
                    }
                }
                None => {
                    let CountedTree { oid, count, .. } = tree;
                    counts.insert(oid, count);
                    let Some(folder) = above.pop() else { return Ok(count) };
                    tree = folder;
                    tree.count = tree.count.saturating_add(count);
                }
            }
        }
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
        let ListedTree { at, sizes } = self.trees.get(oid).ok_or(Error::Missing(*oid))?;
        let data = &self.list[at.clone()];
        if !self.is_hashed && ObjectHasher::hash(self.hash, Kind::Tree, data).ok() != Some(*oid) {
            return corrupt(NAME, format!("the tree {oid} in it is damaged"));
        }
        let sizes = self.sizes[sizes.clone()].iter().map(|size| (*size != NO_SIZE).then_some(*size));
        Ok((data, sizes))
    }
}

/// Hashes the trees of a list while it arrives.
pub struct ListHasher {
    batch: BatchHasher<HashedTree>,
    /// The last bytes that have arrived: the beginning of an object or number, the rest of which has not.
    rest: Vec<u8>,
    next: NextPart,
    oids: Vec<Oid>,
    /// Stands for a tree that is being hashed.
    unknown: Oid,
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
        let batch = BatchHasher::new(hash);
        ListHasher { batch, rest: Vec::new(), next: NextPart::Magic, oids: Vec::new(), unknown }
    }

    /// Hashes the trees that end in `data`, the next bytes of the list.
    ///
    /// # Errors
    /// If the bytes are those of no list, or a tree attacks SHA-1.
    pub fn push(&mut self, data: &[u8]) -> Result<()> {
        if matches!(self.next, NextPart::Trees(0)) {
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(data);
        let mut at = 0;
        while let Some(len) = self.take(&rest[at..])? {
            at += len;
        }
        rest.drain(..at);
        self.rest = rest;
        Ok(())
    }

    /// Reads the next part, and returns its length; `None` if `data` does not have all of it, or all trees
    /// were read.
    fn take(&mut self, data: &[u8]) -> Result<Option<usize>> {
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
                let number = self.oids.len();
                self.oids.push(self.unknown);
                self.batch.push(Kind::Tree, HashedTree { data: tree.to_vec(), number });
                self.take_hashed()?;
                Ok(Some(4 + tree.len()))
            }
        }
    }

    fn take_hashed(&mut self) -> Result<()> {
        while let Some((HashedTree { number, .. }, oid)) = self.batch.pop() {
            self.oids[number] = oid.or_else(|_| corrupt(NAME, "an object in it attacks SHA-1"))?;
        }
        Ok(())
    }

    /// Returns the ids of the trees, in order.
    ///
    /// # Errors
    /// If the list is cut, or a tree attacks SHA-1.
    pub fn finish(mut self) -> Result<Vec<Oid>> {
        self.batch.flush();
        self.take_hashed()?;
        match self.next {
            NextPart::Trees(0) => Ok(self.oids),
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
