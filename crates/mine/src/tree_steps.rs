//! How each tree differs from the tree that it is stored as a delta of.
//!
//! A pack stores a tree as a delta of a similar one, mostly of the same folder a commit earlier or later. Two
//! trees of one delta tree therefore differ by the steps on the path between them, a few entries each. So
//! each tree is decoded once, and no two trees are compared that are far from each other in history.
//!
//! A step with many entries is no help, nor is one at a tree whose entries are out of order: there the delta
//! tree is cut.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};

use weir_git::{HashKind, Kind, TreeEntry, TreeIter};
use weir_ground::Stop;
use weir_ground::thread::on_threads;
use weir_repo::{Error, Forest, ForestReader, ForestVisit, NO_OBJECT};

use crate::ids::ObjectNumbers;
use crate::mode::Mode;

/// A step has at most this many entries.
const STEP_ENTRIES_MAX: usize = 256;
/// Trees larger than this are not decoded.
pub(crate) const TREE_BYTES_MAX: u64 = 1 << 30;
/// The number of delta trees that a thread takes at once.
const ROOTS_AT_ONCE: usize = 64;

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
    name_at: u32,
    name_len: u16,
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

/// The steps of a part of the trees.
#[derive(Default)]
pub(crate) struct EntrySteps {
    list: Vec<EntryStep>,
    names: Vec<u8>,
}

impl EntrySteps {
    pub(crate) fn name(&self, step: &EntryStep) -> &[u8] {
        &self.names[step.name_at as usize..][..usize::from(step.name_len)]
    }

    pub(crate) fn list(&self) -> &[EntryStep] {
        &self.list
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.names.clear();
    }

    /// Appends a step. Returns whether it could be: names and tables are bounded.
    pub(crate) fn push(&mut self, name: &[u8], is_tree: bool, old: TreeItem, new: TreeItem) -> bool {
        let (Ok(name_at), Ok(name_len)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            return false;
        };
        self.names.extend_from_slice(name);
        self.list.push(EntryStep { name_at, name_len, is_tree, old, new });
        true
    }
}

/// Compares names as entries of a tree are ordered: as if the name of a folder ended in a slash.
pub(crate) fn name_order(a: &[u8], a_is_tree: bool, b: &[u8], b_is_tree: bool) -> Ordering {
    let common = a.len().min(b.len());
    a[..common].cmp(&b[..common]).then_with(|| {
        let end = |name: &[u8], is_tree| match name.get(common) {
            Some(&c) => c,
            None if is_tree => b'/',
            None => 0,
        };
        end(a, a_is_tree).cmp(&end(b, b_is_tree)).then_with(|| a.len().cmp(&b.len()))
    })
}

fn entry_order(a: &TreeEntry<'_>, b: &TreeEntry<'_>) -> Ordering {
    name_order(a.name, is_tree(a), b.name, is_tree(b))
}

pub(crate) fn is_tree(entry: &TreeEntry<'_>) -> bool {
    Mode::of(entry.mode) == Mode::Tree
}

/// The steps of all trees: for each tree, those from its base to it.
pub(crate) struct TreeSteps {
    /// For each object the number of its step list, `NO_OBJECT` if the delta tree is cut below it.
    heads: Vec<u32>,
    /// For each step list its thread, and its start and end there.
    ranges: Vec<(u32, u32, u32)>,
    parts: Vec<EntrySteps>,
}

impl TreeSteps {
    /// Returns no steps: then all trees are compared whole.
    pub(crate) fn none() -> TreeSteps {
        TreeSteps { heads: Vec::new(), ranges: Vec::new(), parts: Vec::new() }
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
            let mut visit =
                StepVisit { ids, steps: EntrySteps::default(), lists: Vec::new(), starts: Vec::new() };
            while !stop.is_stopped() {
                let at = next.fetch_add(ROOTS_AT_ONCE, AtomicOrdering::Relaxed);
                let Some(some) = roots.get(at..roots.len().min(at + ROOTS_AT_ONCE)) else { break };
                some.iter().for_each(|&root| reader.walk(root, &mut visit));
            }
            (visit.steps, visit.lists)
        });
        let mut all = TreeSteps {
            heads: vec![NO_OBJECT; forest.count() as usize],
            ranges: Vec::new(),
            parts: Vec::new(),
        };
        for (part, (steps, lists)) in parts.into_iter().enumerate() {
            for (number, start, end) in lists {
                all.heads[number as usize] = all.ranges.len() as u32;
                all.ranges.push((part as u32, start, end));
            }
            all.parts.push(steps);
        }
        all
    }

    /// Returns the steps from the base of tree `number` to it; `None` if the delta tree is cut there.
    #[inline]
    pub(crate) fn of(&self, number: u32) -> Option<(&EntrySteps, &[EntryStep])> {
        let (part, start, end) = *self.ranges.get(*self.heads.get(number as usize)? as usize)?;
        let steps = &self.parts[part as usize];
        Some((steps, &steps.list[start as usize..end as usize]))
    }

    /// Returns the base of tree `number`, if there are steps from it.
    #[inline]
    pub(crate) fn base(&self, forest: &Forest<'_>, number: u32) -> Option<u32> {
        if *self.heads.get(number as usize)? == NO_OBJECT {
            return None;
        }
        forest.base(number)
    }
}

/// Where the entries of a tree start, and where the last one ends; `None` if they are out of order, or
/// malformed.
type Starts = Option<Rc<Vec<u32>>>;

struct StepVisit<'v, 'f, 'o> {
    ids: &'v ObjectNumbers<'f, 'o>,
    steps: EntrySteps,
    /// The number of a tree, and its steps.
    lists: Vec<(u32, u32, u32)>,
    /// A buffer for the starts of a tree.
    starts: Vec<u32>,
}

impl ForestVisit for StepVisit<'_, '_, '_> {
    type Kept = Starts;

    fn wants(&mut self, _: u32) -> bool {
        true
    }

    fn object(&mut self, number: u32, data: &Rc<Vec<u8>>, base: Option<(&[u8], &Starts)>) -> Starts {
        let hash = self.ids.forest().objects().hash();
        let has_children = !self.ids.forest().children(number).is_empty();
        let Some((base, Some(base_starts))) = base else {
            return if has_children { starts_of(hash, data) } else { None };
        };
        let Some(middle) = Middle::find(hash, base, base_starts, data, &mut self.starts) else {
            return starts_of(hash, data);
        };
        let (before, names_before) = (self.steps.list.len(), self.steps.names.len());
        let is_kept = self.compare(hash, &base[middle.base.clone()], &data[middle.new.clone()])
            && self.steps.list.len() - before <= STEP_ENTRIES_MAX;
        if is_kept {
            self.lists.push((number, before as u32, self.steps.list.len() as u32));
        } else {
            self.steps.list.truncate(before);
            self.steps.names.truncate(names_before);
        }
        if !has_children {
            return None;
        }
        let shift = data.len() as i64 - base.len() as i64;
        let mut starts = Vec::with_capacity(
            middle.first + self.starts.len() + (base_starts.len() - middle.after).max(1) + 1,
        );
        starts.extend_from_slice(&base_starts[..middle.first]);
        starts.extend_from_slice(&self.starts);
        starts.extend(base_starts[middle.after..].iter().map(|&start| (i64::from(start) + shift) as u32));
        Some(Rc::new(starts))
    }

    fn failed(&mut self, _: u32, _: &Error) {}
}

impl StepVisit<'_, '_, '_> {
    /// Appends the steps from the entries `old` to the entries `new`. Returns whether both are in order.
    fn compare(&mut self, hash: HashKind, old: &[u8], new: &[u8]) -> bool {
        let (ids, steps) = (self.ids, &mut self.steps);
        compare_entries(hash, old, new, |old, new| {
            let item = |entry: Option<TreeEntry<'_>>| match entry {
                Some(entry) => TreeItem { mode: Mode::of(entry.mode), object: ids.number(entry.id) },
                None => TreeItem::default(),
            };
            let some = new.or(old).expect("one of them");
            steps.push(some.name, is_tree(&some), item(old), item(new))
        })
    }
}

/// Calls `differs` for each name that differs between the entries `old` and `new`, in order. Returns whether
/// both are well-formed and in strict order, and `differs` always returned true.
pub(crate) fn compare_entries<'a>(
    hash: HashKind,
    old: &'a [u8],
    new: &'a [u8],
    mut differs: impl FnMut(Option<TreeEntry<'a>>, Option<TreeEntry<'a>>) -> bool,
) -> bool {
    let (mut olds, mut news) = (Ordered::new(hash, old), Ordered::new(hash, new));
    let (mut a, mut b) = (olds.next(), news.next());
    loop {
        let order = match (&a, &b) {
            (None, None) => return !(olds.is_odd || news.is_odd),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => entry_order(old, new),
        };
        let go_on = match order {
            Ordering::Less => differs(a, None),
            Ordering::Greater => differs(None, b),
            Ordering::Equal => {
                let (old, new) = (a.expect("both are there"), b.expect("both are there"));
                (old.id == new.id && Mode::of(old.mode) == Mode::of(new.mode)) || differs(a, b)
            }
        };
        if !go_on {
            return false;
        }
        if order != Ordering::Greater {
            a = olds.next();
        }
        if order != Ordering::Less {
            b = news.next();
        }
    }
}

/// Entries of a tree, for as long as they are well-formed and in strict order.
struct Ordered<'a> {
    iter: TreeIter<'a>,
    last: Option<TreeEntry<'a>>,
    is_odd: bool,
}

impl<'a> Ordered<'a> {
    fn new(hash: HashKind, data: &'a [u8]) -> Ordered<'a> {
        Ordered { iter: TreeIter::new(hash, data), last: None, is_odd: false }
    }

    fn next(&mut self) -> Option<TreeEntry<'a>> {
        match self.iter.next()? {
            Ok(entry) if self.last.is_none_or(|last| entry_order(&last, &entry) == Ordering::Less) => {
                self.last = Some(entry);
                Some(entry)
            }
            _ => {
                self.is_odd = true;
                None
            }
        }
    }
}

/// Returns where the entries of a tree start.
fn starts_of(hash: HashKind, data: &[u8]) -> Starts {
    let mut entries = Ordered::new(hash, data);
    let mut starts = vec![0u32];
    let mut at = 0usize;
    while let Some(entry) = entries.next() {
        at = entry.id.as_ptr() as usize + entry.id.len() - data.as_ptr() as usize;
        starts.push(u32::try_from(at).ok()?);
    }
    (!entries.is_odd && at == data.len()).then(|| Rc::new(starts))
}

/// The parts in which a tree and its base differ.
struct Middle {
    base: std::ops::Range<usize>,
    new: std::ops::Range<usize>,
    /// The number of entries before both parts.
    first: usize,
    /// The place in the starts of the base where its part ends.
    after: usize,
}

impl Middle {
    /// Finds the part of `new` that differs from `base`, in whole entries with one entry around it, so that
    /// the order of entries is checked where the parts meet. Leaves in `starts` where the entries of that
    /// part start. Returns `None` if an entry there is malformed.
    fn find(
        hash: HashKind,
        base: &[u8],
        base_starts: &[u32],
        new: &[u8],
        starts: &mut Vec<u32>,
    ) -> Option<Middle> {
        let prefix = common_start(base, new);
        // The last entry that starts within what is equal, and one before it.
        let first = base_starts.partition_point(|&start| start as usize <= prefix).saturating_sub(2);
        let start = base_starts[first] as usize;
        let suffix = common_end(&base[start..], &new[start..]);
        let wanted = base_starts.partition_point(|&at| (at as usize) < base.len() - suffix);
        let mut after = (wanted.max(first) + 1).min(base_starts.len() - 1);
        let mut entries = TreeIter::new(hash, &new[start..]);
        starts.clear();
        let mut at = start;
        loop {
            // Where the base's entry `after` would start in the new tree.
            let same_end = (base_starts[after] as usize + new.len()).checked_sub(base.len());
            if same_end == Some(at) {
                break;
            }
            if same_end.is_none_or(|end| end < at) && after < base_starts.len() - 1 {
                after += 1;
                continue;
            }
            let Some(entry) = entries.next() else { break };
            let entry = entry.ok()?;
            starts.push(u32::try_from(at).ok()?);
            at = entry.id.as_ptr() as usize + entry.id.len() - new.as_ptr() as usize;
        }
        let base_end = base_starts[after] as usize;
        (at + base.len() == base_end + new.len()).then_some(Middle {
            base: start..base_end,
            new: start..at,
            first,
            after,
        })
    }
}

/// Returns the number of bytes with which both start.
pub(crate) fn common_start(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    for step in [512, 64, 8] {
        let alike =
            a[at..].chunks_exact(step).zip(b[at..].chunks_exact(step)).take_while(|(a, b)| a == b).count();
        at += alike * step;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Returns the number of bytes with which both end.
pub(crate) fn common_end(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[a.len() - len..], &b[b.len() - len..]);
    let mut at = 0;
    for step in [512, 64, 8] {
        let (a, b) = (&a[..len - at], &b[..len - at]);
        let alike = a.rchunks_exact(step).zip(b.rchunks_exact(step)).take_while(|(a, b)| a == b).count();
        at += alike * step;
    }
    at + a[..len - at].iter().rev().zip(b[..len - at].iter().rev()).take_while(|(a, b)| a == b).count()
}
