//! The files that differ between two trees.

use std::collections::HashMap;
use std::rc::Rc;

use weir_git::{Kind, TreeEntry, TreeIter};
use weir_ground::Stop;
use weir_repo::{ObjectReader, Result as RepoResult};

use crate::entries::{compare_entries, compare_entries_in_any_order, is_tree, name_order};
use crate::ids::ObjectNumbers;
use crate::mode::Mode;
use crate::names::ThreadNames;
use crate::tree_steps::{EntryStep, PendingIds, TreeItem, TreeSteps};

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
const TREE_DEPTH_MAX: usize = 2048;
/// A path of more steps is no help: then the trees are compared whole.
const PATH_STEPS_MAX: usize = 512;
/// The most bytes that the paths of the files that differ between two trees may take.
const PATHS_BYTES_MAX: usize = 1 << 28;
/// The most steps that are remembered of trees that were compared whole.
const REMEMBERED_STEPS_MAX: usize = 1 << 20;

/// The most bytes of trees that are remembered.
const REMEMBERED_BYTES_MAX: usize = 24 << 20;
const _: () = assert!(PATH_STEPS_MAX <= TREE_DEPTH_MAX, "no path is deeper than a tree");

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
pub(crate) struct FileChanges {
    pub(crate) list: Vec<FileChange>,
    paths: Vec<u8>,
    /// The most files.
    count_max: usize,
}

impl FileChanges {
    pub(crate) fn at_most(count_max: usize) -> FileChanges {
        FileChanges { list: Vec::new(), paths: Vec::new(), count_max }
    }

    pub(crate) fn path(&self, change: &FileChange) -> &[u8] {
        &self.paths[change.path_at as usize..][..change.path_len as usize]
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.paths.clear();
    }

    /// Appends a change. Returns whether it could be: the table is bounded.
    pub(crate) fn push(&mut self, folder: &[u8], name: &[u8], old: TreeItem, new: TreeItem) -> bool {
        let bytes = self.paths.len() + folder.len() + name.len();
        if bytes > PATHS_BYTES_MAX || self.list.len() >= self.count_max {
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
pub(crate) enum TreeFault {
    /// This object cannot be read.
    Object { object: u32, what: String },
    /// More files differ than are wanted.
    TooMany,
}

/// Joins steps that follow each other: of each name the first old item and the last new one remain.
#[derive(Default)]
struct StepJoin {
    /// For each name, as a folder and as something else, the join in which it was met last, and its place
    /// there.
    met: Vec<(u32, u32)>,
    /// The number of the join.
    current: u32,
}

impl StepJoin {
    fn begin(&mut self) {
        self.current = self.current.wrapping_add(1);
        if self.current == 0 {
            self.met.clear();
            self.current = 1;
        }
    }

    /// Adds the next step to `joined`.
    #[inline]
    fn add(&mut self, step: EntryStep, joined: &mut Vec<EntryStep>) {
        let name = step.name as usize * 2 + usize::from(step.is_tree);
        if name >= self.met.len() {
            self.met.resize(name + 1, (0, 0));
        }
        let (join, place) = &mut self.met[name];
        if *join == self.current {
            joined[*place as usize].new = step.new;
        } else {
            (*join, *place) = (self.current, joined.len() as u32);
            joined.push(step);
        }
    }
}

/// Returns the step between two entries, whose objects have no numbers yet.
fn step(
    names: &mut ThreadNames<'_>,
    pending: &mut PendingIds,
    old: Option<TreeEntry<'_>>,
    new: Option<TreeEntry<'_>>,
) -> EntryStep {
    let some = new.or(old).expect("one of them");
    let (name, is_tree) = (names.number(some.name), is_tree(&some));
    EntryStep { name, is_tree, old: pending.item(old), new: pending.item(new) }
}

/// Compares trees. Has caches of its own, for one thread.
pub(crate) struct TreeComparer<'c, 'f, 'o> {
    ids: &'c ObjectNumbers<'f, 'o>,
    steps: &'c TreeSteps,
    stop: &'c Stop,
    reader: ObjectReader<'o>,
    /// Trees that were read.
    read: HashMap<u32, Rc<Vec<u8>>>,
    read_bytes: usize,
    /// The steps between trees that were compared whole.
    compared: HashMap<(u32, u32), Rc<[EntryStep]>>,
    compared_steps: usize,
    names: ThreadNames<'c>,
    pending: PendingIds,
    /// Buffers of the paths to the tree at which both meet.
    old_path: Vec<u32>,
    new_path: Vec<u32>,
    join: StepJoin,
    /// Buffers for the entries that differ, one a depth.
    spare: Vec<Vec<EntryStep>>,
    folder: Vec<u8>,
}

impl<'c, 'f, 'o> TreeComparer<'c, 'f, 'o> {
    pub(crate) fn new(ids: &'c ObjectNumbers<'f, 'o>, steps: &'c TreeSteps, stop: &'c Stop) -> Self {
        TreeComparer {
            ids,
            steps,
            stop,
            reader: ids.forest().objects().reader(),
            read: HashMap::new(),
            read_bytes: 0,
            compared: HashMap::new(),
            compared_steps: 0,
            names: ThreadNames::new(steps.names()),
            pending: PendingIds::default(),
            old_path: Vec::new(),
            new_path: Vec::new(),
            join: StepJoin::default(),
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
        // What was compared until a stop is not used.
        if self.stop.is_stopped() {
            return Err(TreeFault::TooMany);
        }
        if depth > TREE_DEPTH_MAX {
            let what = format!("trees nested deeper than {TREE_DEPTH_MAX}");
            return Err(TreeFault::Object { object: new.object, what });
        }
        let mut differ = self.spare.pop().unwrap_or_default();
        differ.clear();
        let folder_len = self.folder.len();
        self.entries_that_differ(old, new, &mut differ)?;
        for step in &differ {
            let name = self.names.name(step.name);
            if step.is_tree {
                self.folder.extend_from_slice(name);
                self.folder.push(b'/');
                self.compare_trees(step.old, step.new, depth + 1, out)?;
                self.folder.truncate(folder_len);
            } else if !out.push(&self.folder, name, step.old, step.new) {
                return Err(TreeFault::TooMany);
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
        differ: &mut Vec<EntryStep>,
    ) -> Result<(), TreeFault> {
        if old.mode.is_absent() || new.mode.is_absent() {
            return self.compare_whole(old, new, differ).map(|_| ());
        }
        let (steps, forest) = (self.steps, self.ids.forest());
        let (mut a, mut b) = (old.object, new.object);
        self.old_path.clear();
        self.new_path.clear();
        while a != b {
            let (old_depth, new_depth) = (steps.depth(a), steps.depth(b));
            if old_depth == 0 && new_depth == 0 {
                break;
            }
            if old_depth >= new_depth {
                self.old_path.push(a);
                a = steps.base(forest, a);
            }
            if new_depth >= old_depth {
                self.new_path.push(b);
                b = steps.base(forest, b);
            }
            if self.old_path.len() + self.new_path.len() > PATH_STEPS_MAX {
                return self.compare_whole(old, new, differ).map(|_| ());
            }
        }
        self.join.begin();
        for &tree in &self.old_path {
            steps.of(tree).iter().for_each(|step| self.join.add(step.reversed(), differ));
        }
        if a != b {
            let Some(between) = self.roots_compared(a, b)? else {
                differ.clear();
                return self.compare_whole(old, new, differ).map(|_| ());
            };
            between.iter().for_each(|step| self.join.add(*step, differ));
        }
        for &tree in self.new_path.iter().rev() {
            steps.of(tree).iter().for_each(|step| self.join.add(*step, differ));
        }
        differ
            .retain(|step| step.old != step.new && !(step.old.mode.is_absent() && step.new.mode.is_absent()));
        let name = |step: &EntryStep| self.names.name(step.name);
        differ.sort_unstable_by(|a, b| name_order(name(a), a.is_tree, name(b), b.is_tree));
        Ok(())
    }

    /// Returns the steps between two trees that no path joins; `None` if their entries are out of order, so
    /// that other steps cannot be joined.
    fn roots_compared(&mut self, old: u32, new: u32) -> Result<Option<Rc<[EntryStep]>>, TreeFault> {
        if let Some(steps) = self.compared.get(&(old, new)) {
            return Ok(Some(Rc::clone(steps)));
        }
        let mut steps = Vec::new();
        let item = |object| TreeItem { mode: Mode::Tree, object };
        if !self.compare_whole(item(old), item(new), &mut steps)? {
            return Ok(None);
        }
        if self.compared_steps + steps.len() > REMEMBERED_STEPS_MAX {
            self.compared.clear();
            self.compared_steps = 0;
        }
        self.compared_steps += steps.len() + 1;
        let steps: Rc<[EntryStep]> = steps.into();
        self.compared.insert((old, new), Rc::clone(&steps));
        Ok(Some(steps))
    }

    /// Fills `differ` with the entries that differ between all of two trees. Returns whether they are in
    /// order.
    fn compare_whole(
        &mut self,
        old: TreeItem,
        new: TreeItem,
        differ: &mut Vec<EntryStep>,
    ) -> Result<bool, TreeFault> {
        let (old_data, new_data) = (self.read(old)?, self.read(new)?);
        let hash = self.ids.forest().objects().hash();
        let (names, pending) = (&mut self.names, &mut self.pending);
        let is_in_order = compare_entries(hash, &old_data, &new_data, |old, new| {
            differ.push(step(names, pending, old, new));
            true
        });
        let mut is_compared = is_in_order;
        if !is_in_order {
            differ.clear();
            pending.clear();
            is_compared = compare_entries_in_any_order(hash, &old_data, &new_data, |old, new| {
                differ.push(step(names, pending, old, new));
                true
            });
        }
        pending.look_up(self.ids, differ);
        if is_compared {
            return Ok(is_in_order);
        }
        let is_odd = |data: &[u8]| TreeIter::new(hash, data).any(|entry| entry.is_err());
        let object = if is_odd(&new_data) || old.mode.is_absent() { new.object } else { old.object };
        Err(TreeFault::Object { object, what: "malformed tree".to_owned() })
    }

    fn read(&mut self, item: TreeItem) -> Result<Rc<Vec<u8>>, TreeFault> {
        if item.mode.is_absent() {
            return Ok(Rc::default());
        }
        if let Some(data) = self.read.get(&item.object) {
            return Ok(Rc::clone(data));
        }
        let oid = self.ids.oid(item.object);
        let read: RepoResult<_> = self.reader.require(&oid);
        match read {
            Ok(object) if object.kind == Kind::Tree => {
                self.read_bytes += object.data.len();
                if self.read_bytes > REMEMBERED_BYTES_MAX {
                    self.read.clear();
                    self.read_bytes = object.data.len();
                }
                self.read.insert(item.object, Rc::clone(&object.data));
                Ok(object.data)
            }
            Ok(object) => Err(TreeFault::Object {
                object: item.object,
                what: format!("a {} in place of a tree", object.kind.name()),
            }),
            Err(e) => Err(TreeFault::Object { object: item.object, what: e.to_string() }),
        }
    }
}
