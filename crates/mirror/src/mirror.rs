//! Many visits in parallel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_catalog::{Base, Catalog, Interval, Outcome, Repository, Settings, Visit};
use weir_repo::Progress;
use weir_transport::Url;

use crate::failure::Failure;
use crate::options::VisitOptions;
use crate::queue::{Done, Mailbox, Message, Queue, Task};
use crate::rules::{ForgeRefs, SettingsRule, own_options, settings_of};
use crate::schedule::{Observed, Policy, spread};
use crate::space::Space;
use crate::throttle::{Pause, Throttle};
use crate::visit::visit;
use crate::visited::{Known, Visited};
use weir_ground::{Clock, FailureClass, Stop, Timestamp};

/// Time between looks at what has become due.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);
/// Time between looks at what goes ahead of tasks that wait.
pub(crate) const ASK_AHEAD_EVERY: Duration = Duration::from_secs(2);
/// Repositories that go ahead, leased at once.
const AHEAD_AT_ONCE: usize = 10_000;
/// No more of those are leased while so many wait.
const AHEAD_WAITING_MAX: usize = 1000;

/// Forks wait for the first clone of what they build on until that has failed so often in turn.
const BASE_FAILURES_MAX: i64 = 3;
/// How long they wait at least after it has; and if somebody else clones it.
const BASE_WAIT_S: i64 = 1;
const BASE_ELSEWHERE_S: i64 = 30;

/// How many visits, and how often.
#[derive(Clone, Debug)]
pub struct MirrorOptions {
    /// Seconds a lease holds that is not renewed: each is, after a third of that.
    pub lease_s: u64,
    /// Visits at once.
    pub jobs: usize,
    /// Visits at once to one host.
    pub jobs_per_host: usize,
    /// When to come again.
    pub schedule: Policy,
    /// Whether new archives of forks build on what they were forked from.
    pub shares_forks: bool,
    /// What holds for some: of several rules that match, the first that says something of a setting.
    pub rules: Vec<SettingsRule>,
    /// Patterns of the refs that are mirrored of what a forge lists, where nothing else is said; all, if
    /// there are none.
    pub forge_refs: ForgeRefs,
}

/// What happens during a run.
pub enum Event<'a> {
    /// A visit begins; how far it has come can be seen until it has ended.
    Started(&'a Repository, Arc<Progress>),
    /// A visit has ended.
    Ended(&'a Repository, &'a Result<Visited, Failure>, Duration),
    /// Errors have gathered: visits pause.
    Paused(&'a Pause),
    /// There is room for archives again: visits go on.
    GoesOn,
    /// So many more have become due.
    Leased(usize),
}

/// Repositories to visit, and until when they are nobody else's, in seconds since 1970.
#[derive(Debug, Default)]
pub struct Leased {
    /// Which.
    pub repositories: Vec<Repository>,
    /// Until when.
    pub until: Timestamp,
}

/// Leases what else is to be visited, and is not being visited; with `true` only what goes ahead of that.
pub type More<'m> = &'m mut dyn FnMut(&mut Catalog, bool) -> weir_catalog::Result<Leased>;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Visits that found nothing new.
    pub unchanged: usize,
    /// Archives created or updated.
    pub updated: usize,
    /// Visits that failed.
    pub failed: usize,
    /// Visits put off until their host's pause is over.
    pub put_off: usize,
    /// Bytes appended to archives.
    pub bytes_appended: u64,
}

/// Visits upstreams and writes down what came of it.
pub struct Mirror {
    /// Where the archives are.
    pub store: PathBuf,
    /// How upstreams are visited.
    pub visit: VisitOptions,
    /// How many at once, and how often.
    pub options: MirrorOptions,
    /// Errors that gather.
    pub throttle: Mutex<Throttle>,
    /// Room for archives.
    pub space: Arc<Space>,
    /// The clock for leases, schedules and pauses.
    pub clock: Clock,
}

/// Time between looks at whether a pause is over.
const PAUSE_LOOK: Duration = Duration::from_millis(100);

/// What a visit goes by.
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

    fn now_ms(&self) -> u64 {
        self.clock.now_ms().unsigned_abs()
    }

    fn settings_of(&self, repository: &Repository) -> Settings {
        settings_of(repository, &self.options.rules, &self.options.forge_refs)
    }

    /// Puts what goes ahead of the others before them, whether it waits already or has become due.
    pub(crate) fn take_ahead(
        &self,
        catalog: &mut Catalog,
        queue: &Queue,
        more: More<'_>,
        leased: &mut Option<Leased>,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> weir_catalog::Result<()> {
        // With nothing waiting everything is begun at once, and asked for as it becomes due.
        if !queue.has_waiting() {
            return Ok(());
        }
        if queue.put_first(&catalog.leased_ahead(self.now(), AHEAD_AT_ONCE)?) >= AHEAD_WAITING_MAX {
            return Ok(());
        }
        // What was leased is kept until it is known what it builds on.
        let more = match leased.take() {
            Some(leased) => leased,
            None => more(catalog, true)?,
        };
        let tasks = self.tasks(catalog, leased.insert(more))?;
        *leased = None;
        if !tasks.is_empty() {
            observe(Event::Leased(tasks.len()));
            queue.add_ahead(tasks);
            queue.put_first(&catalog.leased_ahead(self.now(), AHEAD_AT_ONCE)?);
        }
        Ok(())
    }

    pub(crate) fn sum_up(&self, catalog: &Catalog) -> weir_catalog::Result<()> {
        if self.space.wants_sum() {
            self.space.set_used(catalog.archive_bytes()?);
        }
        Ok(())
    }

    pub(crate) fn work(&self, queue: &Queue, options: &VisitOptions, stop: &Stop, mailbox: &Mailbox) {
        let _share = mailbox.share();
        let options = &VisitOptions { progress: Arc::default(), ..options.clone() };
        let mut ended: Option<String> = None;
        while let Some(task) = queue.next(ended.as_deref(), self.options.jobs_per_host.max(1), stop) {
            if !self.wait_out_pauses(queue, stop, mailbox) {
                return;
            }
            let waits_until = self.waits_until(&task);
            let Task { repository, host, base, .. } = task;
            let leased_until = queue.leased_until(repository.id);
            if self.now() >= leased_until {
                // It may be another's by now; if it is not, it is due.
                put_off(queue, mailbox, repository, self.now());
                ended = Some(host);
                continue;
            }
            if let Some(until_ms) = self.throttle().paused_until(&host, self.now_ms()) {
                put_off(queue, mailbox, repository, Timestamp(until_ms.div_ceil(1000) as i64));
                ended = Some(host);
                continue;
            }
            if let Some(until) = waits_until {
                put_off(queue, mailbox, repository, until);
                ended = Some(host);
                continue;
            }
            let started = Instant::now();
            mailbox.put(Message::Started(Box::new(repository.clone()), options.progress.clone()));
            // A defect met in one repository must not end the run for all others.
            let visit = || self.visit_one(&repository, base.as_ref(), options);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(visit)).unwrap_or_else(|_| {
                Err(Failure::new(
                    FailureClass::Defect,
                    "internal error on this repository (a bug in weir); please report it",
                ))
            });
            let pause = match &result {
                Ok(visited) => {
                    self.space
                        .add_used(visited.change.as_ref().map_or(0, |(_, report)| report.bytes_appended));
                    self.throttle().went_well(&host, self.now_ms());
                    None
                }
                Err(Failure { wait_s: Some(wait_s), .. }) => {
                    self.throttle().asked_to_wait(&host, *wait_s, self.now_ms())
                }
                Err(failure) => self.throttle().failed(&host, failure.class, self.now_ms()),
            };
            // Forks come again when this one does.
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

    /// Seconds until the next try of `repository`, whose visit has failed so.
    fn retry_s(&self, repository: &Repository, class: FailureClass) -> u64 {
        // That it could not be reached before says nothing about whether it is gone.
        let counts = !matches!(class, FailureClass::Gone | FailureClass::Forbidden)
            || repository.error_class == Some(class);
        let failures = if counts { repository.failures.clamp(0, 20) as u32 } else { 0 };
        self.options.schedule.retry_s(class, failures)
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until nothing pauses all visits; false if there is nothing to wait for any more.
    fn wait_out_pauses(&self, queue: &Queue, stop: &Stop, mailbox: &Mailbox) -> bool {
        loop {
            if self.throttle().all_paused_until(self.now_ms()).is_none() {
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

    /// Clones `repository` anew, whose archive is damaged, on `base` if it is to build on that. `None` if it
    /// is not damaged.
    ///
    /// # Errors
    /// As [`crate::relink_or_replace`].
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

    fn visit_one(
        &self,
        repository: &Repository,
        base: Option<&Base>,
        options: &VisitOptions,
    ) -> Result<Visited, Failure> {
        let url =
            Url::parse(&repository.url).map_err(|e| Failure::new(FailureClass::Protocol, e.to_string()))?;
        let path = self.store.join(Path::new(&repository.path));
        let base = base.map(|base| self.store.join(&base.path));
        let own = own_options(&self.settings_of(repository), options);
        visit(&url, &path, &known(repository, base.as_deref()), self.now(), own.as_ref().unwrap_or(options))
    }

    /// Writes down what a visit has found out about who builds on whom.
    pub(crate) fn note(&self, catalog: &mut Catalog, done: &Done) -> weir_catalog::Result<()> {
        match &done.result {
            Ok(visited) => self.note_base(catalog, &done.repository, done.base.as_ref(), visited),
            // The lease has passed to another; or the catalog has forgotten that it did, and is told.
            Err(failure) if failure.class == FailureClass::Fenced => {
                let path = self.store.join(&done.repository.path);
                let epoch = weir_repo::epoch_of(&path).ok();
                epoch.map_or(Ok(()), |epoch| {
                    catalog.raise_epoch(done.repository.id, done.repository.epoch, epoch, self.now())
                })
            }
            // Whoever looks at the base itself finds what is wrong with it.
            Err(failure) if failure.class == FailureClass::Base => {
                done.base.as_ref().map_or(Ok(()), |base| catalog.look_again(&base.name, self.now()))
            }
            Err(_) => Ok(()),
        }
    }

    /// Writes down what the archive of `repository` builds on, if that is not `base`, and that those who
    /// build on it are to be looked at, if it is another.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn note_base(
        &self,
        catalog: &mut Catalog,
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
                catalog.set_base_found(repository.id, found.as_deref())?;
            }
        }
        if visited.is_another && repository.seq.is_some() {
            catalog.look_again_at_what_builds_on(repository.id, self.now())?;
        }
        Ok(())
    }

    /// What was leased, with hosts, and with what it builds on or is to build on.
    pub(crate) fn tasks(
        &self,
        catalog: &mut Catalog,
        leased: &mut Leased,
    ) -> weir_catalog::Result<Vec<Task>> {
        let Leased { repositories, until } = leased;
        if self.options.shares_forks {
            let new: Vec<i64> = repositories.iter().filter(|r| r.seq.is_none()).map(|r| r.id).collect();
            catalog.choose_bases(&new)?;
        }
        let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
        let mut bases: HashMap<i64, Base> =
            catalog.bases(&ids)?.into_iter().map(|base| (base.id, base)).collect();
        let task = |repository: Repository| {
            let host = Url::parse(&repository.url).map_or(String::new(), |u| u.host_port());
            Task { base: bases.remove(&repository.id), repository, host, leased_until: *until }
        };
        // Not before all is known: it is leased.
        Ok(std::mem::take(repositories).into_iter().map(task).collect())
    }

    /// The archive that a visit left and whose name may not be durable yet, if there is one: the visit made
    /// it, or found it though no visit before was written down.
    pub(crate) fn named(&self, done: &Done) -> Option<PathBuf> {
        let is_new = match &done.result {
            Ok(visited) => visited.created || done.repository.seq.is_none(),
            // It may have got as far as a name.
            Err(_) => {
                done.repository.seq.is_none()
                    && self.store.join(&done.repository.path).try_exists().unwrap_or(true)
            }
        };
        is_new.then(|| self.store.join(&done.repository.path))
    }

    /// Until when `task` waits for the first clone of what it is to build on, if it does.
    fn waits_until(&self, task: &Task) -> Option<Timestamp> {
        let base = task.base.as_ref().filter(|base| base.will_come && base.failures < BASE_FAILURES_MAX)?;
        let is_there = |path: &str| self.store.join(path).exists();
        (task.repository.seq.is_none() && !is_there(&task.repository.path) && !is_there(&base.path))
            .then(|| base.next_due.max(self.now() + BASE_ELSEWHERE_S))
    }

    pub(crate) fn write_down(&self, done: Done, summary: &mut Summary) -> Visit {
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
                // The first visit tells what there is, not how often it changes.
                if let Some(before) = repository.last_success {
                    observed.visited(since(before), is_changed);
                }
                match &visited.change {
                    None => summary.unchanged += 1,
                    Some((_, report)) => {
                        summary.updated += 1;
                        summary.bytes_appended += report.bytes_appended;
                    }
                }
                let outcome = match visited.archive {
                    // Or what an earlier visit did was never written down.
                    Some((seq, archive_bytes)) if is_changed || repository.seq != Some(seq as i64) => {
                        Outcome::Updated { seq, archive_bytes, ref_count: visited.ref_count }
                    }
                    _ => Outcome::Unchanged,
                };
                let is_first = repository.last_success.is_none();
                // Nobody knows when it changed before it was cloned.
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
            began_at: at - (took.as_secs() as i64 + 1),
            at,
            next_due,
            fingerprint,
            changes,
            watched_s,
            is_news,
            snapshot,
            lfs_missing,
            outcome,
        }
    }
}

/// Puts a repository that was not visited off until `until`, and with it the forks that wait for it.
fn put_off(queue: &Queue, mailbox: &Mailbox, repository: Repository, until: Timestamp) {
    for fork in queue.visited(repository.id, true) {
        mailbox.put(Message::PutOff(Box::new(fork.repository), until));
    }
    queue.put_down(repository.id);
    mailbox.put(Message::PutOff(Box::new(repository), until));
}
