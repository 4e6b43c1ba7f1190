//! The last commit that changed each entry of a folder, as `git log -1 -- PATH` finds it for each of them.
//!
//! One walk looks for all of them. A commit has the entries that have not changed since, on the way from the
//! newest commit to it, and passes each to the parent that has the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use weir_git::{Oid, OidMap, TreeIter};
use weir_mine::Mode;
use weir_repo::{FilteredPath, LinkedCommit, ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::path_entries::PathEntries;

/// Trees of the folder that are remembered.
const KNOWN_FOLDERS_MAX: usize = 64;

/// Numbers of entries.
type EntryNumbers = Vec<u32>;

/// The modes and the ids of the entries that are looked for, by number.
type FolderRow = Rc<Vec<Option<(Mode, Oid)>>>;

struct LastCommits<'r> {
    repo: &'r Repo,
    reader: ObjectReader<'r>,
    folder: PathEntries,
    /// The names that are looked for, sorted, and the number of each.
    names: Vec<(Vec<u8>, u32)>,
    filtered: Vec<Option<FilteredPath>>,
    found: Vec<Option<Oid>>,
    /// The commits that have entries: by time, and by the order in which they were met.
    queue: BinaryHeap<(u64, Reverse<usize>, Oid)>,
    met: usize,
    waiting: OidMap<EntryNumbers>,
    /// The entries of trees of the folder.
    rows: OidMap<FolderRow>,
}

/// Returns, for each of the `names` in the folder `path` of the commit `from`, the last commit that changed
/// it; `None` where it is not among the `walked_max` newest.
///
/// # Errors
/// If an object is missing or corrupt.
pub fn last_commits(
    repo: &Repo,
    from: &Oid,
    path: &[u8],
    names: &[&[u8]],
    walked_max: usize,
) -> Result<Vec<Option<Oid>>> {
    let folder = PathEntries::new(path);
    let of = |name: &&[u8]| {
        let whole = [&folder.path(), &b"/"[..], name].concat();
        let parts: Vec<&[u8]> = whole.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        FilteredPath::new(&parts)
    };
    let filtered = names.iter().map(of).collect();
    let mut sorted: Vec<(Vec<u8>, u32)> = names.iter().map(|name| name.to_vec()).zip(0..).collect();
    sorted.sort_unstable();
    let mut walk = LastCommits {
        repo,
        reader: repo.reader(),
        folder,
        names: sorted,
        filtered,
        found: vec![None; names.len()],
        queue: BinaryHeap::new(),
        met: 0,
        waiting: OidMap::default(),
        rows: OidMap::default(),
    };
    walk.pass_to(from, (0..names.len() as u32).collect())?;
    let mut walked = 0;
    while let Some((_, _, oid)) = walk.queue.pop()
        && walked < walked_max
    {
        walked += 1;
        let mut entries = walk.waiting.remove(&oid).unwrap_or_default();
        entries.retain(|entry| walk.found[*entry as usize].is_none());
        if !entries.is_empty() {
            walk.look_at(&oid, entries)?;
        }
    }
    Ok(walk.found)
}

impl LastCommits<'_> {
    fn pass_to(&mut self, commit: &Oid, entries: EntryNumbers) -> Result<()> {
        if let Some(waiting) = self.waiting.get_mut(commit) {
            waiting.extend(entries);
            waiting.sort_unstable();
            waiting.dedup();
            return Ok(());
        }
        let time = self.repo.history().commit(&mut self.reader, commit)?.time;
        self.queue.push((time, Reverse(self.met), *commit));
        self.met += 1;
        self.waiting.insert(*commit, entries);
        Ok(())
    }

    /// Passes the `entries` of a commit to its parents. Those that none of them has are found.
    fn look_at(&mut self, oid: &Oid, mut entries: EntryNumbers) -> Result<()> {
        let commit = self.repo.history().commit(&mut self.reader, oid)?;
        for rank in 0..commit.parents.len() {
            let parent = commit.parents[rank];
            if !self.repo.contains(&parent) {
                continue;
            }
            let same = self.same_in(&commit, rank, &parent, &mut entries)?;
            if !same.is_empty() {
                self.pass_to(&parent, same)?;
            }
            if entries.is_empty() {
                return Ok(());
            }
        }
        for entry in entries {
            debug_assert!(self.found[entry as usize].is_none(), "an entry has two last commits");
            self.found[entry as usize] = Some(*oid);
        }
        Ok(())
    }

    /// Takes those of the `entries` that the parent number `rank` has, too.
    fn same_in(
        &mut self,
        commit: &LinkedCommit,
        rank: usize,
        parent: &Oid,
        entries: &mut EntryNumbers,
    ) -> Result<EntryNumbers> {
        let mut same = Vec::new();
        if rank == 0 {
            let history = self.repo.history();
            let denied = |entry: &u32| {
                let path = self.filtered[*entry as usize].as_ref();
                path.is_some_and(|path| !history.may_change(commit, path))
            };
            same.extend(entries.extract_if(.., |entry| denied(entry)));
            if entries.is_empty() {
                return Ok(same);
            }
        }
        let parent = self.repo.history().commit(&mut self.reader, parent)?;
        let (ours, theirs) = (self.row(&commit.tree)?, self.row(&parent.tree)?);
        let is_same = |entry: &mut u32| ours[*entry as usize] == theirs[*entry as usize];
        same.extend(entries.extract_if(.., is_same));
        Ok(same)
    }

    /// Returns the entries of the folder in the tree `top`.
    fn row(&mut self, top: &Oid) -> Result<FolderRow> {
        let none = || Rc::new(vec![None; self.names.len()]);
        let folder = match self.folder.entry(&mut self.reader, top)? {
            Some((Mode::Tree, oid)) => oid,
            _ => return Ok(none()),
        };
        if let Some(row) = self.rows.get(&folder) {
            return Ok(row.clone());
        }
        let object = self.reader.require(&folder)?;
        let mut row = vec![None; self.names.len()];
        for entry in TreeIter::new(self.repo.hash(), &object.data) {
            let entry = entry.map_err(Error::of_object(&folder))?;
            let Ok(at) = self.names.binary_search_by(|(name, _)| name.as_slice().cmp(entry.name)) else {
                continue;
            };
            let place = &mut row[self.names[at].1 as usize];
            // As git, of two entries with one name it takes the first.
            if place.is_none() {
                let oid = Oid::from_bytes(self.repo.hash(), entry.id).expect("ids of entries are ids");
                *place = Some((Mode::of(entry.mode), oid));
            }
        }
        if self.rows.len() >= KNOWN_FOLDERS_MAX {
            self.rows.clear();
        }
        let row = Rc::new(row);
        self.rows.insert(folder, row.clone());
        Ok(row)
    }
}
