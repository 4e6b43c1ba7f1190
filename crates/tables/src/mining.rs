//! Mining of many repositories into tables.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_ground::thread::on_threads;
use weir_ground::{Clock, Stop};
use weir_mine::{MineOptions, MineProgress, MineReport, MinedRefs, MinedState, Tips, mine_visits};
use weir_repo::Repo;

use crate::error::{Error, Result};
use crate::output::MineOutput;
use crate::removal::{OriginEdit, RowEdit};
use crate::sink::{MiningRow, TableSink, mine_into};

/// Repositories of at least this many bytes are mined one after the other, with all threads.
const LARGE_BYTES: u64 = 48 << 20;
/// Rows become part of the dataset after this time, between two repositories.
const COMMIT_EVERY: Duration = Duration::from_secs(120);

/// Why a repository cannot be opened, as whoever opens it says.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A repository that is to be mined.
pub struct MineSource<'s> {
    /// Its name in the tables.
    pub origin: String,
    /// The names that it had before: rows with one of them move with it.
    pub former: Vec<String>,
    /// The address of its upstream.
    pub url: Option<String>,
    /// Its size in bytes, roughly.
    pub bytes: u64,
    /// The number of the last commit of its archive, if it is known without opening it.
    pub seq: Option<u64>,
    /// Opens it.
    pub open: Box<dyn Fn() -> std::result::Result<Repo, SourceError> + Sync + 's>,
}

/// Removes all rows in `output` of the repositories whose name `is_meant`. Returns these names.
///
/// # Errors
/// If rows cannot be written.
pub fn forget(output: &mut impl MineOutput, is_meant: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut names = output.origins();
    names.retain(|name| is_meant(name));
    names.sort();
    let edits = names.iter().map(|origin| OriginEdit { origin: origin.clone(), edit: RowEdit::Forget });
    let edits: Vec<OriginEdit> = edits.collect();
    if !edits.is_empty() {
        output.edit(edits)?;
    }
    Ok(names)
}

/// Moves the rows of repositories that have another name now.
fn rename(output: &mut impl MineOutput, sources: &[&MineSource<'_>]) -> Result<()> {
    let is_there = |name: &str| output.state(name) != MinedState::default();
    let names: HashSet<&str> = sources.iter().map(|source| source.origin.as_str()).collect();
    let mut edits = Vec::new();
    for source in sources.iter().filter(|source| !is_there(&source.origin)) {
        let old = source.former.iter().find(|old| !names.contains(old.as_str()) && is_there(old));
        edits.extend(
            old.map(|old| OriginEdit { origin: old.clone(), edit: RowEdit::Rename(source.origin.clone()) }),
        );
    }
    if edits.is_empty() { Ok(()) } else { output.edit(edits) }
}

/// What became of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MineEvent {
    /// Its rows were written.
    Mined {
        /// What was mined.
        report: MineReport,
        /// How long that took.
        took: Duration,
    },
    /// Its refs are those of the last mining.
    Unchanged,
    /// It could not be mined.
    Failed(String),
}

/// What became of all repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MineTotals {
    /// Repositories whose rows were written.
    pub mined: u64,
    /// Repositories that are unchanged.
    pub unchanged: u64,
    /// Repositories that could not be mined.
    pub failed: u64,
    /// Whether a stop was requested before all were done.
    pub is_stopped: bool,
}

/// How repositories are mined.
pub struct MineRun<'r> {
    /// What is mined.
    pub options: &'r MineOptions,
    /// Whether states of the refs are written.
    pub has_refs: bool,
    /// The number of threads.
    pub threads: usize,
    /// The clock.
    pub clock: &'r Clock,
    /// Shows how far it is.
    pub progress: &'r MineProgress,
    /// Is told what became of each repository.
    pub tell: &'r (dyn Fn(&MineSource<'_>, &MineEvent) + Sync),
    /// The time after which a repository is given up.
    pub time_max: Option<Duration>,
    /// Requests an end.
    pub stop: &'r Stop,
}

/// Mines `sources` into `output`, each name once. What was mined before is left out. A dataset keeps what was
/// completed, also if a stop is requested. A repository whose rows cannot be written is a failure of its own,
/// as long as others can be.
///
/// # Errors
/// If no rows can be written. Damage of repositories is told or becomes rows.
pub fn mine_all<O: MineOutput>(
    sources: &[MineSource<'_>],
    mut output: O,
    run: &MineRun<'_>,
) -> Result<MineTotals> {
    let threads = run.threads.max(1);
    let is_large = |source: &MineSource<'_>| threads > 1 && source.bytes >= LARGE_BYTES;
    let mut origins = HashSet::new();
    let mut order: Vec<&MineSource<'_>> =
        sources.iter().filter(|source| origins.insert(source.origin.as_str())).collect();
    rename(&mut output, &order)?;
    order.sort_by_key(|source| std::cmp::Reverse(source.bytes));
    let (large, small) = order.split_at(order.partition_point(|source| is_large(source)));
    let batch = Batch {
        run,
        output: Mutex::new(output),
        mined: AtomicU64::new(0),
        unchanged: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        is_failed: AtomicBool::new(false),
    };
    let sinks = batch.sinks(threads);
    batch.work_off(&sinks, large, &AtomicUsize::new(0))?;
    drop(sinks);
    let next = AtomicUsize::new(0);
    let done = on_threads("weir-mine", threads.min(small.len().max(1)), || {
        let sinks = batch.sinks(1);
        batch.work_off(&sinks, small, &next)
    });
    done.into_iter().collect::<Result<()>>()?;
    if batch.mined.load(Ordering::Relaxed) > 0 {
        batch.output().finish()?;
    }
    let total = batch.mined.load(Ordering::Relaxed)
        + batch.unchanged.load(Ordering::Relaxed)
        + batch.failed.load(Ordering::Relaxed);
    Ok(MineTotals {
        mined: batch.mined.into_inner(),
        unchanged: batch.unchanged.into_inner(),
        failed: batch.failed.into_inner(),
        is_stopped: total < origins.len() as u64,
    })
}

/// The repositories of a call, and what became of them.
struct Batch<'b, O> {
    run: &'b MineRun<'b>,
    output: Mutex<O>,
    mined: AtomicU64,
    unchanged: AtomicU64,
    failed: AtomicU64,
    /// Rows could not be written: all threads end.
    is_failed: AtomicBool,
}

/// The rows of a thread.
type ThreadSink<O> = Mutex<TableSink<<O as MineOutput>::Writer>>;

/// A repository whose rows are not yet part of the dataset.
struct PendingRows<'s> {
    source: &'s MineSource<'s>,
    state: MinedState,
    event: MineEvent,
}

/// Why a repository is not mined.
enum MineFailure {
    /// It cannot be opened: it has no rows yet.
    Unread(SourceError),
    /// For a reason of its own.
    Source(String),
    /// Because rows cannot be written.
    Output(Error),
    /// Because a stop was requested.
    Stopped,
}

impl<O: MineOutput> Batch<'_, O> {
    fn output(&self) -> MutexGuard<'_, O> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `count` sinks, whose rows are committed together.
    fn sinks(&self, count: usize) -> Vec<ThreadSink<O>> {
        let writers = self.output().writers(count);
        writers.into_iter().map(|writer| Mutex::new(TableSink::new(writer))).collect()
    }

    /// Mines the sources of `list` from the place `next` on, with the threads of `sinks`.
    fn work_off<'s>(
        &self,
        sinks: &[ThreadSink<O>],
        list: &[&'s MineSource<'s>],
        next: &AtomicUsize,
    ) -> Result<()> {
        let mut pending: Vec<PendingRows<'_>> = Vec::new();
        let mut committed_at = Instant::now();
        while !self.run.stop.is_stopped() && !self.is_failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = list.get(at) else { break };
            match self.mine_or_tell(source, sinks) {
                Ok(done) => pending.extend(done),
                Err(failure) => {
                    // The rows that are not yet part of the dataset are dropped, and the other repositories
                    // among them are mined again.
                    self.failed(source, failure, sinks)?;
                    self.mine_again(sinks, &mut pending)?;
                }
            }
            self.run.progress.repositories.fetch_add(1, Ordering::Relaxed);
            let wants_commit =
                O::wants_commit(sinks[0].lock().unwrap_or_else(PoisonError::into_inner).writer());
            if wants_commit || committed_at.elapsed() > COMMIT_EVERY {
                self.commit_or_mine_alone(sinks, &mut pending)?;
                committed_at = Instant::now();
            }
        }
        self.commit_or_mine_alone(sinks, &mut pending)
    }

    /// Commits what is pending. If that fails, one of the repositories may be the cause: each is mined again
    /// and committed alone.
    fn commit_or_mine_alone(
        &self,
        sinks: &[ThreadSink<O>],
        pending: &mut Vec<PendingRows<'_>>,
    ) -> Result<()> {
        let Err(e) = self.commit(sinks, pending) else { return Ok(()) };
        self.discard(sinks);
        if let [one] = &pending[..] {
            let source = one.source;
            pending.clear();
            return self.failed(source, MineFailure::Output(e), sinks);
        }
        self.check_output(e)?;
        self.mine_alone(sinks, pending.drain(..).map(|pending| pending.source).collect())
    }

    /// Mines what is pending again, whose rows were dropped. If a repository fails this time, the rest are
    /// committed each alone.
    fn mine_again<'s>(&self, sinks: &[ThreadSink<O>], pending: &mut Vec<PendingRows<'s>>) -> Result<()> {
        let mut sources: Vec<&MineSource<'_>> = pending.drain(..).map(|pending| pending.source).collect();
        sources.reverse();
        while !self.run.stop.is_stopped()
            && let Some(source) = sources.pop()
        {
            match self.mine_or_tell(source, sinks) {
                Ok(done) => pending.extend(done),
                Err(failure) => {
                    self.failed(source, failure, sinks)?;
                    sources.extend(pending.drain(..).map(|pending| pending.source));
                    return self.mine_alone(sinks, sources);
                }
            }
        }
        self.commit_or_mine_alone(sinks, pending)
    }

    /// Mines repositories, and commits each alone.
    fn mine_alone(&self, sinks: &[ThreadSink<O>], sources: Vec<&MineSource<'_>>) -> Result<()> {
        for source in sources.into_iter().take_while(|_| !self.run.stop.is_stopped()) {
            match self.mine_or_tell(source, sinks) {
                Ok(None) => {}
                Ok(Some(done)) => self.commit_or_mine_alone(sinks, &mut vec![done])?,
                Err(failure) => self.failed(source, failure, sinks)?,
            }
        }
        Ok(())
    }

    /// Drops the rows of `sinks`, and tells that `source` was not mined.
    ///
    /// # Errors
    /// If it is not for a reason of its own: nothing can be written any more.
    fn failed(&self, source: &MineSource<'_>, failure: MineFailure, sinks: &[ThreadSink<O>]) -> Result<()> {
        self.discard(sinks);
        let text = match failure {
            MineFailure::Stopped => return Ok(()),
            MineFailure::Unread(e) => e.to_string(),
            MineFailure::Source(text) => text,
            MineFailure::Output(e) => {
                let text = e.to_string();
                self.check_output(e)?;
                text
            }
        };
        self.tell(source, &MineEvent::Failed(text));
        Ok(())
    }

    /// Returns the error `e` of writing rows if no others can be written either.
    fn check_output(&self, e: Error) -> Result<()> {
        if self.output().is_usable() {
            return Ok(());
        }
        self.is_failed.store(true, Ordering::Relaxed);
        Err(e)
    }

    /// Drops rows that are not yet part of the tables.
    fn discard(&self, sinks: &[ThreadSink<O>]) {
        for sink in sinks {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = self.output().discard(sink.writer());
            *sink = TableSink::new(writer);
        }
    }

    /// Makes all rows of `sinks` part of the tables.
    fn commit(&self, sinks: &[ThreadSink<O>], pending: &mut Vec<PendingRows<'_>>) -> Result<()> {
        let states: Vec<_> = pending.iter().map(|p| (p.source.origin.clone(), p.state.clone())).collect();
        let mut locked: Vec<MutexGuard<'_, TableSink<O::Writer>>> =
            sinks.iter().map(|sink| sink.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        for sink in &mut locked {
            sink.flush().map_err(|e| self.output().error(e))?;
        }
        let mut writers: Vec<&mut O::Writer> = locked.iter_mut().map(|sink| sink.writer()).collect();
        O::commit(&mut writers, &states)?;
        self.output().add(&mut writers, states)?;
        drop(locked);
        pending.drain(..).for_each(|done| self.tell(done.source, &done.event));
        Ok(())
    }

    fn tell(&self, source: &MineSource<'_>, event: &MineEvent) {
        let count = match event {
            MineEvent::Mined { .. } => &self.mined,
            MineEvent::Unchanged => &self.unchanged,
            MineEvent::Failed(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        (self.run.tell)(source, event);
    }

    /// Mines a repository. If it has no new rows, because it is unchanged or cannot be opened, tells so and
    /// returns `None`: the rows of others stay as they are.
    fn mine_or_tell<'s>(
        &self,
        source: &'s MineSource<'s>,
        sinks: &[ThreadSink<O>],
    ) -> std::result::Result<Option<PendingRows<'s>>, MineFailure> {
        let event = match self.mine_one(source, sinks) {
            Ok(None) => MineEvent::Unchanged,
            Err(MineFailure::Unread(e)) => MineEvent::Failed(e.to_string()),
            done => return done,
        };
        self.tell(source, &event);
        Ok(None)
    }

    /// Mines a repository. Returns `None` if it is unchanged. A panic is a failure of this repository only.
    fn mine_one<'s>(
        &self,
        source: &'s MineSource<'s>,
        sinks: &[ThreadSink<O>],
    ) -> std::result::Result<Option<PendingRows<'s>>, MineFailure> {
        // What a panic leaves half done is in the sinks, whose rows are dropped.
        catch_unwind(AssertUnwindSafe(|| self.mine_source(source, sinks))).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(MineFailure::Source(format!("this is a fault of weir, please report it: {said}")))
        })
    }

    fn mine_source<'s>(
        &self,
        source: &'s MineSource<'s>,
        sinks: &[ThreadSink<O>],
    ) -> std::result::Result<Option<PendingRows<'s>>, MineFailure> {
        let began = Instant::now();
        let before = self.output().state(&source.origin);
        if matches!(before.refs, MinedRefs::Archive { seq } if Some(seq) == source.seq) {
            return Ok(None);
        }
        let started_at = self.run.clock.now();
        let repo = (source.open)().map_err(MineFailure::Unread)?;
        let stop = match self.run.time_max {
            Some(time) => self.run.stop.within(time),
            None => self.run.stop.clone(),
        };
        let failure = |e| match e {
            weir_mine::Error::Output(e) => MineFailure::Output(self.output().error(e)),
            weir_mine::Error::Stopped if !self.run.stop.is_stopped() => {
                let seconds = self.run.time_max.unwrap_or_default().as_secs();
                MineFailure::Source(format!("it took longer than the limit of {seconds} s"))
            }
            weir_mine::Error::Stopped => MineFailure::Stopped,
            other => MineFailure::Source(other.to_string()),
        };
        for sink in sinks {
            sink.lock().unwrap_or_else(PoisonError::into_inner).set_origin(&source.origin);
        }
        let first = || sinks[0].lock().unwrap_or_else(PoisonError::into_inner);
        let new = match self.run.has_refs {
            true => mine_visits(&repo, &before, started_at, &mut *first()),
            false => mine_visits(&repo, &before, started_at, &mut weir_mine::NoRows),
        };
        let Some(new) = new.map_err(failure)? else { return Ok(None) };
        let tips = Tips {
            wanted: &new.wanted,
            known: &new.known,
            replaces: new.replaces,
            faults: &new.faults,
            head: new.state.head,
            known_head: new.known_head,
        };
        let MineRun { options, progress, .. } = *self.run;
        let report = mine_into(&repo, tips, options, sinks, progress, &stop).map_err(failure)?;
        let row = MiningRow::of(&repo, source.url.as_deref(), started_at, report);
        first().mining(&row).map_err(|e| MineFailure::Output(self.output().error(e)))?;
        let event = MineEvent::Mined { report, took: began.elapsed() };
        Ok(Some(PendingRows { source, state: new.mined(&report), event }))
    }
}
