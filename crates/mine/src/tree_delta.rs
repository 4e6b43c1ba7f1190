//! The entries in which a tree differs from the tree that it is a delta of, read off the delta.
//!
//! A delta of a tree of a thousand entries says in a few bytes which of them changed: an entry that is copied
//! whole from an entry of the base is equal. Only what lies between such entries is looked at.

use std::ops::Range;

use weir_git::{HashKind, tree_entry_len};
use weir_repo::{DeltaOp, delta_ops};

/// A part in which two trees may differ.
pub(crate) struct DeltaRun {
    pub(crate) base: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// Reads deltas of trees. Has buffers of its own.
#[derive(Default)]
pub(crate) struct DeltaRuns {
    /// The parts that may differ, in whole entries, with an equal entry on either side where there is one: so
    /// that the order of entries can be checked where the parts meet.
    pub(crate) runs: Vec<DeltaRun>,
    /// Where the entries of the new tree start, and where the last one ends. Only those of the runs, if
    /// nobody wants the rest.
    pub(crate) starts: Vec<u32>,
}

/// The base, and how far it is compared.
struct DeltaSide<'b> {
    starts: &'b [u32],
    /// The entry behind the last equal one.
    next: usize,
}

impl DeltaSide<'_> {
    /// Returns the entry from the next one on that starts at `offset`.
    fn entry_at(&self, offset: usize) -> Option<usize> {
        let starts = &self.starts[self.next..];
        let (mut low, mut step) = (0, 1);
        while starts.get(low + step).is_some_and(|&start| (start as usize) < offset) {
            low += step;
            step *= 2;
        }
        let some = &starts[low..starts.len().min(low + step + 1)];
        let at = low + some.partition_point(|&start| (start as usize) < offset);
        (starts.get(at).map(|&start| start as usize) == Some(offset)).then_some(self.next + at)
    }

    /// Returns the entry behind the last one from `first` on that ends at `end` or before.
    fn entries_before(&self, first: usize, end: usize) -> usize {
        let last = self.starts.len() - 1;
        if end >= self.starts[last] as usize {
            return last;
        }
        first + self.starts[first..].partition_point(|&start| start as usize <= end) - 1
    }
}

impl DeltaRuns {
    /// Finds where `new` may differ from the base that `delta` was applied to, whose entries are in order and
    /// start at `base_starts`. Returns whether `new` consists of entries.
    pub(crate) fn find(
        &mut self,
        hash: HashKind,
        base_starts: &[u32],
        new: &[u8],
        delta: &[u8],
        wants_starts: bool,
    ) -> bool {
        self.runs.clear();
        self.starts.clear();
        if u32::try_from(new.len()).is_err() {
            return false;
        }
        let mut base = DeltaSide { starts: base_starts, next: 0 };
        // How far `new` is compared, made by the delta, and where the current run starts in it.
        let (mut at, mut made, mut run_start) = (0, 0, 0);
        for op in delta_ops(delta) {
            let (offset, len) = match op {
                DeltaOp::Copy { offset, len } => (offset, len),
                DeltaOp::Insert(bytes) => {
                    made += bytes.len();
                    continue;
                }
            };
            let (copy_start, copy_end) = (made, made + len);
            made = copy_end;
            while at < copy_end {
                let source = offset + at.saturating_sub(copy_start);
                let equal = if at < copy_start { None } else { base.entry_at(source) };
                let Some(first) = equal else {
                    let Some(entry_len) = tree_entry_len(hash, &new[at..]) else { return false };
                    self.starts.push(at as u32);
                    at += entry_len;
                    continue;
                };
                let end = base.entries_before(first, offset + len);
                if end == first {
                    // The delta goes on with something else within this entry.
                    break;
                }
                self.close(&base, first, run_start..at, true);
                if wants_starts {
                    let shift = (at as u32).wrapping_sub(source as u32);
                    self.starts.extend(base_starts[first..end].iter().map(|start| start.wrapping_add(shift)));
                }
                at += (base_starts[end] - base_starts[first]) as usize;
                (base.next, run_start) = (end, at);
            }
        }
        while at < new.len() {
            let Some(entry_len) = tree_entry_len(hash, &new[at..]) else { return false };
            self.starts.push(at as u32);
            at += entry_len;
        }
        self.close(&base, base_starts.len() - 1, run_start..at, false);
        self.starts.push(at as u32);
        true
    }

    /// Adds the run that ends before entry `end` of the base.
    fn close(&mut self, base: &DeltaSide<'_>, end: usize, new: Range<usize>, has_equal_behind: bool) {
        if base.next == end && new.is_empty() {
            return;
        }
        let (before, behind) = (usize::from(base.next > 0), usize::from(has_equal_behind));
        let entry = |n: usize| base.starts[n] as usize;
        let old = entry(base.next - before)..entry(end + behind);
        let new = new.start - (entry(base.next) - old.start)..new.end + (old.end - entry(end));
        self.runs.push(DeltaRun { base: old, new });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::{compare_entries, entry_starts};

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) as usize) % n
        }
    }

    type Entries = Vec<(String, u8)>;

    fn tree(entries: &Entries) -> Vec<u8> {
        let entry =
            |(name, id): &(String, u8)| [b"100644 ", name.as_bytes(), b"\0", [*id; 20].as_slice()].concat();
        entries.iter().flat_map(entry).collect()
    }

    /// Makes a delta: at each place of `new` it copies a part of `base` that is equal there, or inserts.
    fn delta(dice: &mut Dice, base: &[u8], new: &[u8]) -> Vec<u8> {
        let mut delta = Vec::new();
        for size in [base.len(), new.len()] {
            delta.extend([(size & 0x7f) as u8 | 0x80, (size >> 7 & 0x7f) as u8 | 0x80, (size >> 14) as u8]);
        }
        let mut at = 0;
        while at < new.len() {
            let offset = if dice.below(4) == 0 { dice.below(base.len() + 1) } else { at.min(base.len()) };
            let places = (offset..base.len()).chain(0..offset);
            let equal = |place: usize| {
                base[place..].iter().zip(&new[at..]).take_while(|(a, b)| a == b).count().min(0xffff)
            };
            let found = places.map(|place| (place, equal(place))).find(|(_, len)| *len > 12);
            match found {
                Some((place, most)) => {
                    let len = if dice.below(3) == 0 { 1 + dice.below(most) } else { most };
                    delta.push(0x80 | 0x03 | 0x30);
                    delta.extend([place as u8, (place >> 8) as u8, len as u8, (len >> 8) as u8]);
                    at += len;
                }
                None => {
                    let len = (1 + dice.below(20)).min(new.len() - at);
                    delta.push(len as u8);
                    delta.extend(&new[at..at + len]);
                    at += len;
                }
            }
        }
        delta
    }

    /// Returns the names that differ between two lists of entries, and whether both are in order.
    fn differ(old: &[u8], new: &[u8]) -> (Vec<Vec<u8>>, bool) {
        let mut names = Vec::new();
        let is_ordered = compare_entries(HashKind::Sha1, old, new, |old, new| {
            names.push(new.or(old).unwrap().name.to_vec());
            true
        });
        (names, is_ordered)
    }

    #[test]
    fn the_runs_of_a_delta_hold_all_that_differs() {
        let mut dice = Dice(1);
        let mut runs = DeltaRuns::default();
        let mut odd = 0;
        for round in 0..3000 {
            let mut base: Entries =
                (0..dice.below(40)).map(|n| (format!("file{:03}", n * 3), dice.below(6) as u8)).collect();
            let mut new = base.clone();
            for _ in 0..dice.below(5) {
                let at = dice.below(new.len() + 1);
                match dice.below(4) {
                    0 => new.insert(at, (format!("file{:03}", dice.below(120)), dice.below(6) as u8)),
                    _ if at == new.len() => {}
                    1 => drop(new.remove(at)),
                    2 => new[at].1 = dice.below(6) as u8,
                    // A name that may be out of order, or there twice.
                    _ => new[at].0 = format!("file{:03}", dice.below(120)),
                }
            }
            if round % 2 == 0 {
                new.sort();
                new.dedup_by(|next, kept| next.0 == kept.0);
            }
            if round % 5 == 0 {
                base.clear();
            }
            let (base, new) = (tree(&base), tree(&new));
            let delta = delta(&mut dice, &base, &new);
            let base_starts = entry_starts(HashKind::Sha1, &base).unwrap();
            assert!(runs.find(HashKind::Sha1, &base_starts, &new, &delta, true));
            let (expected, is_ordered) = differ(&base, &new);
            let mut found = (Vec::new(), true);
            for run in &runs.runs {
                let (names, is_run_ordered) = differ(&base[run.base.clone()], &new[run.new.clone()]);
                found = ([found.0, names].concat(), found.1 && is_run_ordered);
            }
            assert_eq!(found.1, is_ordered, "round {round}");
            odd += usize::from(!is_ordered);
            if is_ordered {
                assert_eq!(found.0, expected, "round {round}");
                assert_eq!(runs.starts, *entry_starts(HashKind::Sha1, &new).unwrap(), "round {round}");
            }
        }
        assert!((100..1500).contains(&odd), "{odd} trees out of order");
    }

    #[test]
    fn trees_that_are_cut_off_are_refused() {
        let base = tree(&vec![("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let starts = entry_starts(HashKind::Sha1, &base).unwrap();
        let mut runs = DeltaRuns::default();
        for cut in 1..base.len() {
            let new = &base[..cut];
            let delta = delta(&mut Dice(cut as u64), &base, new);
            let is_whole = starts.contains(&(cut as u32));
            assert_eq!(runs.find(HashKind::Sha1, &starts, new, &delta, false), is_whole, "{cut}");
        }
    }
}
