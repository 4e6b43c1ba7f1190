//! Many visits in parallel.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_catalog::{Catalog, Outcome, Repository, Visit};
use weir_transport::Url;

use crate::schedule::{Observed, Policy, spread};
use crate::space::Space;
use crate::throttle::{Pause, Throttle};
use crate::visit::{Failure, Known, SharedOptions, VisitOptions, Visited, visit};

/// Visits may walk trees as deep as git allows. Only what is used of a stack is memory.
const STACK_BYTES: usize = 32 << 20;
/// Visits are written down when so many are waiting, or the oldest has waited so long.
const BATCH_MAX: usize = 500;
const BATCH_AGE_MAX: Duration = Duration::from_secs(2);

/// How many visits, and how often.
#[derive(Clone, Debug)]
pub struct MirrorOptions {
    /// Visits at once.
    pub jobs: usize,
    /// Visits at once to one host.
    pub jobs_per_host: usize,
    /// When to come again.
    pub schedule: Policy,
}

/// Asks a run to stop: what is under way is finished, nothing new started.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happens during a run.
pub enum Event<'a> {
    /// A visit begins.
    Started(&'a Repository),
    /// A visit has ended.
    Ended(&'a Repository, &'a Result<Visited, Failure>, Duration),
    /// Errors have gathered: visits pause.
    Paused(&'a Pause),
    /// There is room for archives again: visits go on.
    GoesOn,
}

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
    pub space: Space,
}

struct Done {
    repository: Repository,
    result: Result<Visited, Failure>,
    took: Duration,
}

enum Message {
    Started(Box<Repository>),
    Done(Box<Done>),
    /// Not visited: its host pauses until then.
    PutOff(Box<Repository>, i64),
    Paused(Pause),
    /// There is room for archives again.
    GoesOn,
}

/// Tasks with their hosts, and visits that run by host.
type QueueState = (VecDeque<(Repository, String)>, HashMap<String, usize>);

/// Tasks waiting, and how many run for each host.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Set if visits cannot be written down any more.
    is_closed: AtomicBool,
}

impl Queue {
    /// The next task whose host has room; `None` when there is none left. `ended` is the host of the visit before: whoever
    /// ends one goes on with the next itself, for waking another to do so would cost more than many visits do.
    fn next(&self, ended: Option<&str>, jobs_per_host: usize, stop: &Stop) -> Option<(Repository, String)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = ended.and_then(|host| state.1.get_mut(host)) {
            *n -= 1;
        }
        loop {
            if stop.is_stopped() || self.is_closed.load(Ordering::Relaxed) {
                return None;
            }
            let (tasks, running) = &mut *state;
            // Looking past some hundreds of waiting tasks of a busy host is enough; more would cost more than it gains.
            let free = tasks.iter().take(1000).position(|(_, host)| running.get(host).copied().unwrap_or(0) < jobs_per_host);
            if let Some((task, host)) = free.and_then(|i| tasks.remove(i)) {
                *running.entry(host.clone()).or_default() += 1;
                if ended.is_some_and(|ended| ended != host) {
                    // The room at the host that was left may be what another waits for.
                    self.changed.notify_one();
                }
                return Some((task, host));
            }
            if tasks.is_empty() {
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait_timeout(state, Duration::from_millis(200)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What workers have to say. Looked at every now and then: waking somebody for each visit would cost a good part of one.
struct Mailbox {
    state: Mutex<(Vec<Message>, usize)>,
    changed: Condvar,
}

/// Time between looks at the mailbox.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// A worker's share in the mailbox, given up however the worker ends.
struct Share<'m>(&'m Mailbox);

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
        self.0.changed.notify_one();
    }
}

impl Mailbox {
    fn new(workers: usize) -> Mailbox {
        Mailbox { state: Mutex::new((Vec::new(), workers)), changed: Condvar::new() }
    }

    fn put(&self, message: Message) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.push(message);
    }

    /// What came, and whether more may come.
    fn take(&self) -> (Vec<Message>, bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |state: &mut (Vec<Message>, usize)| state.1 > 0;
        let mut state = self.changed.wait_timeout_while(state, LOOK_EVERY, is_open).unwrap_or_else(PoisonError::into_inner).0;
        (std::mem::take(&mut state.0), state.1 > 0)
    }
}

/// Time between looks at whether a pause is over.
const PAUSE_LOOK: Duration = Duration::from_millis(100);

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// What a visit goes by.
fn known(repository: &Repository) -> Known<'_> {
    let seq = repository.seq.and_then(|n| u64::try_from(n).ok());
    Known { fingerprint: repository.fingerprint.as_deref(), seq, epoch: repository.epoch as u64 }
}

impl Mirror {
    /// Visits all of `tasks`, whose leases end at `leased_until` (seconds since 1970), and returns when they are done or `stop` was asked for.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn run(
        &self,
        catalog: &mut Catalog,
        tasks: Vec<Repository>,
        leased_until: i64,
        stop: &Stop,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> weir_catalog::Result<Summary> {
        let with_hosts = tasks.into_iter().map(|t| {
            let host = Url::parse(&t.url).map_or(String::new(), |u| u.host_port());
            (t, host)
        });
        let queue =
            Queue { state: Mutex::new((with_hosts.collect(), HashMap::new())), changed: Condvar::new(), is_closed: AtomicBool::new(false) };
        let shared: SharedOptions = Arc::new(self.visit.clone());
        self.sum_up(catalog)?;
        let mut summary = Summary::default();
        let jobs = self.options.jobs.max(1).min(queue.state.lock().unwrap_or_else(PoisonError::into_inner).0.len().max(1));
        let mailbox = Mailbox::new(jobs);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let (queue, shared, mailbox) = (&queue, shared.clone(), &mailbox);
                let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
                worker
                    .spawn_scoped(scope, move || self.work(queue, leased_until, &shared, stop, mailbox))
                    .expect("a thread can be started");
            }
            let mut batch = Vec::new();
            let mut batch_started = Instant::now();
            let mut unsynced: HashMap<PathBuf, PathBuf> = HashMap::new();
            loop {
                let (messages, is_open) = mailbox.take();
                for message in messages {
                    match message {
                        Message::Started(repository) => observe(Event::Started(&repository)),
                        Message::Paused(pause) => {
                            let until = pause.until_ms.div_ceil(1000) as i64;
                            // It is shown to others only: on a full disk it may fail itself.
                            let told = catalog.set_throttle(pause.host.as_deref().unwrap_or(""), pause.cause.name(), now(), until);
                            if let Err(e) = told {
                                tracing::warn!("the pause is not shown by 'weir status': {e}");
                            }
                            observe(Event::Paused(&pause));
                        }
                        Message::GoesOn => {
                            if let Err(e) = catalog.end_throttle("") {
                                tracing::warn!("'weir status' shows a pause that is over: {e}");
                            }
                            observe(Event::GoesOn);
                        }
                        Message::PutOff(repository, until) => {
                            summary.put_off += 1;
                            if batch.is_empty() {
                                batch_started = Instant::now();
                            }
                            let (at, outcome) = (now(), Outcome::PutOff);
                            let (id, epoch) = (repository.id, repository.epoch);
                            let next_due = at + spread((until - at).max(0) as u64, id) as i64;
                            batch.push(Visit {
                                id,
                                epoch,
                                began_at: at,
                                at,
                                next_due,
                                fingerprint: None,
                                changes: 0.0,
                                watched_s: 0.0,
                                outcome,
                            });
                        }
                        Message::Done(done) => {
                            observe(Event::Ended(&done.repository, &done.result, done.took));
                            if batch.is_empty() {
                                batch_started = Instant::now();
                            }
                            // One that failed may have got as far as a name.
                            if done.result.as_ref().map_or(true, |v| v.created) {
                                let path = self.store.join(&done.repository.path);
                                unsynced.insert(path.parent().map_or_else(|| self.store.clone(), Path::to_owned), path);
                            }
                            batch.push(self.write_down(*done, &mut summary));
                        }
                    }
                }
                if !batch.is_empty() && (!is_open || batch.len() >= BATCH_MAX || batch_started.elapsed() >= BATCH_AGE_MAX) {
                    // The names of new archives, a folder at a time: what the catalog knows of must be there.
                    let mut synced = Ok(());
                    for (_, path) in unsynced.drain() {
                        synced = synced.and(weir_repo::sync_folder_of(&path));
                    }
                    match synced {
                        Ok(()) => {
                            match catalog.record(&batch) {
                                Ok(written) if written < batch.len() => {
                                    let lost = batch.len() - written;
                                    tracing::warn!("{lost} visits took longer than their leases, or their repositories were removed");
                                }
                                Ok(_) => {}
                                Err(e) => {
                                    // Nothing more is begun: it could not be written down either.
                                    queue.is_closed.store(true, Ordering::Relaxed);
                                    queue.changed.notify_all();
                                    return Err(e);
                                }
                            }
                        }
                        // They stay due, and are found in place then.
                        Err(e) => tracing::error!("new archives may not be durable, their visits are not written down: {e}"),
                    }
                    batch.clear();
                }
                if !is_open {
                    return Ok(summary);
                }
                if let Err(e) = self.sum_up(catalog) {
                    tracing::warn!("how much all archives take is not known anew: {e}");
                }
            }
        })
    }

    fn sum_up(&self, catalog: &Catalog) -> weir_catalog::Result<()> {
        if self.space.wants_sum() {
            self.space.set_used(catalog.archive_bytes()?);
        }
        Ok(())
    }

    fn work(&self, queue: &Queue, leased_until: i64, options: &VisitOptions, stop: &Stop, mailbox: &Mailbox) {
        let _share = Share(mailbox);
        let mut ended: Option<String> = None;
        while let Some((repository, host)) = queue.next(ended.as_deref(), self.options.jobs_per_host.max(1), stop) {
            if !self.wait_out_pauses(queue, stop, mailbox) {
                return;
            }
            if now() >= leased_until {
                // It may be another's by now, and is due all the same.
                ended = Some(host);
                continue;
            }
            if let Some(until_ms) = self.throttle().paused_until(&host, now_ms()) {
                mailbox.put(Message::PutOff(Box::new(repository), until_ms.div_ceil(1000) as i64));
                ended = Some(host);
                continue;
            }
            let started = Instant::now();
            mailbox.put(Message::Started(Box::new(repository.clone())));
            // A defect met in one repository must not end the run for all others.
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.visit_one(&repository, options))).unwrap_or_else(|_| {
                    Err(Failure { class: "defect", error: "weir itself failed on this repository; please report it".to_owned() })
                });
            let pause = match &result {
                Ok(visited) => {
                    self.space.add_used(visited.change.as_ref().map_or(0, |(_, report)| report.bytes_appended));
                    self.throttle().went_well(&host, now_ms());
                    None
                }
                Err(failure) => self.throttle().failed(&host, failure.class, now_ms()),
            };
            mailbox.put(Message::Done(Box::new(Done { repository, result, took: started.elapsed() })));
            if let Some(pause) = pause {
                mailbox.put(Message::Paused(pause));
            }
            ended = Some(host);
        }
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until nothing pauses all visits; false if there is nothing to wait for any more.
    fn wait_out_pauses(&self, queue: &Queue, stop: &Stop, mailbox: &Mailbox) -> bool {
        loop {
            if self.throttle().all_paused_until(now_ms()).is_none() {
                let Some(cause) = self.space.shortage() else { break };
                let now_ms = now_ms();
                let until_ms = now_ms + self.throttle().pause_ms();
                if self.space.pauses_from(now_ms, until_ms) {
                    mailbox.put(Message::Paused(Pause { host: None, cause, until_ms }));
                }
            }
            if stop.is_stopped() || queue.is_closed.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(PAUSE_LOOK);
        }
        if self.space.goes_on() {
            mailbox.put(Message::GoesOn);
        }
        true
    }

    /// Clones `repository` anew, whose archive is damaged; says where that is kept.
    ///
    /// # Errors
    /// As [`crate::replace`].
    pub fn replace(&self, repository: &Repository) -> Result<Option<PathBuf>, Failure> {
        let url = Url::parse(&repository.url).map_err(|e| Failure { class: "protocol", error: e.to_string() })?;
        let path = self.store.join(&repository.path);
        crate::replace(&url, &path, &known(repository), now() as u64, &self.visit).map(|visited| visited.damaged)
    }

    fn visit_one(&self, repository: &Repository, options: &VisitOptions) -> Result<Visited, Failure> {
        let url = Url::parse(&repository.url).map_err(|e| Failure { class: "protocol", error: e.to_string() })?;
        let path = self.store.join(Path::new(&repository.path));
        visit(&url, &path, &known(repository), now() as u64, options)
    }

    fn write_down(&self, done: Done, summary: &mut Summary) -> Visit {
        let at = now();
        let Done { repository, result, took } = done;
        let mut observed = Observed { changes: repository.changes, watched_s: repository.watched_s };
        let since = |then: i64| at.saturating_sub(then).max(0) as u64;
        let schedule = &self.options.schedule;
        let (outcome, fingerprint, wait_s) = match result {
            Ok(visited) => {
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
                let quiet_s = if is_changed { (!is_first).then_some(0) } else { repository.last_change.map(since) };
                (outcome, Some(visited.fingerprint), schedule.next_s(&observed, quiet_s))
            }
            Err(failure) => {
                summary.failed += 1;
                let wait = schedule.retry_s(failure.class, repository.failures.clamp(0, 20) as u32);
                (Outcome::Failed { class: failure.class.to_owned(), error: failure.error }, repository.fingerprint, wait)
            }
        };
        let next_due = at + spread(wait_s, repository.id) as i64;
        let Observed { changes, watched_s } = observed;
        Visit {
            id: repository.id,
            epoch: repository.epoch,
            began_at: at.saturating_sub_unsigned(took.as_secs() + 1),
            at,
            next_due,
            fingerprint,
            changes,
            watched_s,
            outcome,
        }
    }
}
