//! The entry at one path in the trees of many commits.

use weir_git::{Kind, Oid, OidMap, TreeIter};
use weir_mine::Mode;
use weir_repo::{FilteredPath, LinkedCommit, ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::folder::names_of;

/// Trees of which an entry is remembered.
const KNOWN_ENTRIES_MAX: usize = 1 << 16;

/// An entry of a tree: its mode and its object. Old trees have modes that git takes for others.
pub(crate) type PathEntry = Option<(Mode, Oid)>;

/// A path, and what trees have there.
pub(crate) struct PathEntries {
    /// The names on the way to the path.
    names: Vec<Vec<u8>>,
    filtered: Option<FilteredPath>,
    /// The entries of trees, by the number of names before.
    known: Vec<OidMap<PathEntry>>,
}

impl PathEntries {
    pub(crate) fn new(path: &[u8]) -> PathEntries {
        let names: Vec<Vec<u8>> = names_of(path).map(<[u8]>::to_vec).collect();
        PathEntries {
            filtered: FilteredPath::new(&names),
            known: vec![OidMap::default(); names.len()],
            names,
        }
    }

    /// Returns the path, with single slashes.
    pub(crate) fn path(&self) -> Vec<u8> {
        self.names.join(&b'/')
    }

    /// Returns whether the path is that of the top folder.
    pub(crate) fn is_top(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns whether `commit` certainly has at the path what its first parent has, without a look at trees.
    pub(crate) fn is_certainly_unchanged(&self, repo: &Repo, commit: &LinkedCommit) -> bool {
        self.filtered.as_ref().is_some_and(|path| !repo.history().may_change(commit, path))
    }

    /// Returns whether the trees `ours` and `theirs` have the same at the path.
    pub(crate) fn is_same(
        &mut self,
        reader: &mut ObjectReader<'_>,
        ours: &Oid,
        theirs: &Oid,
    ) -> Result<bool> {
        let (mut ours, mut theirs) = ((Mode::Tree, *ours), (Mode::Tree, *theirs));
        for depth in 0..self.names.len() {
            if ours == theirs {
                return Ok(true);
            }
            let mut entry = |at: (Mode, Oid)| match at.0 {
                Mode::Tree => self.entry_of(reader, &at.1, depth),
                _ => Ok(None),
            };
            match (entry(ours)?, entry(theirs)?) {
                (Some(our), Some(their)) => (ours, theirs) = (our, their),
                (None, None) => return Ok(true),
                _ if depth + 1 == self.names.len() => return Ok(false),
                // One of them has no such folder.
                (our, their) => {
                    let rest = our.or(their).expect("one of them is there");
                    return Ok(self.entry_below(reader, rest, depth + 1)?.is_none());
                }
            }
        }
        Ok(ours == theirs)
    }

    /// Returns the entry at the path in the tree `top`.
    pub(crate) fn entry(&mut self, reader: &mut ObjectReader<'_>, top: &Oid) -> Result<PathEntry> {
        self.entry_below(reader, (Mode::Tree, *top), 0)
    }

    /// Returns the entry at the rest of the path, from name `depth` on, below `at`.
    fn entry_below(
        &mut self,
        reader: &mut ObjectReader<'_>,
        mut at: (Mode, Oid),
        depth: usize,
    ) -> Result<PathEntry> {
        for depth in depth..self.names.len() {
            if at.0 != Mode::Tree {
                return Ok(None);
            }
            let Some(entry) = self.entry_of(reader, &at.1, depth)? else { return Ok(None) };
            at = entry;
        }
        Ok(Some(at))
    }

    /// Returns the entry of the tree `tree` with the name number `depth`.
    fn entry_of(&mut self, reader: &mut ObjectReader<'_>, tree: &Oid, depth: usize) -> Result<PathEntry> {
        if let Some(entry) = self.known[depth].get(tree) {
            return Ok(*entry);
        }
        // Trees of old commits are read once: nothing is gained if they are kept for others.
        let object = reader.require(tree)?;
        let hash = reader.objects().hash();
        let mut found = None;
        if object.kind == Kind::Tree {
            for entry in TreeIter::new(hash, &object.data) {
                let entry = entry.map_err(Error::of_object(tree))?;
                if entry.name == self.names[depth] {
                    let oid = Oid::from_bytes(hash, entry.id).expect("ids of entries are ids");
                    found = Some((Mode::of(entry.mode), oid));
                    break;
                }
            }
        }
        if self.known[depth].len() >= KNOWN_ENTRIES_MAX {
            self.known[depth].clear();
        }
        self.known[depth].insert(*tree, found);
        Ok(found)
    }
}
