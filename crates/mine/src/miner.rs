//! Mining of one repository.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use weir_git::{Kind, Oid, OidSet, tag_target};
use weir_ground::Stop;
use weir_ground::thread::on_threads;
use weir_repo::{Forest, Repo};

use crate::changes::{ChangeRecord, ChangeRun, Comparison, MergeMode, over_limit};
use crate::commit::{CommitParts, TagParts};
use crate::commit_table::{CommitNeeds, CommitTable, HistoryJoins};
use crate::error::{Error, Result};
use crate::ids::ObjectNumbers;
use crate::line_stats::{BlobPair, LineStats};
use crate::mode::Mode;
use crate::progress::MineProgress;
use crate::renames::RenameOptions;
use crate::rows::{
    FaultKind, FaultRow, FileChangeRow, Lines, ReleaseRow, ReplacedRows, RevisionRow, RowSink, Side,
};
use crate::tree_steps::{TreeItem, TreeSteps};

/// The number of commits that a thread writes at once.
const ROWS_AT_ONCE: usize = 4096;
/// The bytes of changes that are held at a time.
const CHANGES_BYTES_MAX: usize = 160 << 20;
/// By default a repository has at most this many changed files, and so many more for each of its objects. A
/// small pack of nested trees may stand for any number.
const CHANGES_MAX: u64 = 2_000_000;
const CHANGES_PER_OBJECT: u64 = 20;
/// If fewer than one commit in this many is compared, trees are read one by one.
const FEW_COMMITS_SHARE: usize = 32;

/// What is mined, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct MineOptions {
    /// Commits and annotated tags.
    pub has_revisions: bool,
    /// The files that commits change.
    pub has_changes: bool,
    /// The numbers of lines that changes add and remove. Needs `has_changes`.
    pub has_lines: bool,
    /// How merges are compared.
    pub merges: MergeMode,
    /// How renames are detected.
    pub renames: RenameOptions,
    /// The most changed files of a repository that are written in one mining; by default some millions, and
    /// more in large repositories.
    pub changes_max: Option<u64>,
}

/// What was mined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MineReport {
    /// Commits.
    pub revisions: u64,
    /// Annotated tags.
    pub releases: u64,
    /// Changed files.
    pub changes: u64,
    /// Errors.
    pub faults: u64,
    /// Whether something could not be read: there are errors, or lines that could not be counted.
    pub has_unread: bool,
}

/// Which part of a history is mined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tips<'t> {
    /// What refs point at: all that these reach is mined.
    pub wanted: &'t [Oid],
    /// What was mined before: all that these reach is left out.
    pub known: &'t [Oid],
    /// Whether rows of what is mined may have been written before.
    pub replaces: bool,
    /// Errors that are known already.
    pub faults: &'t [FaultRow],
    /// The commit of HEAD.
    pub head: Option<Oid>,
    /// The commit that HEAD had when the rows of the default branch were written.
    pub known_head: Option<Oid>,
}

/// Mines `repo`. Uses one thread for each of `sinks`; rows of one sink ascend by committer date.
///
/// Damage in the repository becomes rows of errors.
///
/// # Errors
/// If the repository cannot be read at all, a sink fails, or `stop` was requested.
pub fn mine<S: RowSink>(
    repo: &Repo,
    tips: Tips<'_>,
    options: &MineOptions,
    sinks: &[Mutex<S>],
    progress: &MineProgress,
    stop: &Stop,
) -> Result<MineReport> {
    let forest = Forest::new(repo.objects(), sinks.len())?;
    let ids = ObjectNumbers::new(&forest);
    let needs = CommitNeeds { trees: options.has_changes, content: options.has_revisions };
    let joins = HistoryJoins {
        shallow: repo.history().shallow(),
        grafts: &repo.extras().grafts,
        replaced: repo.replaced(),
    };
    let table = CommitTable::new(&ids, &joins, needs, sinks.len(), stop);
    let mut miner = Miner {
        ids: &ids,
        table,
        order: Vec::new(),
        options,
        sinks,
        progress,
        stop,
        report: MineReport::default(),
    };
    let releases = miner.choose(tips)?;
    if options.has_revisions || options.has_changes {
        miner.write_branch(&tips)?;
    }
    progress.commits.fetch_add(miner.order.len() as u64, Ordering::Relaxed);
    if options.has_revisions {
        miner.write_releases(&releases)?;
        miner.write_revisions()?;
    }
    miner.table.drop_data();
    if options.has_changes {
        miner.write_changes()?;
    }
    if stop.is_stopped() {
        return Err(Error::Stopped);
    }
    Ok(miner.report)
}

struct Miner<'m, 'f, 'o, S> {
    ids: &'m ObjectNumbers<'f, 'o>,
    table: CommitTable,
    /// The places of the commits that are mined, by committer date.
    order: Vec<u32>,
    options: &'m MineOptions,
    sinks: &'m [Mutex<S>],
    progress: &'m MineProgress,
    stop: &'m Stop,
    report: MineReport,
}

impl<S: RowSink> Miner<'_, '_, '_, S> {
    /// Chooses the commits that are mined, and writes the errors of those that are not there. Returns the
    /// tags on the way to them.
    fn choose(&mut self, tips: Tips<'_>) -> Result<Vec<Oid>> {
        let (known, known_tags, _) = self.peel(tips.known);
        let (wanted, mut releases, mut faults) = self.peel(tips.wanted);
        let known_tags: OidSet = known_tags.into_iter().collect();
        releases.retain(|tag| !known_tags.contains(tag));
        let mut old = vec![false; self.table.nodes.len()];
        self.table.mark_reached(&known, &mut old, |_, _| {});
        let mut marks = old.clone();
        self.table.mark_reached(&wanted, &mut marks, |number, from| {
            faults.push(self.table.fault(self.ids, number, from));
        });
        self.order = (0..self.table.nodes.len() as u32)
            .filter(|&place| marks[place as usize] && !old[place as usize])
            .collect();
        let nodes = &self.table.nodes;
        self.order.sort_unstable_by_key(|&place| {
            let node = &nodes[place as usize];
            // In a pack, commits mostly follow their children.
            (node.date, std::cmp::Reverse(node.object))
        });
        faults.sort_by_key(|fault| (fault.object, fault.revision));
        faults.dedup_by(|next, kept| next.object == kept.object);
        if tips.replaces {
            let oid = |place: &u32| self.ids.oid(self.table.nodes[*place as usize].object);
            self.first_sink().replace(ReplacedRows {
                revisions: self.order.iter().map(oid).collect(),
                releases: releases.iter().copied().collect(),
                all_faults: tips.known.is_empty(),
                all_of_branch: false,
            })?;
        }
        self.write_faults(tips.faults)?;
        self.write_faults(&faults)?;
        Ok(releases)
    }

    /// Writes the commits that the default branch has gained. If it has lost some, or what it had may have
    /// been told wrong, all are written again; not while a part of the same history cannot be read.
    fn write_branch(&mut self, tips: &Tips<'_>) -> Result<()> {
        let reached = |head: Option<Oid>| {
            let mut marks = vec![false; self.table.nodes.len()];
            let mut is_whole = true;
            let (commits, ..) = self.peel(head.as_slice());
            self.table.mark_reached(&commits, &mut marks, |_, _| is_whole = false);
            (marks, is_whole)
        };
        // A directory may have been converted to another hash.
        let hash = self.ids.forest().objects().hash();
        let known_head = tips.known_head.filter(|oid| oid.kind() == hash);
        let ((is, is_whole), (was, was_whole)) = (reached(tips.head), reached(known_head));
        if !is_whole {
            self.report.has_unread = true;
            if tips.head == known_head {
                return Ok(());
            }
        }
        let is_right = known_head.is_some() && was_whole && !tips.replaces;
        let is_lost = || was.iter().zip(&is).any(|(was, is)| *was && !is);
        let is_anew = tips.known_head.is_some() && (!is_right || is_lost());
        let mut sink = self.first_sink();
        if is_anew {
            sink.replace(ReplacedRows { all_of_branch: true, ..ReplacedRows::default() })?;
        }
        let nodes = &self.table.nodes;
        let mut places: Vec<usize> =
            (0..nodes.len()).filter(|&place| is[place] && (is_anew || !was[place])).collect();
        places.sort_unstable_by_key(|&place| (nodes[place].date, std::cmp::Reverse(nodes[place].object)));
        Ok(places.into_iter().try_for_each(|place| sink.branch_commit(self.ids.oid(nodes[place].object)))?)
    }

    /// Returns the numbers of the commits behind `tips`, and the tags on the way to them. Tips that lead to
    /// trees and blobs have no history.
    fn peel(&self, tips: &[Oid]) -> (Vec<u32>, Vec<Oid>, Vec<FaultRow>) {
        let (mut commits, mut tags, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = OidSet::default();
        let mut reader = self.ids.forest().objects().reader();
        let mut tips: Vec<Oid> = tips.to_vec();
        tips.sort_unstable();
        tips.dedup();
        while let Some(oid) = tips.pop() {
            let number = self.ids.number(oid.as_bytes());
            let kind = if self.ids.is_here(number) { self.ids.forest().kind(number) } else { None };
            if kind != Some(Kind::Tag) {
                if !matches!(kind, Some(Kind::Tree | Kind::Blob)) {
                    commits.push(number);
                }
                continue;
            }
            if !seen.insert(oid) {
                continue;
            }
            tags.push(oid);
            match reader.require(&oid).map(|tag| tag_target(oid.kind(), &tag.data)) {
                Ok(Ok((target, _))) => tips.push(target),
                Ok(Err(e)) => faults.push(malformed(oid, e.to_string())),
                Err(e) => faults.push(malformed(oid, e.to_string())),
            }
        }
        (commits, tags, faults)
    }

    fn first_sink(&self) -> std::sync::MutexGuard<'_, S> {
        self.sinks[0].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_faults(&mut self, faults: &[FaultRow]) -> Result<()> {
        self.report.faults += faults.len() as u64;
        // What is over a limit is not there the next time either.
        self.report.has_unread |= faults.iter().any(|fault| fault.kind != FaultKind::Limit);
        let mut sink = self.first_sink();
        Ok(faults.iter().try_for_each(|fault| sink.fault(fault))?)
    }

    fn write_releases(&mut self, tags: &[Oid]) -> Result<()> {
        let mut reader = self.ids.forest().objects().reader();
        self.report.releases += tags.len() as u64;
        let mut sink = self.first_sink();
        for &id in tags {
            let Ok(object) = reader.require(&id) else { continue };
            let tag = TagParts::parse(&object.data);
            let target = tag_target(id.kind(), &object.data).ok();
            sink.release(&ReleaseRow { id, target, tag: &tag })?;
        }
        Ok(())
    }

    /// Calls `each` on all threads with parts of `list` of at most `at_once`, until one fails.
    fn in_parts<T: Sync>(
        &self,
        list: &[T],
        at_once: usize,
        each: impl Fn(&mut S, &[T]) -> Result<u64> + Sync,
    ) -> Result<u64> {
        let (next, next_sink) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let done = on_threads("weir-rows", self.sinks.len(), || {
            let sink = &self.sinks[next_sink.fetch_add(1, Ordering::Relaxed)];
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let mut sum = 0;
            while !self.stop.is_stopped() {
                let at = next.fetch_add(at_once, Ordering::Relaxed);
                let Some(part) = list.get(at..list.len().min(at + at_once)) else { break };
                sum += each(&mut sink, part).inspect_err(|_| next.store(list.len(), Ordering::Relaxed))?;
            }
            Ok(sum)
        });
        done.into_iter().sum()
    }

    fn write_revisions(&mut self) -> Result<()> {
        let hash = self.ids.forest().objects().hash();
        self.report.revisions = self.in_parts(&self.order, ROWS_AT_ONCE, |sink, part| {
            let mut reader = self.ids.forest().objects().reader();
            for &place in part {
                let node = &self.table.nodes[place as usize];
                let id = self.ids.oid(node.object);
                let written = self.table.with_data(node, self.ids, &mut reader, |data| {
                    let mut commit = CommitParts::parse(hash, data).expect("it was parsed before");
                    let parents = self.table.parents(node).iter();
                    commit.links.parents = parents.map(|&parent| self.ids.oid(parent)).collect();
                    sink.revision(&RevisionRow { id, commit: &commit })
                });
                match written {
                    Ok(written) => written?,
                    Err(e) => sink.fault(&malformed(id, e.to_string()))?,
                }
            }
            self.progress.written.fetch_add(part.len() as u64, Ordering::Relaxed);
            Ok(part.len() as u64)
        })?;
        Ok(())
    }

    fn write_changes(&mut self) -> Result<()> {
        let threads = self.sinks.len();
        let is_few = self.order.len() < self.table.nodes.len() / FEW_COMMITS_SHARE;
        let steps = if is_few { TreeSteps::none() } else { TreeSteps::new(self.ids, threads, self.stop) };
        let order = std::mem::take(&mut self.order);
        let by_objects = || CHANGES_MAX + CHANGES_PER_OBJECT * u64::from(self.ids.forest().count());
        let changes_max = self.options.changes_max.unwrap_or_else(by_objects);
        let mut rest = &order[..];
        while let Some(&first) = rest.first()
            && !self.stop.is_stopped()
        {
            let left =
                usize::try_from(changes_max - self.report.changes.min(changes_max)).unwrap_or(usize::MAX);
            if left == 0 {
                let object = self.ids.oid(self.table.nodes[first as usize].object);
                let text = format!("{}; those of later commits, too", over_limit(changes_max as usize));
                self.write_faults(&[FaultRow {
                    object,
                    kind: FaultKind::Limit,
                    revision: Some(object),
                    text,
                }])?;
                return Ok(());
            }
            let comparison = Comparison {
                ids: self.ids,
                table: &self.table,
                steps: &steps,
                merges: self.options.merges,
                renames: &self.options.renames,
                count_max: left,
                stop: self.stop,
            };
            let compared = |count| {
                self.progress.compared.fetch_add(count, Ordering::Relaxed);
            };
            let (mut runs, done) = comparison.changes(rest, threads, CHANGES_BYTES_MAX, &compared);
            rest = &rest[done..];
            let stats = self.options.has_lines.then(|| {
                let pairs: Vec<BlobPair> =
                    runs.iter().flat_map(|run| run.list.iter().flat_map(blob_pairs)).collect();
                LineStats::count(self.ids, pairs, threads, self.progress, self.stop)
            });
            self.report.changes += self.in_parts(&runs, 1, |sink, part| {
                part.iter().try_fold(0, |sum, run| {
                    self.write_run(sink, run, stats.as_ref())?;
                    self.progress.changes.fetch_add(run.list.len() as u64, Ordering::Relaxed);
                    Ok(sum + run.list.len() as u64)
                })
            })?;
            self.report.has_unread |= stats.as_ref().is_some_and(LineStats::has_unavailable);
            let faults: Vec<FaultRow> = runs.iter_mut().flat_map(|run| run.faults.drain(..)).collect();
            self.write_faults(&faults)?;
        }
        Ok(())
    }

    fn write_run(&self, sink: &mut S, run: &ChangeRun, stats: Option<&LineStats>) -> Result<()> {
        for change in &run.list {
            let node = &self.table.nodes[change.commit as usize];
            let side = |item: &TreeItem, path| match item.mode {
                Mode::Absent => None,
                mode => Some(Side { path, id: self.ids.oid(item.object), mode: mode.bits() }),
            };
            sink.file_change(&FileChangeRow {
                revision: self.ids.oid(node.object),
                committer_date: node.committer_time(),
                parent_rank: change.parent_rank,
                is_merge: self.table.parents(node).len() > 1,
                status: change.status,
                similarity: (change.similarity > 0).then_some(change.similarity),
                old: side(&change.old, run.old_path(change)),
                new: side(&change.new, run.new_path(change)),
                lines: stats.map(|stats| lines_of(change, stats)),
            })?;
        }
        Ok(())
    }
}

fn malformed(object: Oid, text: String) -> FaultRow {
    FaultRow { object, kind: FaultKind::Malformed, revision: None, text }
}

/// Returns the pairs of blobs whose counts `change` needs. A submodule is no blob: its commit counts as one
/// line of text.
fn blob_pairs(change: &ChangeRecord) -> Vec<BlobPair> {
    let (old, new) = change.blobs();
    match (change.old.mode == Mode::Gitlink, change.new.mode == Mode::Gitlink) {
        (false, false) => vec![(old, new)],
        (true, false) if !change.new.mode.is_absent() => vec![(weir_repo::NO_OBJECT, new)],
        (false, true) if !change.old.mode.is_absent() => vec![(old, weir_repo::NO_OBJECT)],
        _ => Vec::new(),
    }
}

fn lines_of(change: &ChangeRecord, stats: &LineStats) -> Lines {
    let of_gitlink = |item: &TreeItem| u64::from(item.mode == Mode::Gitlink);
    let is_gitlink = of_gitlink(&change.old) + of_gitlink(&change.new) > 0;
    let is_same = change.old.object == change.new.object
        && !change.old.mode.is_absent()
        && !change.new.mode.is_absent();
    if is_gitlink && is_same {
        return Lines::Text { insertions: 0, deletions: 0 };
    }
    let mut lines = match blob_pairs(change).first() {
        Some(&pair) => stats.of(pair),
        None => Lines::Text { insertions: 0, deletions: 0 },
    };
    if is_gitlink && let Lines::Text { insertions, deletions } = &mut lines {
        *insertions += of_gitlink(&change.new);
        *deletions += of_gitlink(&change.old);
    }
    lines
}
