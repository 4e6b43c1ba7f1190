//! Visits many repositories in parallel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_catalog::{AccessNames, Base, Catalog, Interval, Outcome, PoolEvent, Repository, Settings, Visit};
use weir_repo::Progress;
use weir_transport::Url;

use crate::failure::Failure;
use crate::options::VisitOptions;
use crate::queue::{Done, Mailbox, Message, Queue, Task};
use crate::rules::{ForgeRefs, SettingsRule, own_options, settings_of};
use crate::schedule::{Observed, Policy, spread};
use crate::space::Space;
use crate::throttle::{Cause, Pause, Throttle};
use crate::update::look;
use crate::visit::visit;
use crate::visited::{Known, Visited};
use weir_ground::{Clock, FailureClass, Stop, Timestamp};

/// How often the catalog is asked for repositories that have become due.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often the catalog is asked for repositories that go ahead of the waiting tasks.
pub(crate) const ASK_AHEAD_EVERY: Duration = Duration::from_secs(2);
/// The maximum number of repositories that go ahead, per query.
const AHEAD_AT_ONCE: usize = 10_000;
/// While this many of them wait, no more are leased.
const AHEAD_WAITING_MAX: usize = 1000;

/// A fork waits for the first clone of its base until that has failed this many times in a row.
const BASE_FAILURES_MAX: i64 = 3;
/// The least time that forks wait after such a failure; and the time they wait if another process clones the
/// base.
const BASE_WAIT_S: i64 = 1;
const BASE_ELSEWHERE_S: i64 = 30;

/// The number of parallel visits, and how often repositories are visited.
#[derive(Clone, Debug)]
pub struct MirrorOptions {
    /// The seconds for which a lease holds; it is renewed after a third of them.
    pub lease_s: u64,
    /// The maximum number of parallel visits.
    pub jobs: usize,
    /// The maximum number of parallel visits to one host.
    pub jobs_per_host: usize,
    /// The intervals between visits.
    pub schedule: Policy,
    /// The seconds between the end of a visit and the next, if an event came in between.
    pub debounce_s: i64,
    /// Whether a run waits for the end of a pause of all visits. Otherwise it ends then, and leaves what it
    /// has not begun.
    pub waits_out_pauses: bool,
    /// If the new archive of a fork builds on the archive of the repository it was forked from: which names
    /// rules about reading are about.
    pub shares_forks: Option<AccessNames>,
    /// The seconds for which the log keeps events; what a reader has not read, four times as long.
    pub events_keep_s: u64,
    /// Settings for repositories by name: of several rules that match, the first that has a setting counts.
    pub rules: Vec<SettingsRule>,
    /// The refs that are mirrored of repositories listed by forges, unless another setting says otherwise;
    /// all refs, if there are no patterns.
    pub forge_refs: ForgeRefs,
}

/// Something that happens during a run.
pub enum Event<'a> {
    /// A pass begins, with this many repositories.
    PassStarted(usize),
    /// A visit begins; its progress can be read until it has ended.
    Started(&'a Repository, Arc<Progress>),
    /// Something happened: a visit ended, visits pause or go on, or the run ends early.
    Happened(&'a PoolEvent),
    /// Another process is visiting this many of the repositories that are to be visited: the pass waits.
    Waiting(usize),
    /// This many more repositories were leased.
    Leased(usize),
    /// A pass has ended.
    PassEnded(&'a Summary),
}

/// Repositories to visit, and the end of their leases.
#[derive(Debug, Default)]
pub struct Leased {
    /// The repositories.
    pub repositories: Vec<Repository>,
    /// The end of the leases, in seconds since 1970.
    pub until: Timestamp,
}

/// Leases more repositories that are to be visited and are not being visited; with `true`, only those that go
/// ahead.
pub type More<'m> = &'m mut dyn FnMut(&Catalog, bool) -> weir_catalog::Result<Leased>;

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Visits that found nothing new.
    pub unchanged: usize,
    /// Archives created or updated.
    pub updated: usize,
    /// Visits that failed.
    pub failed: usize,
    /// Visits that were postponed, mostly until their host's pause is over.
    pub put_off: usize,
    /// Repositories that were left as they were, because the run ended at a pause of all visits.
    pub left: usize,
    /// Bytes appended to archives.
    pub bytes_appended: u64,
}

impl Summary {
    /// Counts a visit that went well.
    fn count(&mut self, visited: &Visited) {
        // Files of Git LFS may come without a change of the refs.
        let has_files = visited.lfs.as_ref().is_some_and(|lfs| lfs.added > 0);
        match &visited.change {
            None if !has_files => self.unchanged += 1,
            _ => self.updated += 1,
        }
        self.bytes_appended += visited.change.as_ref().map_or(0, |(_, report)| report.bytes_appended);
        self.bytes_appended += visited.lfs.as_ref().map_or(0, |lfs| lfs.bytes);
    }

    /// Returns the sums of both.
    pub(crate) fn and(&self, other: &Summary) -> Summary {
        Summary {
            unchanged: self.unchanged + other.unchanged,
            updated: self.updated + other.updated,
            failed: self.failed + other.failed,
            put_off: self.put_off + other.put_off,
            left: self.left + other.left,
            bytes_appended: self.bytes_appended + other.bytes_appended,
        }
    }
}

/// Visits upstreams and records the results in the catalog.
pub struct Mirror {
    /// The folder of the archives.
    pub store: PathBuf,
    /// The options of each visit.
    pub visit: VisitOptions,
    /// The number of parallel visits, and how often repositories are visited.
    pub options: MirrorOptions,
    /// Counts errors and decides on pauses.
    pub throttle: Mutex<Throttle>,
    /// Watches the room for archives.
    pub space: Arc<Space>,
    /// The clock for leases, schedules and pauses.
    pub clock: Clock,
}

/// How often a waiting worker checks whether a pause is over.
const PAUSE_LOOK: Duration = Duration::from_millis(100);

/// Returns what the catalog knows of `repository` before a visit.
fn known<'a>(repository: &'a Repository, base: Option<&'a Path>) -> Known<'a> {
    let seq = repository.seq.and_then(|n| u64::try_from(n).ok());
    let is_damaged = repository.error_class == Some(FailureClass::Damaged);
    let (fingerprint, epoch) = (repository.fingerprint.as_deref(), repository.epoch);
    Known { fingerprint, seq, epoch, base, forge: repository.forge.as_deref(), upstream: None, is_damaged }
}

impl Mirror {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms().unsigned_abs()
    }

    fn settings_of(&self, repository: &Repository) -> Settings {
        settings_of(repository, &self.options.rules, &self.options.forge_refs)
    }

    /// Moves the waiting repositories that go ahead to the front of the queue, and leases others that have
    /// become due.
    pub(crate) fn take_ahead(
        &self,
        catalog: &Catalog,
        queue: &Queue,
        more: More<'_>,
        leased: &mut Option<Leased>,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> weir_catalog::Result<()> {
        // If no task waits, every repository is started as soon as it becomes due.
        if !queue.has_waiting() {
            return Ok(());
        }
        if queue.put_first(&catalog.visits().leased_ahead(self.now(), AHEAD_AT_ONCE)?) >= AHEAD_WAITING_MAX {
            return Ok(());
        }
        // Leased repositories are kept here until their bases are known.
        let more = match leased.take() {
            Some(leased) => leased,
            None => more(catalog, true)?,
        };
        let tasks = self.tasks(catalog, leased.insert(more))?;
        *leased = None;
        if !tasks.is_empty() {
            observe(Event::Leased(tasks.len()));
            queue.add_ahead(tasks);
            queue.put_first(&catalog.visits().leased_ahead(self.now(), AHEAD_AT_ONCE)?);
        }
        Ok(())
    }

    pub(crate) fn sum_up(&self, catalog: &Catalog) -> weir_catalog::Result<()> {
        if self.space.wants_sum() {
            self.space.set_used(catalog.status().archive_bytes()?);
        }
        Ok(())
    }

    pub(crate) fn work(&self, queue: &Queue, options: &VisitOptions, stop: &Stop, mailbox: &Mailbox) {
        let _share = mailbox.share();
        let options = &VisitOptions { progress: Arc::default(), ..options.clone() };
        let mut ended: Option<String> = None;
        while let Some(task) = queue.next(ended.as_deref(), self.options.jobs_per_host.max(1), stop) {
            let shortage = match self.pause_to_leave_at() {
                Some(cause) if cause.is_shortage() => Some(cause),
                Some(cause) => return queue.leave(task, cause),
                None => None,
            };
            if shortage.is_none() && !self.wait_out_pauses(queue, stop, mailbox) {
                return;
            }
            let waits_until = self.waits_until(&task);
            let Task { repository, host, base, .. } = task;
            let Some(repository) = self.admit(queue, mailbox, repository, &host, waits_until) else {
                ended = Some(host);
                continue;
            };
            let started = Instant::now();
            mailbox.put(Message::Started(Box::new(repository.clone()), options.progress.clone()));
            let visited = self.visit_one(&repository, base.as_ref(), shortage.is_none(), options);
            let Some(result) = visited.transpose() else {
                queue.leave_one(repository.id, shortage);
                ended = Some(host);
                continue;
            };
            let pause = match &result {
                Ok(visited) => {
                    self.space
                        .add_used(visited.change.as_ref().map_or(0, |(_, report)| report.bytes_appended));
                    let is_over = self.throttle().went_well(&host, self.now_ms());
                    if is_over && self.options.waits_out_pauses {
                        mailbox.put(Message::GoesOn);
                    }
                    None
                }
                Err(Failure { wait_s: Some(wait_s), .. }) => {
                    self.throttle().asked_to_wait(&host, Duration::from_secs(*wait_s), self.now_ms())
                }
                Err(failure) => self.throttle().failed(&host, failure.class, self.now_ms()),
            };
            // Its forks are due again when this repository is.
            let retry_s = |failure: &Failure| self.retry_s(&repository, failure.class);
            let retry_s =
                result.as_ref().err().filter(|_| repository.failures < BASE_FAILURES_MAX).map(retry_s);
            for fork in queue.visited(repository.id, retry_s.is_some()) {
                let until = self.now() + spread(retry_s.unwrap_or(0), repository.id) as i64 + BASE_WAIT_S;
                mailbox.put(Message::PutOff(Box::new(fork.repository), until));
            }
            queue.put_down(repository.id);
            mailbox.put(Message::Done(Box::new(Done { repository, base, result, took: started.elapsed() })));
            if let Some(pause) = pause {
                mailbox.put(Message::Paused(pause));
            }
            ended = Some(host);
        }
    }

    /// Returns `repository` if it may be visited now. Otherwise postpones it, or leaves it as it was.
    fn admit(
        &self,
        queue: &Queue,
        mailbox: &Mailbox,
        repository: Repository,
        host: &str,
        waits_until: Option<Timestamp>,
    ) -> Option<Repository> {
        if self.now() >= queue.leased_until(repository.id) {
            // Another process may hold the lease by now; otherwise the repository is due again.
            put_off(queue, mailbox, repository, self.now());
            return None;
        }
        let (now_ms, throttle) = (self.now_ms(), self.throttle());
        if !self.options.waits_out_pauses && throttle.pauses_for_failures(host, now_ms) {
            // The pause ends with this run, so that the next one may find the host well.
            queue.leave_one(repository.id, Some(Cause::Host));
            return None;
        }
        let pause_end = throttle.paused_until(host, now_ms).map(|ms| Timestamp(ms.div_ceil(1000) as i64));
        drop(throttle);
        if let Some(until) = pause_end.or(waits_until) {
            put_off(queue, mailbox, repository, until);
            return None;
        }
        Some(repository)
    }

    /// Returns the seconds until the next visit of `repository` after a failure of `class`.
    fn retry_s(&self, repository: &Repository, class: FailureClass) -> u64 {
        // Earlier failures of another class say nothing about whether the repository is gone.
        let counts = !matches!(class, FailureClass::Gone | FailureClass::Forbidden)
            || repository.error_class == Some(class);
        let failures = if counts { repository.failures.clamp(0, 20) as u32 } else { 0 };
        self.options.schedule.retry_s(class, failures)
    }

    pub(crate) fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cause for which a run that does not wait out pauses must end now.
    fn pause_to_leave_at(&self) -> Option<Cause> {
        if self.options.waits_out_pauses {
            return None;
        }
        self.throttle().all_paused(self.now_ms()).or_else(|| self.space.shortage())
    }

    /// Sleeps until no pause holds up all visits; returns false if the run ends meanwhile.
    fn wait_out_pauses(&self, queue: &Queue, stop: &Stop, mailbox: &Mailbox) -> bool {
        loop {
            if self.throttle().all_paused(self.now_ms()).is_none() {
                let Some(cause) = self.space.shortage() else { break };
                let now_ms = self.now_ms();
                let until_ms = now_ms + self.throttle().pause_ms();
                if self.space.pauses_from(now_ms, until_ms) {
                    mailbox.put(Message::Paused(Pause { host: None, cause, until_ms }));
                }
            }
            if stop.is_stopped() || queue.is_closed() {
                return false;
            }
            stop.sleep(PAUSE_LOOK);
        }
        if self.space.goes_on() {
            mailbox.put(Message::GoesOn);
        }
        true
    }

    /// Links the archive of `repository` to `base` if only that has been replaced, and has all that the
    /// archive needs. Returns whether it has done so. The upstream is not asked.
    pub fn relink(&self, repository: &Repository, base: Option<&Base>) -> bool {
        let base = base.map(|base| self.store.join(&base.path));
        crate::replace::relinked(&self.store.join(&repository.path), base.as_deref(), self.now())
    }

    /// Clones `repository` again if its archive is damaged, on `base` if it is to build on one. Returns
    /// `None` if the archive is not damaged.
    ///
    /// # Errors
    /// Those of [`crate::relink_or_replace`].
    pub fn replace(&self, repository: &Repository, base: Option<&Base>) -> Result<Option<Visited>, Failure> {
        let url =
            Url::parse(&repository.url).map_err(|e| Failure::new(FailureClass::Protocol, e.to_string()))?;
        let path = self.store.join(&repository.path);
        let base = base.map(|base| self.store.join(&base.path));
        let own = own_options(&self.settings_of(repository), &self.visit);
        crate::relink_or_replace(
            &url,
            &path,
            &known(repository, base.as_deref()),
            self.now(),
            own.as_ref().unwrap_or(&self.visit),
        )
    }

    /// Visits `repository`. Where there is no room, only asks the upstream whether it has changed, and
    /// returns `None` if it has.
    fn visit_one(
        &self,
        repository: &Repository,
        base: Option<&Base>,
        has_room: bool,
        options: &VisitOptions,
    ) -> Result<Option<Visited>, Failure> {
        let url =
            Url::parse(&repository.url).map_err(|e| Failure::new(FailureClass::Protocol, e.to_string()))?;
        let path = self.store.join(Path::new(&repository.path));
        let base = base.map(|base| self.store.join(&base.path));
        let own = own_options(&self.settings_of(repository), options);
        let (known, options) = (known(repository, base.as_deref()), own.as_ref().unwrap_or(options));
        let visit = || match has_room {
            true => visit(&url, &path, &known, self.now(), options).map(Some),
            false => look(&url, &path, &known, options),
        };
        // A bug that one repository triggers must not end the run for all others.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(visit)).unwrap_or_else(|_| {
            Err(Failure::new(
                FailureClass::Defect,
                "internal error on this repository (a bug in weir); please report it",
            ))
        })
    }

    /// Records what a visit has found out about bases and leases.
    pub(crate) fn note(&self, catalog: &Catalog, done: &Done) -> weir_catalog::Result<()> {
        match &done.result {
            Ok(visited) => self.note_base(catalog, &done.repository, done.base.as_ref(), visited),
            // Another process holds the lease, or the catalog has lost that epoch: raise it.
            Err(failure) if failure.class == FailureClass::Fenced => {
                let path = self.store.join(&done.repository.path);
                let epoch = weir_repo::epoch_of(&path).ok();
                epoch.map_or(Ok(()), |epoch| {
                    catalog.visits().raise_epoch(done.repository.id, done.repository.epoch, epoch, self.now())
                })
            }
            // A visit of the base itself finds what is wrong with it.
            Err(failure) if failure.class == FailureClass::Base => {
                done.base.as_ref().map_or(Ok(()), |base| catalog.visits().look_again(&base.name, self.now()))
            }
            Err(_) => Ok(()),
        }
    }

    /// Records the base of the archive of `repository`, if it is not `base`. If the archive was replaced,
    /// also has the archives that build on it checked.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn note_base(
        &self,
        catalog: &Catalog,
        repository: &Repository,
        base: Option<&Base>,
        visited: &Visited,
    ) -> weir_catalog::Result<()> {
        if let Some(found) = &visited.builds_on {
            let store = std::path::absolute(&self.store).unwrap_or_else(|_| self.store.clone());
            let found =
                found.as_ref().map(|path| path.strip_prefix(&store).unwrap_or(path).to_string_lossy());
            if found.as_deref() != base.map(|base| base.path.as_str())
                || found.is_some() && visited.is_another
            {
                catalog.archives().set_base_found(repository.id, found.as_deref())?;
            }
        }
        if visited.is_another && repository.seq.is_some() {
            catalog.archives().look_again_at_what_builds_on(repository.id, self.now())?;
        }
        Ok(())
    }

    /// Makes tasks of leased repositories, with their hosts and bases.
    pub(crate) fn tasks(&self, catalog: &Catalog, leased: &mut Leased) -> weir_catalog::Result<Vec<Task>> {
        let Leased { repositories, until } = leased;
        if let Some(access) = &self.options.shares_forks {
            let new: Vec<i64> = repositories.iter().filter(|r| r.seq.is_none()).map(|r| r.id).collect();
            catalog.archives().choose_bases(&new, access)?;
        }
        let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
        let mut bases: HashMap<i64, Base> =
            catalog.archives().bases(&ids)?.into_iter().map(|base| (base.id, base)).collect();
        let task = |repository: Repository| {
            let host = Url::parse(&repository.url).map_or(String::new(), |u| u.host_port());
            Task { base: bases.remove(&repository.id), repository, host, leased_until: *until }
        };
        // Taken only now: after an error above, the leased repositories must still be in `leased`.
        Ok(std::mem::take(repositories).into_iter().map(task).collect())
    }

    /// Returns the archive whose name may not be durable yet: the visit made it, or found it though no
    /// earlier visit was recorded.
    pub(crate) fn named(&self, done: &Done) -> Option<PathBuf> {
        let is_new = match &done.result {
            Ok(visited) => visited.created || done.repository.seq.is_none(),
            // The failed visit may have named the archive already.
            Err(_) => {
                done.repository.seq.is_none()
                    && self.store.join(&done.repository.path).try_exists().unwrap_or(true)
            }
        };
        is_new.then(|| self.store.join(&done.repository.path))
    }

    /// Returns until when `task` waits for the first clone of its base, if it does.
    fn waits_until(&self, task: &Task) -> Option<Timestamp> {
        let base = task.base.as_ref().filter(|base| base.will_come && base.failures < BASE_FAILURES_MAX)?;
        let is_there = |path: &str| self.store.join(path).exists();
        (task.repository.seq.is_none() && !is_there(&task.repository.path) && !is_there(&base.path))
            .then(|| base.next_due.max(self.now() + BASE_ELSEWHERE_S))
    }

    pub(crate) fn write_down(&self, done: Done, event: PoolEvent, summary: &mut Summary) -> Visit {
        let at = self.now();
        let Done { repository, result, took, .. } = done;
        let mut observed = Observed { changes: repository.changes, watched_s: repository.watched_s };
        let since = |then: Timestamp| at.since(then).as_secs();
        let schedule = &self.options.schedule;
        let failed_before = repository.error_class;
        let (outcome, fingerprint, wait_s, is_news, (snapshot, lfs_missing)) = match result {
            Ok(visited) => {
                let snapshot = visited.snapshot.and_then(|id| id.as_bytes().try_into().ok());
                let is_changed = visited.change.is_some();
                // The first visit does not tell how often the repository changes.
                if let Some(before) = repository.last_success {
                    observed.visited(since(before), is_changed);
                }
                summary.count(&visited);
                let outcome = match visited.archive.filter(|_| visited.new_seq(&repository).is_some()) {
                    Some((seq, archive_bytes)) => {
                        Outcome::Updated { seq, archive_bytes, ref_count: visited.ref_count }
                    }
                    None => Outcome::Unchanged,
                };
                let is_first = repository.last_success.is_none();
                // When it changed before the clone is unknown.
                let quiet_s =
                    if is_changed { (!is_first).then_some(0) } else { repository.last_change.map(since) };
                let is_news = failed_before.is_some() || !matches!(outcome, Outcome::Unchanged);
                let settings = self.settings_of(&repository);
                let by_changes = Policy { interval_s: None, ..*schedule };
                let wait_s = match (settings.interval, is_first) {
                    (Some(Interval::Seconds(own)), _) => own,
                    (Some(Interval::Auto), true) => by_changes.second_s(),
                    (Some(Interval::Auto), false) => by_changes.next_s(&observed, quiet_s),
                    (None, true) => schedule.second_s(),
                    (None, false) => schedule.next_s(&observed, quiet_s),
                };
                let wants_lfs = settings.lfs.unwrap_or(self.visit.lfs);
                let lfs_missing = visited.lfs.map(|report| report.missing).or((!wants_lfs).then_some(0));
                (outcome, Some(visited.fingerprint), wait_s, is_news, (snapshot, lfs_missing))
            }
            Err(failure) => {
                summary.failed += 1;
                let wait = self.retry_s(&repository, failure.class).max(failure.wait_s.unwrap_or(0));
                let is_news = failed_before != Some(failure.class);
                let outcome = Outcome::Failed { class: failure.class, error: failure.error };
                (outcome, repository.fingerprint, wait, is_news, (None, None))
            }
        };
        let next_due = at + spread(wait_s, repository.id) as i64;
        let Observed { changes, watched_s } = observed;
        Visit {
            id: repository.id,
            epoch: repository.epoch,
            hints: repository.hints,
            began_at: at - (took.as_secs() as i64 + 1),
            at,
            next_due,
            again_at: at + self.options.debounce_s,
            fingerprint,
            changes,
            watched_s,
            is_news,
            snapshot,
            lfs_missing,
            outcome,
            event: event.kind.is_news().then_some(event),
        }
    }
}

/// Postpones a repository that was not visited until `until`, and the forks that wait for it.
fn put_off(queue: &Queue, mailbox: &Mailbox, repository: Repository, until: Timestamp) {
    for fork in queue.visited(repository.id, true) {
        mailbox.put(Message::PutOff(Box::new(fork.repository), until));
    }
    queue.put_down(repository.id);
    mailbox.put(Message::PutOff(Box::new(repository), until));
}
