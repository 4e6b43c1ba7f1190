//! Folders of a tree, page by page, with the sizes of files.

use weir_git::{Kind, Oid, TreeEntry, TreeIter};
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::kept;

/// Trees nested deeper than this are not listed; git's own limit is 2048 (core.maxTreeDepth).
const DEPTH_MAX: usize = 2048;
const FOLDER: u32 = 0o040_000;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// The path from the top of the tree.
    pub path: Vec<u8>,
    /// The mode, as its octal number.
    pub mode: u32,
    /// `blob`, `tree` or `commit`.
    pub kind: &'static str,
    /// The id.
    pub oid: Oid,
    /// The bytes of a file.
    pub size: Option<u64>,
}

impl FolderEntry {
    /// Returns its name in the folder.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Returns its place among others, with which the next page begins.
    pub fn place(&self) -> Vec<u8> {
        // A folder is where its files are.
        if self.kind == "tree" { [&self.path[..], b"/"].concat() } else { self.path.clone() }
    }
}

/// A request for entries of a folder.
#[derive(Clone, Debug, Default)]
pub struct FolderList {
    /// The path of the folder.
    pub path: Vec<u8>,
    /// Whether to list the files in it and in all folders below, in place of its entries.
    pub is_recursive: bool,
    /// The place after which the list begins.
    pub after: Option<Vec<u8>>,
    /// The entries of one page.
    pub count_max: usize,
}

/// Returns the mode and the id of the entry at `path` in the tree `top`, or of the tree itself.
///
/// # Errors
/// If there is none.
pub fn entry_at(repo: &Repo, top: &Oid, path: &[u8]) -> Result<(u32, Oid)> {
    let mut reader = repo.reader();
    let (mut mode, mut at) = (FOLDER, *top);
    for name in names_of(path) {
        let none = || Error::NotFound(format!("there is no '{}'", String::from_utf8_lossy(path)));
        if mode & 0o170_000 != FOLDER {
            return Err(none());
        }
        let tree = kept::read(&mut reader, &at)?;
        let found = TreeIter::new(repo.hash(), &tree).filter_map(std::result::Result::ok);
        let entry = found.into_iter().find(|entry| entry.name == name).ok_or_else(none)?;
        (mode, at) = (entry.mode, Oid::from_bytes(repo.hash(), entry.id).expect("ids of entries are ids"));
    }
    Ok((mode, at))
}

/// Returns the entries of a folder of the tree `top`, and whether there are more.
///
/// # Errors
/// If there is no such folder, or an object is missing or corrupt.
pub fn list_folder(repo: &Repo, top: &Oid, query: &FolderList) -> Result<(Vec<FolderEntry>, bool)> {
    let (mode, folder) = entry_at(repo, top, &query.path)?;
    if mode & 0o170_000 != FOLDER {
        return Err(Error::WrongKind(format!("'{}' is no folder", String::from_utf8_lossy(&query.path))));
    }
    let mut path = clean_path(&query.path);
    if !path.is_empty() {
        path.push(b'/');
    }
    let reader = repo.reader();
    let mut lister =
        FolderLister { repo, reader, query, entries: Vec::new(), last: Vec::new(), is_ordered: true };
    let has_more = !lister.list(&folder, &mut path, 0)?;
    // A page would begin at the wrong place.
    if !lister.is_ordered && (has_more || query.after.is_some()) {
        let words = "the entries of a tree are not in order: only one page can have them all";
        return Err(Error::WrongKind(words.to_owned()));
    }
    Ok((lister.entries, has_more))
}

struct FolderLister<'r> {
    repo: &'r Repo,
    reader: ObjectReader<'r>,
    query: &'r FolderList,
    entries: Vec<FolderEntry>,
    /// The place of the entry before.
    last: Vec<u8>,
    /// Whether all entries so far were in order.
    is_ordered: bool,
}

/// Returns a path with single slashes between its names.
pub fn clean_path(path: &[u8]) -> Vec<u8> {
    names_of(path).collect::<Vec<_>>().join(&b'/')
}

/// Returns the names in a path.
pub(crate) fn names_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

impl FolderLister<'_> {
    /// Lists the tree `oid` at `path`. Returns whether that is all of it.
    fn list(&mut self, oid: &Oid, path: &mut Vec<u8>, depth: usize) -> Result<bool> {
        let tree = kept::read(&mut self.reader, oid)?;
        let len = path.len();
        for entry in TreeIter::new(self.repo.hash(), &tree) {
            let entry = entry.map_err(Error::of_object(oid))?;
            let id = Oid::from_bytes(self.repo.hash(), entry.id).expect("ids of entries are ids");
            path.extend_from_slice(entry.name);
            let is_whole = self.entry(&entry, id, path, depth)?;
            path.truncate(len);
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lists an entry. Returns false if there is no room for it.
    fn entry(&mut self, entry: &TreeEntry<'_>, oid: Oid, path: &mut Vec<u8>, depth: usize) -> Result<bool> {
        let descends = entry.is_tree() && self.query.is_recursive && depth < DEPTH_MAX;
        if entry.is_tree() {
            path.push(b'/');
        }
        self.is_ordered &= *path > self.last;
        self.last.clone_from(path);
        // Entries have this order: a folder is where its files are.
        let is_before = |after: &Vec<u8>| match descends {
            true => *path <= *after && !after.starts_with(path),
            false => *path <= *after,
        };
        if self.query.after.as_ref().is_some_and(is_before) {
            return Ok(true);
        }
        if descends {
            return self.list(&oid, path, depth + 1);
        }
        if self.entries.len() >= self.query.count_max {
            return Ok(false);
        }
        let (kind, size) = match entry {
            entry if entry.is_tree() => ("tree", None),
            entry if entry.is_gitlink() => ("commit", None),
            _ => ("blob", self.reader.kind_and_size(&oid)?.filter(|(kind, _)| *kind == Kind::Blob)),
        };
        let shown = path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let size = size.map(|(_, size)| size);
        self.entries.push(FolderEntry { path: shown, mode: entry.mode, kind, oid, size });
        Ok(true)
    }
}
