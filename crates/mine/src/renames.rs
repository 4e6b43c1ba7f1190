//! Renames and copies among the files that differ, found as git finds them (diffcore-rename.c).

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use weir_ground::Stop;

use crate::mode::Mode;
use crate::similarity::{SCORE_MAX, Similarity};
use crate::tree_compare::{FileChange, FileChanges};
use crate::tree_steps::TreeItem;

/// The number of identical sources that are looked at for each new file.
const IDENTICAL_MAX: usize = 100;
/// The number of similar sources that are remembered of each new file.
const CANDIDATES: usize = 4;

/// What is detected beside additions, deletions and modifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detect {
    /// Nothing, as with `--no-renames`.
    Nothing,
    /// Renames, as with `-M`.
    Renames,
    /// Renames, and copies of files that the same commit changes, as with `-C`.
    Copies,
}

/// How renames are detected.
#[derive(Clone, Copy, Debug)]
pub struct RenameOptions {
    /// What is detected.
    pub detect: Detect,
    /// The least similarity in percent, 50 in git.
    pub similarity: u8,
    /// No similar files are searched if there are more pairs than the square of this, 1000 in git; 0 means no
    /// limit.
    pub limit: u32,
    /// Whether the bytes behind the last line break count, as they do since git 2.44.
    pub counts_last_line: bool,
}

impl Default for RenameOptions {
    fn default() -> Self {
        RenameOptions { detect: Detect::Renames, similarity: 50, limit: 1000, counts_last_line: true }
    }
}

/// The sort of a change, by the letter that git prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The file is new.
    Added,
    /// The file is a copy of another.
    Copied,
    /// The file is gone.
    Deleted,
    /// The content or the mode differs.
    Modified,
    /// The file has another name.
    Renamed,
    /// The file is of another type, for example a symbolic link.
    TypeChanged,
}

impl Status {
    /// Returns the letter that git prints.
    pub fn letter(self) -> char {
        match self {
            Status::Added => 'A',
            Status::Copied => 'C',
            Status::Deleted => 'D',
            Status::Modified => 'M',
            Status::Renamed => 'R',
            Status::TypeChanged => 'T',
        }
    }
}

/// A change with its two sides: the places in [`FileChanges::list`] where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) status: Status,
    pub(crate) old: u32,
    pub(crate) new: u32,
    /// The similarity in percent, of renames and copies.
    pub(crate) similarity: u8,
}

struct RenameSource {
    at: u32,
    item: TreeItem,
    used: u32,
}

struct RenameTarget {
    at: u32,
    item: TreeItem,
    /// The place of the source in the list of sources, and the score.
    found: Option<(usize, u64)>,
}

/// A source that may be that of a target.
#[derive(Clone, Copy)]
struct Candidate {
    source: usize,
    target: usize,
    score: u64,
    has_name: bool,
}

impl Candidate {
    /// Orders candidates, best first.
    fn rank(&self) -> (Reverse<u64>, Reverse<bool>) {
        (Reverse(self.score), Reverse(self.has_name))
    }
}

/// Adds a candidate to the best few.
fn keep_best(of_target: &mut Vec<Candidate>, candidate: Candidate) {
    if of_target.len() < CANDIDATES {
        of_target.push(candidate);
        return;
    }
    // The first of the worst gives way.
    let mut worst = 0;
    for n in 1..of_target.len() {
        if of_target[n].rank() > of_target[worst].rank() {
            worst = n;
        }
    }
    if of_target[worst].rank() > candidate.rank() {
        of_target[worst] = candidate;
    }
}

fn basename(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&c| c == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// Returns `changes` with renames and copies among them, in git's order. Once `stop` is requested, not all
/// are found.
pub(crate) fn pairs(
    changes: &FileChanges,
    options: &RenameOptions,
    similarity: &mut Similarity<'_, '_>,
    stop: &Stop,
    out: &mut Vec<Pair>,
) {
    out.clear();
    let has = |of: fn(&FileChange) -> TreeItem| changes.list.iter().any(|change| of(change).mode.is_absent());
    let copies = options.detect == Detect::Copies;
    let is_searched = options.detect != Detect::Nothing && has(|c| c.old) && (copies || has(|c| c.new));
    let mut search = RenameSearch { changes, copies, stop, sources: Vec::new(), targets: Vec::new() };
    if is_searched {
        search.gather();
        search.find(options, similarity);
    }
    let mut targets = search.targets.iter().peekable();
    // How many uses of each source are still to come.
    let mut uses: HashMap<u32, u32> =
        search.sources.iter().filter(|s| s.used > 0).map(|s| (s.at, s.used)).collect();
    for (at, change) in (0u32..).zip(&changes.list) {
        let found = targets.next_if(|target| target.at == at).and_then(|target| target.found);
        let plain = |status| Pair { status, old: at, new: at, similarity: 0 };
        if let Some((source, score)) = found {
            let source = &search.sources[source];
            let left = uses.get_mut(&source.at).expect("it is used");
            *left -= 1;
            // The last use of a file that is gone is its new name.
            let status = if *left > 0 { Status::Copied } else { Status::Renamed };
            let status = match source.item.mode.is_same_type(change.new.mode) {
                true => status,
                false => Status::TypeChanged,
            };
            out.push(Pair { status, old: source.at, new: at, similarity: (score * 100 / SCORE_MAX) as u8 });
        } else if change.old.mode.is_absent() {
            out.push(plain(Status::Added));
        } else if change.new.mode.is_absent() {
            // A deleted file that was used as a source has moved.
            if !uses.contains_key(&at) {
                out.push(plain(Status::Deleted));
            }
        } else if change.old.mode.is_same_type(change.new.mode) {
            out.push(plain(Status::Modified));
        } else {
            out.push(plain(Status::TypeChanged));
        }
    }
    debug_assert!(copies || uses.values().all(|left| *left == 0), "a rename has no target");
}

struct RenameSearch<'c> {
    changes: &'c FileChanges,
    copies: bool,
    stop: &'c Stop,
    sources: Vec<RenameSource>,
    targets: Vec<RenameTarget>,
}

impl RenameSearch<'_> {
    fn gather(&mut self) {
        for (at, change) in (0u32..).zip(&self.changes.list) {
            if change.old.mode.is_absent() {
                self.targets.push(RenameTarget { at, item: change.new, found: None });
            } else if change.new.mode.is_absent() {
                self.sources.push(RenameSource { at, item: change.old, used: 0 });
            } else if self.copies {
                self.sources.push(RenameSource { at, item: change.old, used: 1 });
            }
        }
    }

    fn path(&self, at: u32) -> &[u8] {
        self.changes.path(&self.changes.list[at as usize])
    }

    fn is_name_same(&self, source: &RenameSource, target: &RenameTarget) -> bool {
        basename(self.path(source.at)) == basename(self.path(target.at))
    }

    fn record(&mut self, source: usize, target: usize, score: u64) {
        debug_assert!(self.targets[target].found.is_none(), "a file has come from two others");
        debug_assert!(score <= SCORE_MAX, "{score} is more than all");
        self.sources[source].used += 1;
        self.targets[target].found = Some((source, score));
    }

    fn find(&mut self, options: &RenameOptions, similarity: &mut Similarity<'_, '_>) {
        let minimum = u64::from(options.similarity.min(100)) * SCORE_MAX / 100;
        self.find_identical();
        if minimum == SCORE_MAX {
            return;
        }
        if !self.copies {
            self.find_by_basename(minimum + (SCORE_MAX - minimum) / 2, similarity);
        }
        let sources: Vec<usize> =
            (0..self.sources.len()).filter(|&s| self.copies || self.sources[s].used == 0).collect();
        let targets: Vec<usize> =
            (0..self.targets.len()).filter(|&t| self.targets[t].found.is_none()).collect();
        let limit = u64::from(options.limit);
        if limit > 0 && sources.len() as u64 * targets.len() as u64 > limit * limit {
            return;
        }
        let mut best = self.candidates(&sources, &targets, minimum, similarity);
        best.sort_by_key(Candidate::rank);
        best.retain(|candidate| candidate.score >= minimum);
        self.take(&best, false);
        if self.copies {
            self.take(&best, true);
        }
    }

    fn find_identical(&mut self) {
        // Only files go together with files of another mode.
        let mode = |item: &TreeItem| if item.mode.is_file() { Mode::File } else { item.mode };
        let key = |item: &TreeItem| (item.object, mode(item).bits());
        let mut by_object: HashMap<(u32, u32), VecDeque<usize>> = HashMap::new();
        for (n, source) in self.sources.iter().enumerate() {
            by_object.entry(key(&source.item)).or_default().push_back(n);
        }
        for t in 0..self.targets.len() {
            if self.stop.is_stopped() {
                return;
            }
            let target = &self.targets[t];
            let Some(same) = by_object.get_mut(&key(&target.item)) else { continue };
            let (mut best, mut best_score) = (None, -1);
            for (at, &s) in same.iter().enumerate().take(IDENTICAL_MAX) {
                let source = &self.sources[s];
                let score = i32::from(source.used == 0) + i32::from(self.is_name_same(source, target));
                if score > best_score {
                    (best, best_score) = (Some((at, s)), score);
                }
                if score == 2 {
                    break;
                }
            }
            if let Some((at, source)) = best {
                // Without copies each source has one target, so that it need not be looked at again. It is
                // near the start.
                if !self.copies {
                    same.remove(at);
                }
                self.record(source, t, SCORE_MAX);
            }
        }
    }

    /// Pairs files whose name without folders is the only such name on either side.
    fn find_by_basename(&mut self, minimum: u64, similarity: &mut Similarity<'_, '_>) {
        let changes = self.changes;
        let path = |at: u32| changes.path(&changes.list[at as usize]);
        fn note<'n>(map: &mut HashMap<&'n [u8], Option<usize>>, name: &'n [u8], n: usize) {
            match map.entry(name) {
                Entry::Occupied(mut entry) => drop(entry.insert(None)),
                Entry::Vacant(entry) => drop(entry.insert(Some(n))),
            }
        }
        let (mut sources, mut targets) = (HashMap::new(), HashMap::new());
        for (n, source) in self.sources.iter().enumerate().filter(|(_, s)| s.used == 0) {
            note(&mut sources, basename(path(source.at)), n);
        }
        for (n, target) in self.targets.iter().enumerate().filter(|(_, t)| t.found.is_none()) {
            note(&mut targets, basename(path(target.at)), n);
        }
        for s in 0..self.sources.len() {
            if self.stop.is_stopped() {
                return;
            }
            let source = &self.sources[s];
            let name = basename(path(source.at));
            let (Some(Some(only)), Some(&Some(t))) = (sources.get(name), targets.get(name)) else { continue };
            if *only != s || self.targets[t].found.is_some() {
                continue;
            }
            let score = similarity.score(source.item, self.targets[t].item, minimum);
            if score >= minimum {
                self.record(s, t, score);
            }
        }
    }

    /// Returns the best few sources of each target. Sources are read in groups that are remembered together,
    /// so that each target is read once for each group.
    fn candidates(
        &self,
        sources: &[usize],
        targets: &[usize],
        minimum: u64,
        similarity: &mut Similarity<'_, '_>,
    ) -> Vec<Candidate> {
        let mut of_targets: Vec<Vec<Candidate>> = vec![Vec::with_capacity(CANDIDATES); targets.len()];
        let mut rest = sources;
        while !rest.is_empty() {
            let count = similarity.remembered_together(rest.iter().map(|&s| self.sources[s].item)).max(1);
            let (group, others) = rest.split_at(count);
            rest = others;
            for (&target, of_target) in targets.iter().zip(&mut of_targets) {
                for &source in group {
                    if self.stop.is_stopped() {
                        return Vec::new();
                    }
                    let (from, to) = (&self.sources[source], &self.targets[target]);
                    let score = similarity.score(from.item, to.item, minimum);
                    let has_name = self.is_name_same(from, to);
                    keep_best(of_target, Candidate { source, target, score, has_name });
                }
            }
        }
        of_targets.concat()
    }

    fn take(&mut self, best: &[Candidate], takes_used: bool) {
        for candidate in best {
            let is_used = self.sources[candidate.source].used > 0;
            if self.targets[candidate.target].found.is_none() && (takes_used || !is_used) {
                self.record(candidate.source, candidate.target, candidate.score);
            }
        }
    }
}
