//! How each tree differs from the tree that it is stored as a delta of.
//!
//! A pack stores a tree as a delta of a similar one, mostly of the same folder a commit earlier or later. Two
//! trees of one delta tree therefore differ by the steps on the path between them, a few entries each. So
//! each tree is decoded once, and no two trees are compared that are far from each other in history.
//!
//! A step with many entries is no help, nor is one at a tree whose entries are out of order: there the delta
//! tree is cut.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};

use weir_git::{Kind, TreeEntry};
use weir_ground::Stop;
use weir_ground::thread::on_threads;
use weir_repo::{DeltaBase, Error, Forest, ForestReader, ForestVisit};

use crate::entries::{EntryStarts, compare_entries, entry_starts, is_tree};
use crate::ids::ObjectNumbers;
use crate::mode::Mode;
use crate::names::NameTable;
use crate::tree_delta::DeltaRuns;

/// A step has at most this many entries.
const STEP_ENTRIES_MAX: usize = 256;
/// Trees larger than this are not decoded.
pub(crate) const TREE_BYTES_MAX: u64 = 1 << 30;
/// The number of delta trees that a thread takes at once.
const ROOTS_AT_ONCE: usize = 64;
/// The number of entries of steps, all threads together, at which delta trees are cut.
const ENTRIES_MAX: usize = 1 << 30;
/// The bytes of ids that are looked up at once, at the latest.
const PENDING_BYTES_MAX: usize = 1 << 16;

/// What a tree has under a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeItem {
    pub(crate) mode: Mode,
    /// The number of the object, without meaning if the mode is absent.
    pub(crate) object: u32,
}

/// An entry that differs between two trees. A name can differ twice, as a folder and as something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryStep {
    /// The number of its name.
    pub(crate) name: u32,
    pub(crate) is_tree: bool,
    pub(crate) old: TreeItem,
    pub(crate) new: TreeItem,
}

impl EntryStep {
    /// Returns the step in the other direction.
    pub(crate) fn reversed(&self) -> EntryStep {
        EntryStep { old: self.new, new: self.old, ..*self }
    }
}

/// The ids of entries of steps that are not looked up yet.
#[derive(Default)]
pub(crate) struct PendingIds {
    /// In the order of the steps.
    ids: Vec<u8>,
    /// A buffer.
    numbers: Vec<u32>,
}

impl PendingIds {
    /// Returns what a tree has where `entry` is. Its number is not there yet.
    #[inline]
    pub(crate) fn item(&mut self, entry: Option<TreeEntry<'_>>) -> TreeItem {
        let Some(entry) = entry else { return TreeItem::default() };
        self.ids.extend_from_slice(entry.id);
        TreeItem { mode: Mode::of(entry.mode), object: 0 }
    }

    /// Forgets all ids.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    /// Looks up the numbers of `steps`, whose items all came from [`PendingIds::item`].
    pub(crate) fn look_up(&mut self, ids: &ObjectNumbers<'_, '_>, steps: &mut [EntryStep]) {
        ids.numbers(&self.ids, &mut self.numbers);
        self.ids.clear();
        let mut numbers = self.numbers.iter();
        for item in steps.iter_mut().flat_map(|step| [&mut step.old, &mut step.new]) {
            if !item.mode.is_absent() {
                item.object = *numbers.next().expect("one for each item");
            }
        }
    }
}

/// The steps from its base to a tree.
#[derive(Clone, Copy, Default)]
struct StepRange {
    start: u32,
    len: u16,
    /// The number of steps to the tree at which the delta tree is cut; 0 if it is cut here.
    depth: u16,
}

/// The steps of all trees: for each tree, those from its base to it.
pub(crate) struct TreeSteps {
    /// By number of object.
    ranges: Vec<StepRange>,
    list: Vec<EntryStep>,
    names: NameTable,
}

impl TreeSteps {
    /// Returns no steps: then all trees are compared whole.
    pub(crate) fn none() -> TreeSteps {
        TreeSteps { ranges: Vec::new(), list: Vec::new(), names: NameTable::default() }
    }

    /// Decodes all trees of `ids`.
    pub(crate) fn new(ids: &ObjectNumbers<'_, '_>, threads: usize, stop: &Stop) -> TreeSteps {
        let forest = ids.forest();
        let roots: Vec<u32> = (0..forest.count())
            .filter(|&n| forest.kind(n) == Some(Kind::Tree) && forest.base(n).is_none())
            .filter(|&n| !forest.children(n).is_empty())
            .collect();
        let next = AtomicUsize::new(0);
        let parts = on_threads("weir-trees", threads, || {
            let mut reader = ForestReader::new(forest, TREE_BYTES_MAX);
            let mut visit = StepVisit::new(ids, ENTRIES_MAX / threads);
            while !stop.is_stopped() {
                let at = next.fetch_add(ROOTS_AT_ONCE, AtomicOrdering::Relaxed);
                let Some(some) = roots.get(at..roots.len().min(at + ROOTS_AT_ONCE)) else { break };
                some.iter().for_each(|&root| reader.walk(root, &mut visit));
                visit.look_up();
            }
            (visit.ranges, visit.list, visit.names)
        });
        let mut all =
            TreeSteps { ranges: vec![StepRange::default(); forest.count() as usize], ..Self::none() };
        all.list.reserve_exact(parts.iter().map(|(_, list, _)| list.len()).sum());
        for (ranges, list, names) in parts {
            let start = all.list.len() as u32;
            for (number, range) in ranges {
                all.ranges[number as usize] = StepRange { start: range.start + start, ..range };
            }
            let numbers = all.names.append(names);
            all.list
                .extend(list.into_iter().map(|step| EntryStep { name: numbers[step.name as usize], ..step }));
        }
        all
    }

    pub(crate) fn names(&self) -> &NameTable {
        &self.names
    }

    /// Returns the steps from the base of tree `number` to it.
    #[inline]
    pub(crate) fn of(&self, number: u32) -> &[EntryStep] {
        let StepRange { start, len, .. } = self.ranges[number as usize];
        &self.list[start as usize..][..usize::from(len)]
    }

    /// Returns how many steps lead from tree `number` to the root of its delta tree.
    #[inline]
    pub(crate) fn depth(&self, number: u32) -> u16 {
        self.ranges.get(number as usize).map_or(0, |range| range.depth)
    }

    /// Returns the base of tree `number`, whose depth is not 0.
    #[inline]
    pub(crate) fn base(&self, forest: &Forest<'_>, number: u32) -> u32 {
        forest.base(number).expect("a step leads from its base to it")
    }
}

/// What is kept of a tree while trees built on it are decoded.
struct KeptTree {
    /// `None` if the entries are out of order, or malformed.
    starts: Option<EntryStarts>,
    depth: u16,
}

struct StepVisit<'v, 'f, 'o> {
    ids: &'v ObjectNumbers<'f, 'o>,
    entries_max: usize,
    list: Vec<EntryStep>,
    /// The number of a tree, and its steps.
    ranges: Vec<(u32, StepRange)>,
    names: NameTable,
    pending: PendingIds,
    /// The number of steps whose ids were looked up.
    looked_up: usize,
    /// A buffer.
    delta: DeltaRuns,
}

impl ForestVisit for StepVisit<'_, '_, '_> {
    type Kept = KeptTree;

    fn wants(&mut self, _: u32) -> bool {
        true
    }

    fn object(&mut self, number: u32, data: &Rc<Vec<u8>>, base: Option<DeltaBase<'_, KeptTree>>) -> KeptTree {
        let forest = self.ids.forest();
        let hash = forest.objects().hash();
        let has_children = !forest.children(number).is_empty();
        let root = || KeptTree { starts: has_children.then(|| entry_starts(hash, data)).flatten(), depth: 0 };
        let Some(DeltaBase { data: base, kept, delta }) = base else { return root() };
        let Some(base_starts) = &kept.starts else { return root() };
        if !self.delta.find(hash, base_starts, data, delta, has_children) {
            return KeptTree { starts: None, depth: 0 };
        }
        let (before, pending_before) = (self.list.len(), self.pending.ids.len());
        if !self.compare_runs(base, data) {
            self.list.truncate(before);
            self.pending.ids.truncate(pending_before);
            return KeptTree { starts: None, depth: 0 };
        }
        let len = self.list.len() - before;
        let mut depth = kept.depth.saturating_add(1);
        if len > STEP_ENTRIES_MAX || depth == u16::MAX || self.list.len() > self.entries_max {
            self.list.truncate(before);
            self.pending.ids.truncate(pending_before);
            depth = 0;
        } else {
            self.ranges.push((number, StepRange { start: before as u32, len: len as u16, depth }));
        }
        if self.pending.ids.len() > PENDING_BYTES_MAX {
            self.look_up();
        }
        KeptTree { starts: has_children.then(|| Rc::from(&self.delta.starts[..])), depth }
    }

    fn failed(&mut self, _: u32, _: &Error) {}
}

impl<'v, 'f, 'o> StepVisit<'v, 'f, 'o> {
    fn new(ids: &'v ObjectNumbers<'f, 'o>, entries_max: usize) -> Self {
        StepVisit {
            ids,
            entries_max,
            list: Vec::new(),
            ranges: Vec::new(),
            names: NameTable::default(),
            pending: PendingIds::default(),
            looked_up: 0,
            delta: DeltaRuns::default(),
        }
    }

    /// Appends the steps from the tree `base` to the tree `new`. Returns whether both are in order.
    fn compare_runs(&mut self, base: &[u8], new: &[u8]) -> bool {
        let hash = self.ids.forest().objects().hash();
        let (list, names, pending) = (&mut self.list, &mut self.names, &mut self.pending);
        self.delta.runs.iter().all(|run| {
            compare_entries(hash, &base[run.base.clone()], &new[run.new.clone()], |old, new| {
                let some = new.or(old).expect("one of them");
                let (name, is_tree) = (names.number(some.name), is_tree(&some));
                list.push(EntryStep { name, is_tree, old: pending.item(old), new: pending.item(new) });
                true
            })
        })
    }

    /// Looks up the ids of the last steps.
    fn look_up(&mut self) {
        self.pending.look_up(self.ids, &mut self.list[self.looked_up..]);
        self.looked_up = self.list.len();
    }
}
