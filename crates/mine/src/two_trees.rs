//! The files that differ between two trees, as `git diff-tree -r -M --numstat` lists them, without the
//! tables that mining makes of a whole repository.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use weir_git::{Kind, Oid, OidMap, TreeEntry};
use weir_ground::Stop;
use weir_repo::{Error, Inflate, ObjectReader, Repo, Result};

use crate::entries::{compare_entries, compare_entries_in_any_order, is_tree};
use crate::line_stats::{looks_binary, text};
use crate::lines::LineCounter;
use crate::mode::Mode;
use crate::renames::{RenameOptions, Status, pairs};
use crate::rows::Lines;
use crate::similarity::{NumberedObjects, Similarity};
use crate::tree_compare::FileChanges;
use crate::tree_steps::TreeItem;

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
const DEPTH_MAX: usize = 2048;
/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file that differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDifference {
    /// The kind of the change.
    pub status: Status,
    /// The similarity in percent, of renames and copies.
    pub similarity: u8,
    /// The file before, unless it is new.
    pub old: Option<DifferenceSide>,
    /// The file after, unless it is gone.
    pub new: Option<DifferenceSide>,
    /// How many lines differ.
    pub lines: Lines,
}

/// One side of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferenceSide {
    /// The path.
    pub path: Vec<u8>,
    /// The mode.
    pub mode: Mode,
    /// The id.
    pub oid: Oid,
}

/// The files that differ between two trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeDifference {
    /// The wanted ones of the files, in git's order.
    pub files: Vec<FileDifference>,
    /// The number of all files that differ.
    pub count: usize,
    /// Whether more files differ than are wanted: then none is listed.
    pub is_too_large: bool,
}

/// The objects that a comparison has met.
struct MetObjects<'r> {
    repo: &'r Repo,
    reader: RefCell<ObjectReader<'r>>,
    oids: RefCell<Vec<Oid>>,
    numbers: RefCell<OidMap<u32>>,
}

impl<'r> MetObjects<'r> {
    fn new(repo: &'r Repo) -> MetObjects<'r> {
        MetObjects {
            repo,
            reader: RefCell::new(repo.reader()),
            oids: RefCell::default(),
            numbers: RefCell::default(),
        }
    }

    fn side(&self, item: TreeItem, path: &[u8]) -> Option<DifferenceSide> {
        let oid = (!item.mode.is_absent()).then(|| self.oid(item.object));
        oid.map(|oid| DifferenceSide { path: path.to_vec(), mode: item.mode, oid })
    }

    fn item(&self, entry: Option<&TreeEntry<'_>>) -> TreeItem {
        let Some(entry) = entry else { return TreeItem::default() };
        let oid = Oid::from_bytes(self.repo.hash(), entry.id).expect("ids of entries are ids");
        let mut oids = self.oids.borrow_mut();
        let object = *self.numbers.borrow_mut().entry(oid).or_insert_with(|| {
            oids.push(oid);
            oids.len() as u32 - 1
        });
        TreeItem { mode: Mode::of(entry.mode), object }
    }
}

impl<'r> NumberedObjects<'r> for MetObjects<'r> {
    fn reader(&self) -> ObjectReader<'r> {
        self.repo.reader()
    }

    fn size(&self, object: u32, _: &mut Inflate) -> Option<u64> {
        let found = self.reader.borrow_mut().kind_and_size(&self.oid(object)).ok().flatten();
        found.filter(|(_, size)| *size <= FILE_BYTES_MAX).map(|(_, size)| size)
    }

    fn oid(&self, object: u32) -> Oid {
        self.oids.borrow()[object as usize]
    }
}

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct TreeComparison<'a> {
    /// The path at or below which files are compared; empty for all.
    pub path: &'a [u8],
    /// How renames are found.
    pub renames: RenameOptions,
    /// The most files that may differ.
    pub count_max: usize,
    /// The files that are listed, by number.
    pub wanted: Range<usize>,
    /// Whether the lines of these are counted.
    pub counts_lines: bool,
}

impl Default for TreeComparison<'_> {
    fn default() -> Self {
        TreeComparison {
            path: b"",
            renames: RenameOptions::default(),
            count_max: usize::MAX,
            wanted: 0..usize::MAX,
            counts_lines: true,
        }
    }
}

/// Returns the wanted ones of the files that differ between the trees `old` and `new`; `None` is the empty
/// tree. If more files differ than may, returns none of them. The lines of a file that is listed are
/// unavailable if they are not counted.
///
/// # Errors
/// If a tree is missing or malformed.
pub fn compare_trees(
    repo: &Repo,
    old: Option<&Oid>,
    new: Option<&Oid>,
    options: &TreeComparison<'_>,
) -> Result<TreeDifference> {
    let TreeComparison { path, renames, count_max, wanted, counts_lines } = options;
    let objects = MetObjects::new(repo);
    let mut changes = FileChanges::at_most(*count_max);
    let mut add = |folder: &[u8], name: &[u8], from, to| changes.push(folder, name, from, to);
    if old != new && !each_change(&objects, old, new, path, &mut Vec::new(), 0, &mut add)? {
        return Ok(TreeDifference { is_too_large: true, ..TreeDifference::default() });
    }
    let mut similarity = Similarity::new(&objects, renames.counts_last_line);
    let mut found = Vec::new();
    pairs(&changes, renames, &mut similarity, &Stop::default(), &mut found);
    let mut counter = LineCounter::default();
    let mut files = Vec::new();
    for pair in found.iter().take(wanted.end).skip(wanted.start) {
        let (from, to) = (&changes.list[pair.old as usize], &changes.list[pair.new as usize]);
        files.push(FileDifference {
            status: pair.status,
            similarity: pair.similarity,
            old: objects.side(from.old, changes.path(from)),
            new: objects.side(to.new, changes.path(to)),
            lines: match counts_lines {
                true => lines(&objects, from.old, to.new, &mut counter),
                false => Lines::Unavailable,
            },
        });
    }
    Ok(TreeDifference { files, count: found.len(), is_too_large: false })
}

/// Returns the file of the tree `old` that has become the file `path` of the tree `new`, which `old` does not
/// have, as `git log --follow` and `git blame` find it.
///
/// # Errors
/// If a tree is missing or malformed, or more than `count_max` files are gone.
pub fn renamed_from(
    repo: &Repo,
    old: &Oid,
    new: &Oid,
    path: &[u8],
    renames: &RenameOptions,
    count_max: usize,
) -> Result<Option<DifferenceSide>> {
    let objects = MetObjects::new(repo);
    let mut changes = FileChanges::at_most(count_max);
    let mut add = |folder: &[u8], name: &[u8], from: TreeItem, to: TreeItem| {
        let is_wanted = || from.mode.is_absent() && path.strip_prefix(folder) == Some(name);
        !(to.mode.is_absent() || is_wanted()) || changes.push(folder, name, from, to)
    };
    if !each_change(&objects, Some(old), Some(new), b"", &mut Vec::new(), 0, &mut add)? {
        let words = format!("more than {count_max} files are gone from {old} to {new}");
        return Err(Error::Unsupported(words));
    }
    let mut similarity = Similarity::new(&objects, renames.counts_last_line);
    let mut found = Vec::new();
    pairs(&changes, renames, &mut similarity, &Stop::default(), &mut found);
    let moved = found.iter().find(|pair| matches!(pair.status, Status::Renamed | Status::Copied));
    Ok(moved.and_then(|pair| {
        let from = &changes.list[pair.old as usize];
        objects.side(from.old, changes.path(from))
    }))
}

/// Calls `add` with the folder, the name and both sides of each file at or below `below` that differs between
/// two trees in the folder `path`, until it returns false. Returns whether it never did.
fn each_change(
    objects: &MetObjects<'_>,
    old: Option<&Oid>,
    new: Option<&Oid>,
    below: &[u8],
    path: &mut Vec<u8>,
    depth: usize,
    add: &mut impl FnMut(&[u8], &[u8], TreeItem, TreeItem) -> bool,
) -> Result<bool> {
    if depth > DEPTH_MAX {
        return Err(Error::Unsupported(format!("trees are nested deeper than {DEPTH_MAX}")));
    }
    let (old_data, new_data) = (tree(objects, old)?, tree(objects, new)?);
    let hash = objects.repo.hash();
    let mut differ = Vec::new();
    if !compare_entries(hash, &old_data, &new_data, |old, new| {
        differ.push((old, new));
        true
    }) {
        differ.clear();
        let is_compared = compare_entries_in_any_order(hash, &old_data, &new_data, |old, new| {
            differ.push((old, new));
            true
        });
        if !is_compared {
            let oid = new.or(old).expect("one of them is a tree");
            return Err(Error::Corrupt { file: oid.to_string(), what: "a malformed tree".to_owned() });
        }
    }
    let len = path.len();
    // The name that is wanted here, if not all are, and what is wanted below it.
    let end = below.iter().position(|&byte| byte == b'/').unwrap_or(below.len());
    let (name, rest) = (&below[..end], &below[(end + 1).min(below.len())..]);
    for (old, new) in differ {
        let entry = new.or(old).expect("one of them is there");
        if !name.is_empty() && (entry.name != name || !(rest.is_empty() || is_tree(&entry))) {
            continue;
        }
        let [from, to] = [old, new].map(|entry| objects.item(entry.as_ref()));
        let fits = if is_tree(&entry) {
            path.extend_from_slice(entry.name);
            path.push(b'/');
            let oid = |item: TreeItem| (!item.mode.is_absent()).then(|| objects.oid(item.object));
            each_change(objects, oid(from).as_ref(), oid(to).as_ref(), rest, path, depth + 1, add)?
        } else {
            add(path, entry.name, from, to)
        };
        path.truncate(len);
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

fn tree(objects: &MetObjects<'_>, oid: Option<&Oid>) -> Result<Rc<Vec<u8>>> {
    let Some(oid) = oid else { return Ok(Rc::default()) };
    let object = objects.reader.borrow_mut().require(oid)?;
    match object.kind {
        Kind::Tree => Ok(object.data),
        kind => Err(Error::NotFound(format!("object {oid} is a {}, not a tree", kind.name()))),
    }
}

/// Returns how many lines differ between two files.
fn lines(objects: &MetObjects<'_>, old: TreeItem, new: TreeItem, counter: &mut LineCounter) -> Lines {
    let data = |item: TreeItem| -> Option<Rc<Vec<u8>>> {
        match item.mode {
            Mode::Absent => Some(Rc::default()),
            // A submodule is shown as a line of text.
            Mode::Gitlink => {
                Some(Rc::new(format!("Subproject commit {}\n", objects.oid(item.object)).into()))
            }
            _ => {
                objects.size(item.object, &mut Inflate::default())?;
                let object = objects.reader.borrow_mut().read(&objects.oid(item.object)).ok().flatten()?;
                Some(object.data)
            }
        }
    };
    let Some((old, new)) = data(old).zip(data(new)) else { return Lines::Unavailable };
    if looks_binary(&old) || looks_binary(&new) {
        return Lines::Binary;
    }
    text(counter.count(&old, &new))
}
