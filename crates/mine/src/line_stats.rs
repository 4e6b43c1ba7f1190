//! How many lines differ, for many pairs of blobs at once.
//!
//! Each delta tree that has such blobs is decoded once. A blob is kept until the last blob that it is
//! compared with has passed. Delta trees between which files are compared are decoded one after the other by
//! one thread.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use weir_git::Kind;
use weir_ground::Stop;
use weir_ground::thread::on_threads;
use weir_repo::{DeltaBase, Error, ForestReader, ForestVisit, NO_OBJECT, ObjectReader};

use crate::ids::ObjectNumbers;
use crate::lines::{EqualEnds, LineCounter, LineCounts, line_count};
use crate::progress::MineProgress;
use crate::rows::Lines;
use crate::similarity::is_binary;

/// git takes larger files for binary (core.bigFileThreshold).
const TEXT_BYTES_MAX: usize = 512 << 20;
/// Blobs larger than this are not decoded.
const BLOB_BYTES_MAX: u64 = 1 << 30;
/// The most bytes that a thread keeps for blobs that are still to come.
const HELD_BYTES_MAX: usize = 96 << 20;

/// A blob is on the way to one that is wanted.
const ON_PATH: u8 = 1;
/// A blob is wanted.
const WANTED: u8 = 2;
/// A blob was visited.
const VISITED: u8 = 4;
const _: () =
    assert!(ON_PATH & WANTED == 0 && (ON_PATH | WANTED) & VISITED == 0, "each mark has a bit of its own");

/// A pair of numbers of blobs. `NO_OBJECT` stands for no file.
pub(crate) type BlobPair = (u32, u32);

/// The counts of pairs.
pub(crate) struct LineStats {
    /// Ascending.
    pairs: Vec<BlobPair>,
    lines: Vec<Lines>,
}

impl LineStats {
    /// Returns the counts of `pair`.
    pub(crate) fn of(&self, pair: BlobPair) -> Lines {
        let at = self.pairs.binary_search(&pair).expect("all pairs were counted");
        self.lines[at]
    }

    /// Returns whether the lines of a pair could not be counted.
    pub(crate) fn has_unavailable(&self) -> bool {
        self.lines.contains(&Lines::Unavailable)
    }

    /// Counts the lines of all `pairs`, in any order, of blobs that may be missing.
    pub(crate) fn count(
        ids: &ObjectNumbers<'_, '_>,
        mut pairs: Vec<BlobPair>,
        threads: usize,
        progress: &MineProgress,
        stop: &Stop,
    ) -> LineStats {
        pairs.sort_unstable();
        pairs.dedup();
        progress.pairs.fetch_add(pairs.len() as u64, Ordering::Relaxed);
        let plan = Plan::new(ids, &pairs);
        let next = AtomicUsize::new(0);
        let parts = on_threads("weir-numstat", threads, || {
            let mut reader = ForestReader::new(ids.forest(), BLOB_BYTES_MAX);
            let mut visit = PairVisit::new(&plan);
            let mut objects = ids.forest().objects().reader();
            while !stop.is_stopped() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = plan.groups.get(at) else { break };
                let before = visit.counted.len();
                group.iter().for_each(|&root| reader.walk(root, &mut visit));
                visit.end_group(&mut objects);
                progress.counted.fetch_add((visit.counted.len() - before) as u64, Ordering::Relaxed);
            }
            visit.counted
        });
        let mut lines = vec![Lines::Unavailable; pairs.len()];
        let mut left = pairs.len();
        for (place, counted) in parts.into_iter().flatten() {
            debug_assert!(lines[place as usize] == Lines::Unavailable, "a pair is counted twice");
            lines[place as usize] = counted;
            left -= 1;
        }
        // What is missing was not counted, and will not be.
        progress.counted.fetch_add(left as u64, Ordering::Relaxed);
        LineStats { pairs, lines }
    }
}

/// Which blobs are compared with which, and where they are.
struct Plan<'p, 'f, 'o> {
    ids: &'p ObjectNumbers<'f, 'o>,
    pairs: &'p [BlobPair],
    flags: Vec<AtomicU8>,
    /// Each wanted blob with the place of a pair, ascending.
    uses: Vec<(u32, u32)>,
    /// The roots of delta trees, in groups.
    groups: Vec<Vec<u32>>,
}

impl<'p, 'f, 'o> Plan<'p, 'f, 'o> {
    fn new(ids: &'p ObjectNumbers<'f, 'o>, pairs: &'p [BlobPair]) -> Self {
        let forest = ids.forest();
        let is_blob = |n: u32| ids.is_here(n) && forest.kind(n) == Some(Kind::Blob);
        let mut plan = Plan {
            ids,
            pairs,
            flags: (0..forest.count()).map(|_| AtomicU8::new(0)).collect(),
            uses: Vec::with_capacity(pairs.len() * 2),
            groups: Vec::new(),
        };
        let mut groups = Groups::default();
        for (place, &(old, new)) in (0u32..).zip(pairs) {
            // A pair with a blob that is missing stays unavailable.
            if [old, new].iter().any(|&n| n != NO_OBJECT && !is_blob(n)) {
                continue;
            }
            let roots = [old, new].map(|n| if n == NO_OBJECT { NO_OBJECT } else { forest.root(n) });
            groups.join(roots[0], roots[1]);
            for blob in [old, new].into_iter().filter(|&n| n != NO_OBJECT) {
                plan.mark(blob);
                plan.uses.push((blob, place));
            }
        }
        plan.uses.sort_unstable();
        plan.uses.dedup();
        plan.groups = groups.into_lists();
        plan
    }

    fn mark(&mut self, blob: u32) {
        *self.flags[blob as usize].get_mut() |= WANTED;
        let mut at = Some(blob);
        while let Some(number) = at {
            let flags = self.flags[number as usize].get_mut();
            if *flags & ON_PATH != 0 {
                break;
            }
            *flags |= ON_PATH;
            at = self.ids.forest().base(number);
        }
    }

    fn has(&self, number: u32, flag: u8) -> bool {
        self.flags[number as usize].load(Ordering::Relaxed) & flag != 0
    }

    fn uses_of(&self, blob: u32) -> &[(u32, u32)] {
        debug_assert!(self.has(blob, WANTED), "nobody wants blob {blob}");
        let start = self.uses.partition_point(|(b, _)| *b < blob);
        let len = self.uses[start..].iter().take_while(|(b, _)| *b == blob).count();
        &self.uses[start..start + len]
    }
}

/// Delta trees that belong together (disjoint sets).
#[derive(Default)]
struct Groups {
    parent: HashMap<u32, u32>,
}

impl Groups {
    fn find(&mut self, root: u32) -> u32 {
        let mut at = root;
        while let Some(&next) = self.parent.get(&at).filter(|&&next| next != at) {
            at = next;
        }
        // What lay on the way points to the end of it from now on.
        let mut rest = root;
        while rest != at {
            rest = self.parent.insert(rest, at).unwrap_or(at);
        }
        self.parent.entry(at).or_insert(at);
        at
    }

    /// Joins two delta trees. `NO_OBJECT` stands for none.
    fn join(&mut self, a: u32, b: u32) {
        match (a, b) {
            (NO_OBJECT, NO_OBJECT) => {}
            (a, NO_OBJECT) | (NO_OBJECT, a) => {
                self.find(a);
            }
            (a, b) => {
                let (a, b) = (self.find(a), self.find(b));
                self.parent.insert(a.max(b), a.min(b));
            }
        }
    }

    /// Returns the groups, the largest first.
    fn into_lists(mut self) -> Vec<Vec<u32>> {
        let mut roots: Vec<u32> = self.parent.keys().copied().collect();
        roots.sort_unstable();
        let mut lists: HashMap<u32, Vec<u32>> = HashMap::new();
        for root in roots {
            let group = self.find(root);
            lists.entry(group).or_default().push(root);
        }
        let mut lists: Vec<Vec<u32>> = lists.into_values().collect();
        lists.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        lists
    }
}

/// A blob that is kept.
struct Held {
    data: Rc<Vec<u8>>,
    is_binary: bool,
    /// The number of pairs that still wait for their other blob.
    waiting: usize,
}

/// Counts lines while delta trees are decoded.
struct PairVisit<'v, 'p, 'f, 'o> {
    plan: &'v Plan<'p, 'f, 'o>,
    counter: LineCounter,
    held: HashMap<u32, Held>,
    held_bytes: usize,
    /// The kept blobs, oldest first; also some that are kept no more.
    order: VecDeque<u32>,
    /// Pairs of which one blob was not kept long enough.
    late: Vec<u32>,
    /// The place of a pair, and its counts.
    counted: Vec<(u32, Lines)>,
}

impl<'v, 'p, 'f, 'o> PairVisit<'v, 'p, 'f, 'o> {
    fn new(plan: &'v Plan<'p, 'f, 'o>) -> Self {
        PairVisit {
            plan,
            counter: LineCounter::default(),
            held: HashMap::new(),
            held_bytes: 0,
            order: VecDeque::new(),
            late: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Compares blob `number` with those that were visited before.
    fn visit(&mut self, number: u32, data: &Rc<Vec<u8>>, base: Option<DeltaBase<'_, ()>>) {
        let plan = self.plan;
        plan.flags[number as usize].fetch_or(VISITED, Ordering::Relaxed);
        let is_binary = looks_binary(data);
        let mut waiting = 0;
        for &(_, place) in plan.uses_of(number) {
            let (old, new) = plan.pairs[place as usize];
            let other = if old == number { new } else { old };
            let lines = if other == NO_OBJECT || old == new {
                match is_binary {
                    true => Lines::Binary,
                    false => count_of_one(old, new, data),
                }
            } else if let Some(held) = self.held.get_mut(&other) {
                held.waiting -= 1;
                let (is_done, other_data) = (held.waiting == 0, Rc::clone(&held.data));
                let is_binary = is_binary || held.is_binary;
                if is_done {
                    self.release(other);
                }
                let known = match &base {
                    Some(base) if plan.ids.forest().base(number) == Some(other) => {
                        EqualEnds::of_delta(base.data, base.delta)
                    }
                    _ => EqualEnds::default(),
                };
                let (old, new) = if old == number { (data, &other_data) } else { (&other_data, data) };
                match is_binary {
                    true => Lines::Binary,
                    false => text(self.counter.count_between(old, new, known)),
                }
            } else if plan.has(other, VISITED) {
                self.late.push(place);
                continue;
            } else {
                waiting += 1;
                continue;
            };
            self.counted.push((place, lines));
        }
        if waiting > 0 {
            // Of binary files nothing is compared.
            let data = if is_binary { Rc::default() } else { Rc::clone(data) };
            self.hold(number, Held { data, is_binary, waiting });
        }
    }

    fn hold(&mut self, number: u32, held: Held) {
        self.held_bytes += held.data.len();
        self.held.insert(number, held);
        self.order.push_back(number);
        while self.held_bytes > HELD_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.release(oldest);
        }
        if self.order.len() > 2 * self.held.len() + 64 {
            let held = &self.held;
            self.order.retain(|number| held.contains_key(number));
        }
    }

    fn release(&mut self, number: u32) {
        if let Some(held) = self.held.remove(&number) {
            self.held_bytes -= held.data.len();
        }
    }

    /// Counts the pairs that are late, and forgets kept blobs.
    fn end_group(&mut self, objects: &mut ObjectReader<'o>) {
        let held_bytes: usize = self.held.values().map(|held| held.data.len()).sum();
        debug_assert_eq!(self.held_bytes, held_bytes, "the bytes that are held");
        self.held.clear();
        self.order.clear();
        self.held_bytes = 0;
        let mut late = std::mem::take(&mut self.late);
        late.sort_unstable();
        for place in late.drain(..) {
            let (old, new) = self.plan.pairs[place as usize];
            let mut read = |number| objects.require(&self.plan.ids.oid(number));
            let lines = match read(old) {
                // The other was visited before: it is there.
                Ok(old) if looks_binary(&old.data) => Lines::Binary,
                Ok(old) => match read(new) {
                    Ok(new) if looks_binary(&new.data) => Lines::Binary,
                    Ok(new) => text(self.counter.count(&old.data, &new.data)),
                    Err(_) => Lines::Unavailable,
                },
                Err(_) => Lines::Unavailable,
            };
            self.counted.push((place, lines));
        }
        self.late = late;
    }
}

impl ForestVisit for PairVisit<'_, '_, '_, '_> {
    type Kept = ();

    fn wants(&mut self, number: u32) -> bool {
        self.plan.has(number, ON_PATH)
    }

    fn object(&mut self, number: u32, data: &Rc<Vec<u8>>, base: Option<DeltaBase<'_, ()>>) {
        if self.plan.has(number, WANTED) {
            self.visit(number, data, base);
        }
    }

    fn failed(&mut self, _: u32, _: &Error) {}
}

pub(crate) fn looks_binary(data: &[u8]) -> bool {
    data.len() > TEXT_BYTES_MAX || is_binary(data)
}

pub(crate) fn text(counts: LineCounts) -> Lines {
    Lines::Text { insertions: counts.insertions, deletions: counts.deletions }
}

/// Returns the counts of a file that is new, gone, or equal on both sides.
fn count_of_one(old: u32, new: u32, data: &[u8]) -> Lines {
    match (old, new) {
        (NO_OBJECT, _) => Lines::Text { insertions: line_count(data), deletions: 0 },
        (_, NO_OBJECT) => Lines::Text { insertions: 0, deletions: line_count(data) },
        _ => Lines::Text { insertions: 0, deletions: 0 },
    }
}
