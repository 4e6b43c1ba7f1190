//! The files that commits change, with renames and copies.

use std::sync::atomic::{AtomicUsize, Ordering};

use weir_ground::Stop;
use weir_ground::thread::on_threads;
use weir_repo::NO_OBJECT;

use crate::commit_table::{CommitNode, CommitTable};
use crate::ids::ObjectNumbers;
use crate::renames::{Pair, RenameOptions, Status, pairs};
use crate::rows::{FaultKind, FaultRow};
use crate::similarity::Similarity;
use crate::tree_compare::{FileChanges, TreeComparer, TreeFault};
use crate::tree_steps::{TreeItem, TreeSteps};

/// The number of commits that a thread compares at once. Neighbours share what they need.
const COMMITS_AT_ONCE: usize = 256;

/// How merges are compared (`--diff-merges` of git).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MergeMode {
    /// Not at all.
    Off,
    /// With the first parent.
    #[default]
    FirstParent,
    /// With each parent.
    Separate,
}

/// A changed file, with the numbers of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRecord {
    /// The place of the commit in the table.
    pub(crate) commit: u32,
    pub(crate) parent_rank: u32,
    pub(crate) status: Status,
    pub(crate) similarity: u8,
    pub(crate) old: TreeItem,
    pub(crate) new: TreeItem,
    old_path: (u32, u32),
    new_path: (u32, u32),
}

impl ChangeRecord {
    /// Returns the numbers of both blobs, `NO_OBJECT` for a side that is absent.
    pub(crate) fn blobs(&self) -> (u32, u32) {
        let blob = |item: &TreeItem| if item.mode.is_absent() { NO_OBJECT } else { item.object };
        (blob(&self.old), blob(&self.new))
    }
}

/// The changes of a run of commits.
#[derive(Default)]
pub(crate) struct ChangeRun {
    /// The number of commits.
    commits: usize,
    pub(crate) list: Vec<ChangeRecord>,
    paths: Vec<u8>,
    pub(crate) faults: Vec<FaultRow>,
}

impl ChangeRun {
    pub(crate) fn old_path(&self, change: &ChangeRecord) -> &[u8] {
        &self.paths[change.old_path.0 as usize..][..change.old_path.1 as usize]
    }

    pub(crate) fn new_path(&self, change: &ChangeRecord) -> &[u8] {
        &self.paths[change.new_path.0 as usize..][..change.new_path.1 as usize]
    }

    fn bytes(&self) -> usize {
        self.paths.len() + self.list.len() * size_of::<ChangeRecord>()
    }

    fn push_path(&mut self, path: &[u8]) -> (u32, u32) {
        let at = self.paths.len() as u32;
        self.paths.extend_from_slice(path);
        (at, path.len() as u32)
    }

    /// Appends the changes `pairs` of a commit.
    fn push(&mut self, commit: u32, parent_rank: u32, files: &FileChanges, pairs: &[Pair]) {
        for pair in pairs {
            let (old, new) = (&files.list[pair.old as usize], &files.list[pair.new as usize]);
            let new_path = self.push_path(files.path(new));
            let old_path = if pair.old == pair.new { new_path } else { self.push_path(files.path(old)) };
            self.list.push(ChangeRecord {
                commit,
                parent_rank,
                status: pair.status,
                similarity: pair.similarity,
                old: old.old,
                new: new.new,
                old_path,
                new_path,
            });
        }
    }
}

/// Compares commits with their parents.
pub(crate) struct Comparison<'c, 'f, 'o> {
    pub(crate) ids: &'c ObjectNumbers<'f, 'o>,
    pub(crate) table: &'c CommitTable,
    pub(crate) steps: &'c TreeSteps,
    pub(crate) merges: MergeMode,
    pub(crate) renames: &'c RenameOptions,
    /// The most files that may differ.
    pub(crate) count_max: usize,
    pub(crate) stop: &'c Stop,
}

/// Returns the text of the error that more than `count_max` files differ.
pub(crate) fn over_limit(count_max: usize) -> String {
    format!("left out: there are more than {count_max} changed files, the limit of this run")
}

impl Comparison<'_, '_, '_> {
    /// Returns the changes of the commits at the places `commits`, in runs of neighbours, in order. Ends
    /// early once the changes take more than `bytes_max`; returns also the number of commits that are done.
    pub(crate) fn changes(
        &self,
        commits: &[u32],
        threads: usize,
        bytes_max: usize,
        done: &(dyn Fn(u64) + Sync),
    ) -> (Vec<ChangeRun>, usize) {
        let (next, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let parts = on_threads("weir-changes", threads, || {
            let mut worker = Worker {
                comparison: self,
                trees: TreeComparer::new(self.ids, self.steps, self.stop),
                similarity: Similarity::new(self.ids, self.renames.counts_last_line),
                files: FileChanges::at_most(self.count_max),
                pairs: Vec::new(),
            };
            let mut runs = Vec::new();
            while !self.stop.is_stopped() && bytes.load(Ordering::Relaxed) < bytes_max {
                let at = next.fetch_add(COMMITS_AT_ONCE, Ordering::Relaxed);
                let end = commits.len().min(at + COMMITS_AT_ONCE);
                let Some(some) = commits.get(at..end).filter(|some| !some.is_empty()) else { break };
                let mut changes = ChangeRun::default();
                for &commit in some {
                    worker.compare(commit, &mut changes);
                    changes.commits += 1;
                    if self.stop.is_stopped() || changes.bytes() > bytes_max {
                        break;
                    }
                }
                bytes.fetch_add(changes.bytes(), Ordering::Relaxed);
                runs.push((at, changes));
            }
            runs
        });
        let mut runs: Vec<(usize, ChangeRun)> = parts.into_iter().flatten().collect();
        runs.sort_unstable_by_key(|(at, _)| *at);
        // A run may have ended early. What was compared behind it is compared again.
        let mut end = 0;
        let runs = runs.into_iter().map_while(|(at, changes)| {
            let is_next = at == end;
            end = if is_next { at + changes.commits } else { end };
            is_next.then_some(changes)
        });
        let runs: Vec<ChangeRun> = runs.collect();
        done(end as u64);
        (runs, end)
    }
}

struct Worker<'w, 'c, 'f, 'o> {
    comparison: &'w Comparison<'c, 'f, 'o>,
    trees: TreeComparer<'c, 'f, 'o>,
    similarity: Similarity<'c, 'o>,
    files: FileChanges,
    pairs: Vec<Pair>,
}

impl Worker<'_, '_, '_, '_> {
    fn compare(&mut self, commit: u32, out: &mut ChangeRun) {
        let table = self.comparison.table;
        let node = &table.nodes[commit as usize];
        match (table.parents(node), self.comparison.merges) {
            ([], _) => self.compare_with(commit, node, None, 0, out),
            ([parent], _) => self.compare_with(commit, node, Some(*parent), 0, out),
            (_, MergeMode::Off) => {}
            ([first, ..], MergeMode::FirstParent) => self.compare_with(commit, node, Some(*first), 0, out),
            (parents, MergeMode::Separate) => {
                for (rank, &parent) in (0u32..).zip(parents) {
                    self.compare_with(commit, node, Some(parent), rank, out);
                }
            }
        }
    }

    fn compare_with(
        &mut self,
        commit: u32,
        node: &CommitNode,
        parent: Option<u32>,
        rank: u32,
        out: &mut ChangeRun,
    ) {
        let Comparison { ids, table, renames, .. } = *self.comparison;
        let parent_tree = match parent.map(|parent| table.place(parent)) {
            None => None,
            // A parent that is missing has an error of its own.
            Some(None) => return,
            Some(Some(place)) => Some(table.nodes[place].tree),
        };
        self.files.clear();
        let compared = self.trees.compare(parent_tree, Some(node.tree), &mut self.files);
        if let Err(fault) = compared {
            let revision = ids.oid(node.object);
            let (object, kind, text) = match fault {
                TreeFault::Object { object, what } if ids.is_here(object) => {
                    (ids.oid(object), FaultKind::Malformed, what)
                }
                TreeFault::Object { object, what } => (ids.oid(object), FaultKind::Missing, what),
                TreeFault::TooMany => (revision, FaultKind::Limit, over_limit(self.comparison.count_max)),
            };
            out.faults.push(FaultRow { object, kind, revision: Some(revision), text });
            return;
        }
        pairs(&self.files, renames, &mut self.similarity, self.comparison.stop, &mut self.pairs);
        out.push(commit, rank, &self.files, &self.pairs);
    }
}
