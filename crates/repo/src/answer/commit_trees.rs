//! The trees of a commit with the sizes of its files, for who reads the files later, from another machine
//! (`docs/whole-clones.md`).

use std::ops::Range;

use weir_archive::Region;
use weir_git::{BatchHasher, HashKind, Kind, ObjectHasher, Oid, OidMap, OidSet, TreeIter, commit_links};

use crate::error::{Error, Result, corrupt};
use crate::objects::reader::ObjectReader;
use crate::repo::repository::Repo;

const MAGIC: &[u8] = b"weir trees 1\n";
/// The name of the format in errors.
const NAME: &str = "list of trees";
/// The most bytes of a list. A million files take about 50 MB.
pub const TREES_BYTES_MAX: usize = 1 << 30;
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
}

/// Where a tree is in the list, and the sizes of its files among all.
struct ListedTree {
    at: Range<usize>,
    sizes: Range<usize>,
}

/// A tree in a list while it is hashed.
struct Piece<'l> {
    data: &'l [u8],
    number: usize,
}

impl AsRef<[u8]> for Piece<'_> {
    fn as_ref(&self) -> &[u8] {
        self.data
    }
}

impl CommitTrees {
    /// Reads what [`write_commit_trees`] wrote of `commit`. The commit and all trees below it are there, and
    /// are what their ids say. Nobody vouches for the sizes.
    ///
    /// # Errors
    /// If the list is damaged, or of another commit.
    pub fn parse(hash: HashKind, commit: &Oid, list: Region) -> Result<CommitTrees> {
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
        let oids = hashed(hash, commit, &list, &commit_at, &pieces)?;
        let empty = ObjectHasher::hash(hash, Kind::Blob, b"").expect("it is no attack");
        let mut trees = OidMap::default();
        trees.reserve(oids.len());
        let mut sizes = Vec::new();
        for (at_tree, oid) in pieces.into_iter().zip(oids) {
            let first = sizes.len();
            for entry in TreeIter::new(hash, &list[at_tree.clone()]) {
                let entry = entry.map_err(|source| Error::Object { oid, source })?;
                if !entry.is_tree() && !entry.is_gitlink() {
                    let size = size(&list, &mut at)?;
                    // Nobody reads an empty file, and so nobody would check it.
                    if (size == 0) != (entry.id == empty.as_bytes()) {
                        return corrupt(NAME, "a size is wrong");
                    }
                    sizes.push(size);
                }
            }
            trees.insert(oid, ListedTree { at: at_tree, sizes: first..sizes.len() });
        }
        if at != list.len() {
            return corrupt(NAME, "something follows its end");
        }
        let trees = CommitTrees { hash, list, commit: *commit, commit_at, trees, sizes };
        trees.check_whole()?;
        trees.list.check()?;
        Ok(trees)
    }

    /// Checks that all trees below the commit are there.
    fn check_whole(&self) -> Result<()> {
        let links = commit_links(self.hash, self.commit_data());
        let top = links.map_err(|source| Error::Object { oid: self.commit, source })?.tree;
        let (mut seen, mut waiting) = (OidSet::default(), vec![top]);
        seen.insert(top);
        while let Some(oid) = waiting.pop() {
            let (tree, _) = self.tree(&oid).ok_or(Error::Missing(oid))?;
            let folders = TreeIter::new(self.hash, tree).flatten().filter(|entry| entry.is_tree());
            let ids = folders.map(|entry| Oid::from_bytes(self.hash, entry.id).expect("ids of the hash"));
            waiting.extend(ids.filter(|id| seen.insert(*id)));
        }
        Ok(())
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
    pub fn tree<'t>(&'t self, oid: &Oid) -> Option<(&'t [u8], impl Iterator<Item = Option<u64>> + use<'t>)> {
        let ListedTree { at, sizes } = self.trees.get(oid)?;
        let sizes = self.sizes[sizes.clone()].iter().map(|size| (*size != NO_SIZE).then_some(*size));
        Some((&self.list[at.clone()], sizes))
    }
}

/// Returns the ids of the trees at `pieces`, and checks that of the commit.
fn hashed(
    hash: HashKind,
    commit: &Oid,
    list: &[u8],
    commit_at: &Range<usize>,
    pieces: &[Range<usize>],
) -> Result<Vec<Oid>> {
    let attacked = |_| corrupt(NAME, "an object in it attacks SHA-1");
    let found = ObjectHasher::hash(hash, Kind::Commit, &list[commit_at.clone()]);
    if !found.is_ok_and(|found| found == *commit) {
        return corrupt(NAME, format!("it is not of the commit {commit}"));
    }
    let mut oids = vec![*commit; pieces.len()];
    let mut batch = BatchHasher::new(hash);
    let mut take = |batch: &mut BatchHasher<Piece<'_>>| -> Result<()> {
        while let Some((Piece { number, .. }, oid)) = batch.pop() {
            oids[number] = oid.or_else(attacked)?;
        }
        Ok(())
    };
    for (number, at) in pieces.iter().enumerate() {
        batch.push(Kind::Tree, Piece { data: &list[at.clone()], number });
        take(&mut batch)?;
    }
    batch.flush();
    take(&mut batch)?;
    Ok(oids)
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
