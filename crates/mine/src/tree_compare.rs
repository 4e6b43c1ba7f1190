//! The files that differ between two trees.

use std::collections::HashMap;
use std::rc::Rc;

use weir_git::{Kind, TreeIter};
use weir_repo::{ObjectReader, Result as RepoResult};

use crate::ids::ObjectNumbers;
use crate::mode::Mode;
use crate::tree_steps::{EntryStep, EntrySteps, TreeItem, TreeSteps, compare_entries, is_tree, name_order};

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
const TREE_DEPTH_MAX: usize = 2048;
/// A path of more steps is no help: then the trees are compared whole.
const PATH_STEPS_MAX: usize = 512;
/// The most bytes that the paths of the files that differ between two trees may take.
const PATHS_BYTES_MAX: usize = 1 << 28;
/// The most steps that are remembered of trees that were compared whole.
const REMEMBERED_STEPS_MAX: usize = 1 << 20;

/// A file that differs between two trees. One side may be absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileChange {
    /// Where the path starts in [`FileChanges::paths`].
    path_at: u32,
    path_len: u32,
    pub(crate) old: TreeItem,
    pub(crate) new: TreeItem,
}

/// Files that differ, in the order in which git lists them.
#[derive(Default)]
pub(crate) struct FileChanges {
    pub(crate) list: Vec<FileChange>,
    paths: Vec<u8>,
}

impl FileChanges {
    pub(crate) fn path(&self, change: &FileChange) -> &[u8] {
        &self.paths[change.path_at as usize..][..change.path_len as usize]
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.paths.clear();
    }

    /// Appends a change. Returns whether it could be: the table is bounded.
    fn push(&mut self, folder: &[u8], name: &[u8], old: TreeItem, new: TreeItem) -> bool {
        if self.paths.len() + folder.len() + name.len() > PATHS_BYTES_MAX {
            return false;
        }
        let path_at = self.paths.len() as u32;
        self.paths.extend_from_slice(folder);
        self.paths.extend_from_slice(name);
        let path_len = self.paths.len() as u32 - path_at;
        self.list.push(FileChange { path_at, path_len, old, new });
        true
    }
}

/// Why two trees cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeFault {
    pub(crate) object: u32,
    pub(crate) what: String,
}

/// Compares trees. Has caches of its own, for one thread.
pub(crate) struct TreeComparer<'c, 'f, 'o> {
    ids: &'c ObjectNumbers<'f, 'o>,
    steps: &'c TreeSteps,
    reader: ObjectReader<'o>,
    /// The steps between trees that were compared whole.
    compared: HashMap<(u32, u32), Rc<EntrySteps>>,
    compared_steps: usize,
    /// Buffers of the paths to the roots.
    old_path: Vec<u32>,
    new_path: Vec<u32>,
    /// Buffers for the entries that differ, one a depth.
    spare: Vec<EntrySteps>,
    folder: Vec<u8>,
}

impl<'c, 'f, 'o> TreeComparer<'c, 'f, 'o> {
    pub(crate) fn new(ids: &'c ObjectNumbers<'f, 'o>, steps: &'c TreeSteps) -> Self {
        TreeComparer {
            ids,
            steps,
            reader: ids.forest().objects().reader(),
            compared: HashMap::new(),
            compared_steps: 0,
            old_path: Vec::new(),
            new_path: Vec::new(),
            spare: Vec::new(),
            folder: Vec::new(),
        }
    }

    /// Appends to `out` the files that differ between the trees `old` and `new`. `None` is the empty tree.
    ///
    /// # Errors
    /// If a tree is missing or malformed, or nested too deep. Then what was appended is not all.
    pub(crate) fn compare(
        &mut self,
        old: Option<u32>,
        new: Option<u32>,
        out: &mut FileChanges,
    ) -> Result<(), TreeFault> {
        self.folder.clear();
        let item = |object: Option<u32>| {
            object.map_or(TreeItem::default(), |object| TreeItem { mode: Mode::Tree, object })
        };
        if old == new {
            return Ok(());
        }
        self.compare_trees(item(old), item(new), 0, out)
    }

    fn compare_trees(
        &mut self,
        old: TreeItem,
        new: TreeItem,
        depth: usize,
        out: &mut FileChanges,
    ) -> Result<(), TreeFault> {
        if depth > TREE_DEPTH_MAX {
            let what = format!("trees nested deeper than {TREE_DEPTH_MAX}");
            return Err(TreeFault { object: new.object, what });
        }
        let mut differ = self.spare.pop().unwrap_or_default();
        differ.clear();
        let folder_len = self.folder.len();
        self.entries_that_differ(old, new, &mut differ)?;
        for n in 0..differ.list().len() {
            let step = differ.list()[n];
            let name = differ.name(&step);
            if step.is_tree {
                self.folder.extend_from_slice(name);
                self.folder.push(b'/');
                self.compare_trees(step.old, step.new, depth + 1, out)?;
                self.folder.truncate(folder_len);
            } else if !out.push(&self.folder, name, step.old, step.new) {
                let what = format!("the names of the changed files take more than {PATHS_BYTES_MAX} bytes");
                return Err(TreeFault { object: new.object, what });
            }
        }
        self.spare.push(differ);
        Ok(())
    }

    /// Fills `differ` with the entries that differ between two trees, of which one may be absent.
    fn entries_that_differ(
        &mut self,
        old: TreeItem,
        new: TreeItem,
        differ: &mut EntrySteps,
    ) -> Result<(), TreeFault> {
        if old.mode.is_absent() || new.mode.is_absent() {
            return self.compare_whole(old, new, differ);
        }
        let forest = self.ids.forest();
        let climb = |mut at: u32, path: &mut Vec<u32>| {
            path.clear();
            path.push(at);
            while let Some(base) = self.steps.base(forest, at) {
                path.push(base);
                at = base;
            }
        };
        climb(old.object, &mut self.old_path);
        climb(new.object, &mut self.new_path);
        // The first step apart from the common root; both paths end in the tree at which they meet.
        let (mut olds, mut news) = (self.old_path.len(), self.new_path.len());
        let is_one_tree = self.old_path[olds - 1] == self.new_path[news - 1];
        if is_one_tree {
            while olds > 1 && news > 1 && self.old_path[olds - 2] == self.new_path[news - 2] {
                (olds, news) = (olds - 1, news - 1);
            }
        }
        if olds + news > PATH_STEPS_MAX {
            return self.compare_whole(old, new, differ);
        }
        let between = match is_one_tree {
            true => None,
            false => Some(self.roots_compared(self.old_path[olds - 1], self.new_path[news - 1])?),
        };
        let up = self.old_path[..olds - 1].iter().filter_map(|&n| self.steps.of(n)).map(|s| (s, true));
        let across = between.iter().map(|steps| ((&**steps, steps.list()), false));
        let down =
            self.new_path[..news - 1].iter().rev().filter_map(|&n| self.steps.of(n)).map(|s| (s, false));
        join(up.chain(across).chain(down), differ);
        Ok(())
    }

    /// Returns the steps between two trees that no path joins.
    fn roots_compared(&mut self, old: u32, new: u32) -> Result<Rc<EntrySteps>, TreeFault> {
        if let Some(steps) = self.compared.get(&(old, new)) {
            return Ok(Rc::clone(steps));
        }
        let mut steps = EntrySteps::default();
        let item = |object| TreeItem { mode: Mode::Tree, object };
        self.compare_whole(item(old), item(new), &mut steps)?;
        if self.compared_steps + steps.list().len() > REMEMBERED_STEPS_MAX {
            self.compared.clear();
            self.compared_steps = 0;
        }
        self.compared_steps += steps.list().len() + 1;
        let steps = Rc::new(steps);
        self.compared.insert((old, new), Rc::clone(&steps));
        Ok(steps)
    }

    fn compare_whole(
        &mut self,
        old: TreeItem,
        new: TreeItem,
        differ: &mut EntrySteps,
    ) -> Result<(), TreeFault> {
        let (old_data, new_data) = (self.read(old)?, self.read(new)?);
        let hash = self.ids.forest().objects().hash();
        let item = |entry: Option<weir_git::TreeEntry<'_>>| match entry {
            Some(entry) => TreeItem { mode: Mode::of(entry.mode), object: self.ids.number(entry.id) },
            None => TreeItem::default(),
        };
        let is_compared = compare_entries(hash, &old_data, &new_data, |old, new| {
            let some = new.or(old).expect("one of them");
            differ.push(some.name, is_tree(&some), item(old), item(new))
        });
        if is_compared {
            return Ok(());
        }
        let is_odd = |data: &[u8]| TreeIter::new(hash, data).any(|entry| entry.is_err());
        let object = if is_odd(&new_data) || old.mode.is_absent() { new.object } else { old.object };
        Err(TreeFault { object, what: "malformed tree, or entries out of order".to_owned() })
    }

    fn read(&mut self, item: TreeItem) -> Result<Rc<Vec<u8>>, TreeFault> {
        if item.mode.is_absent() {
            return Ok(Rc::default());
        }
        let oid = self.ids.oid(item.object);
        let read: RepoResult<_> = self.reader.require(&oid);
        match read {
            Ok(object) if object.kind == Kind::Tree => Ok(object.data),
            Ok(object) => Err(TreeFault {
                object: item.object,
                what: format!("a {} in place of a tree", object.kind.name()),
            }),
            Err(e) => Err(TreeFault { object: item.object, what: e.to_string() }),
        }
    }
}

/// Joins steps that follow each other: of each name the first old item and the last new one remain, if they
/// differ. `true` beside steps means that they are taken backwards.
fn join<'s>(parts: impl Iterator<Item = ((&'s EntrySteps, &'s [EntryStep]), bool)>, out: &mut EntrySteps) {
    let mut all: Vec<(&[u8], EntryStep)> = Vec::new();
    let mut count = 0;
    for ((steps, list), is_backwards) in parts {
        count += usize::from(!list.is_empty());
        all.extend(
            list.iter().map(|step| (steps.name(step), if is_backwards { step.reversed() } else { *step })),
        );
    }
    if count > 1 {
        // The sort is stable: steps of one name stay in the order of the path.
        all.sort_by(|(a, x), (b, y)| name_order(a, x.is_tree, b, y.is_tree));
    }
    let mut rest = &all[..];
    while let Some((name, first)) = rest.first() {
        let is_same = |(other, step): &&(&[u8], EntryStep)| *other == *name && step.is_tree == first.is_tree;
        let run = rest.iter().take_while(is_same).count();
        let last = rest[run - 1].1;
        if first.old != last.new && !(first.old.mode.is_absent() && last.new.mode.is_absent()) {
            out.push(name, first.is_tree, first.old, last.new);
        }
        rest = &rest[run..];
    }
}
