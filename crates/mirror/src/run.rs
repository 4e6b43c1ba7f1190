//! The work of the main thread while workers visit: it acts on their messages, records visits, and renews and
//! takes leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_catalog::{Catalog, EventKind, Outcome, PoolEvent, Repository, Result, Visit};
use weir_ground::{Stop, Timestamp};
use weir_transport::Url;

use crate::batch::VisitBatch;
use crate::happened::visit_event;
use crate::mirror::{ASK_AHEAD_EVERY, ASK_EVERY, Event, Leased, Mirror, More, Summary};
use crate::options::SharedOptions;
use crate::queue::{Mailbox, Message, Queue};
use crate::schedule::spread;
use crate::throttle::{Cause, Pause};

/// The reason why a run ends early or does not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The catalog failed: visits could not be recorded.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
    /// The system cannot start a thread.
    #[error("cannot start a thread for visits: {0}; raise the limit of processes")]
    Thread(std::io::Error),
    /// The repositories to visit cannot be told.
    #[error(transparent)]
    Select(Box<dyn std::error::Error + Send + Sync>),
}

/// The name of all hosts in the catalog of pauses.
const ALL_HOSTS: &str = "";

/// Visits may walk trees as deep as git allows. Only the used part of a stack takes memory.
const STACK_BYTES: usize = 32 << 20;

impl Mirror {
    /// Visits all of `first`, and returns when that is done or `stop` is set. When workers are idle, asks
    /// `more` for further repositories: a slow visit does not hold up the others.
    ///
    /// # Errors
    /// If the catalog fails, or no thread can be started.
    pub fn run(
        &self,
        catalog: &Catalog,
        mut first: Leased,
        more: More<'_>,
        stop: &Stop,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> std::result::Result<Summary, RunError> {
        let jobs = self.options.jobs.max(1);
        let queue = Queue::new();
        queue.add(self.tasks(catalog, &mut first)?);
        let shared: SharedOptions = Arc::new(self.visit.clone());
        self.sum_up(catalog)?;
        let mailbox = Mailbox::new(jobs);
        std::thread::scope(|scope| {
            for started in 0..jobs {
                let (queue, shared, mailbox) = (&queue, shared.clone(), &mailbox);
                let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
                let spawned = worker.spawn_scoped(scope, move || self.work(queue, &shared, stop, mailbox));
                let Err(e) = spawned else { continue };
                // The missing workers give up their shares of the mailbox.
                (started..jobs).for_each(|_| drop(mailbox.share()));
                if started == 0 {
                    return Err(RunError::Thread(e));
                }
                tracing::warn!("only {started} visits at a time, not {jobs}: cannot start more threads: {e}");
                break;
            }
            let mut run = Run::new(self, &queue, stop, observe);
            let ended = run.until_done(catalog, more, &mailbox);
            if ended.is_err() {
                // No more visits begin: they could not be recorded either.
                queue.close();
            }
            ended.map(|()| run.summary).map_err(RunError::Catalog)
        })
    }
}

/// A run, as seen by the thread that has the catalog.
pub(crate) struct Run<'r> {
    mirror: &'r Mirror,
    queue: &'r Queue,
    stop: &'r Stop,
    observe: &'r mut dyn FnMut(Event<'_>),
    pub(crate) summary: Summary,
    batch: VisitBatch,
    renewed: Instant,
    asked: Instant,
    /// Whether the last request for more repositories returned any.
    had_more: bool,
    /// The repositories that were leased, until their bases are known.
    leased: Option<Leased>,
    asked_ahead: Instant,
    leased_ahead: Option<Leased>,
    /// The hosts with a pause that 'status' shows, with its cause; the empty name stands for all hosts.
    shown_pauses: HashMap<String, String>,
    /// The end of the pause of all visits that this run has begun and recorded.
    pauses_until: Timestamp,
    looked_at_pauses: Instant,
}

impl<'r> Run<'r> {
    pub(crate) fn new(
        mirror: &'r Mirror,
        queue: &'r Queue,
        stop: &'r Stop,
        observe: &'r mut dyn FnMut(Event<'_>),
    ) -> Run<'r> {
        let began = Instant::now();
        Run {
            mirror,
            queue,
            stop,
            observe,
            summary: Summary::default(),
            batch: VisitBatch::new(),
            renewed: began,
            asked: began,
            had_more: true,
            leased: None,
            asked_ahead: began,
            leased_ahead: None,
            shown_pauses: HashMap::new(),
            pauses_until: Timestamp(0),
            looked_at_pauses: began,
        }
    }

    /// Reports what was left, and clears the pause of all visits that ends with this run.
    ///
    /// # Errors
    /// If the catalog fails.
    fn finish(&mut self, catalog: &Catalog, more: More<'_>) -> Result<()> {
        if self.pauses_until > self.mirror.now() {
            self.clear_pause(catalog, ALL_HOSTS);
        }
        let Some((cause, mut left)) = self.queue.left() else { return Ok(()) };
        let held = [self.leased.take(), self.leased_ahead.take()];
        left += held.iter().flatten().map(|leased| leased.repositories.len()).sum::<usize>();
        // The others are leased only to be counted: the caller releases all leases.
        loop {
            let others = more(catalog, false)?.repositories.len();
            if others == 0 {
                break;
            }
            left += others;
        }
        self.summary.left = left;
        self.tell(catalog, EventKind::Left { cause: cause.name().to_owned(), left });
        Ok(())
    }

    /// Runs until all workers have ended.
    ///
    /// # Errors
    /// If the catalog cannot record a visit. If leases cannot be renewed or taken, that is only logged: the
    /// next attempt may be early enough.
    pub(crate) fn until_done(&mut self, catalog: &Catalog, more: More<'_>, mailbox: &Mailbox) -> Result<()> {
        self.shown_pauses =
            catalog.visits().throttles(self.mirror.now())?.into_iter().map(|p| (p.host, p.cause)).collect();
        loop {
            let (messages, is_open) = mailbox.take();
            for message in messages {
                self.act_on(catalog, message)?;
            }
            if !is_open || self.batch.is_due() {
                self.batch.write(&self.mirror.store, catalog)?;
            }
            if !is_open {
                return self.finish(catalog, more);
            }
            self.follow_pause(catalog);
            self.renew(catalog);
            self.ask_for_more(catalog, more);
            if self.asked_ahead.elapsed() >= ASK_AHEAD_EVERY && !self.stop.is_stopped() {
                self.asked_ahead = Instant::now();
                let (queue, leased, observe) = (self.queue, &mut self.leased_ahead, &mut *self.observe);
                if let Err(e) = self.mirror.take_ahead(catalog, queue, more, leased, observe) {
                    tracing::warn!("cannot look up which repositories go ahead: {e}");
                }
            }
            if let Err(e) = self.mirror.sum_up(catalog) {
                tracing::warn!("cannot update the total size of all archives: {e}");
            }
        }
    }

    fn act_on(&mut self, catalog: &Catalog, message: Message) -> Result<()> {
        match message {
            Message::Started(repository, progress) => (self.observe)(Event::Started(&repository, progress)),
            Message::Paused(pause) => self.pause(catalog, &pause),
            Message::GoesOn => {
                self.clear_pause(catalog, ALL_HOSTS);
                self.tell(catalog, EventKind::Resumed);
            }
            Message::PutOff(repository, until) => {
                self.summary.put_off += 1;
                self.batch.put(put_off(&repository, until, self.mirror.now()), None);
            }
            Message::Done(done) => {
                let event = visit_event(&done, self.mirror.now());
                (self.observe)(Event::Happened(&event));
                if let Ok(visited) = &done.result {
                    self.clear_pauses_of(catalog, &done.repository, visited.change.is_some());
                }
                self.mirror.note(catalog, &done)?;
                let named = self.mirror.named(&done);
                self.batch.put(self.mirror.write_down(*done, event, &mut self.summary), named);
            }
        }
        Ok(())
    }

    fn pause(&mut self, catalog: &Catalog, pause: &Pause) {
        let until = Timestamp::from(pause.until_ms.div_ceil(1000));
        let host = pause.host.as_deref().unwrap_or(ALL_HOSTS);
        let is_left = host == ALL_HOSTS || pause.cause == Cause::Host;
        if is_left && !self.mirror.options.waits_out_pauses {
            // The run leaves instead what would pause, and says so in the end.
            return;
        }
        // It is recorded only to be shown; on a full disk that may itself fail.
        match catalog.visits().set_throttle(host, pause.cause.name(), self.mirror.now(), until) {
            Ok(()) => {
                self.shown_pauses.insert(host.to_owned(), pause.cause.name().to_owned());
                if host == ALL_HOSTS {
                    self.pauses_until = until;
                }
            }
            Err(e) => tracing::warn!("cannot record the pause: {e}"),
        }
        let (host, cause) = (pause.host.clone(), pause.cause.name().to_owned());
        self.tell(catalog, EventKind::Paused { host, cause, until });
    }

    /// Tells the observer of an event that concerns no visit, and logs it. The log may fail on a full disk.
    fn tell(&mut self, catalog: &Catalog, kind: EventKind) {
        let event = PoolEvent { time: self.mirror.now(), subject: None, kind };
        (self.observe)(Event::Happened(&event));
        if let Err(e) = catalog.events().log(&event) {
            tracing::warn!("cannot log that visits pause or go on: {e}");
        }
    }

    /// Clears the pauses that a successful visit of `repository` shows to be over, unless this process keeps
    /// them itself: others were recorded by processes that have ended, or learn of it here.
    fn clear_pauses_of(&mut self, catalog: &Catalog, repository: &Repository, has_written: bool) {
        if self.shown_pauses.is_empty() {
            return;
        }
        let host = Url::parse(&repository.url).map_or(String::new(), |url| url.host_port());
        let now_ms = self.mirror.now_ms();
        let (host_pauses, all_pause) = {
            let throttle = self.mirror.throttle();
            (throttle.paused_until(&host, now_ms).is_some(), throttle.all_paused(now_ms).is_some())
        };
        if !host.is_empty() && !host_pauses {
            self.clear_pause(catalog, &host);
        }
        let is_disproved = self
            .shown_pauses
            .get(ALL_HOSTS)
            .is_some_and(|cause| Cause::is_disproved(cause, !host.is_empty(), has_written));
        if is_disproved && !all_pause && self.pauses_until <= self.mirror.now() {
            self.clear_pause(catalog, ALL_HOSTS);
        }
    }

    /// Clears a pause that 'status' shows.
    fn clear_pause(&mut self, catalog: &Catalog, host: &str) {
        if host == ALL_HOSTS {
            self.pauses_until = Timestamp(0);
        }
        if self.shown_pauses.remove(host).is_some()
            && let Err(e) = catalog.visits().end_throttle(host)
        {
            tracing::warn!("cannot clear the pause: {e}");
        }
    }

    /// Ends the pause of all visits if another process has cleared it, because one of its visits went well.
    fn follow_pause(&mut self, catalog: &Catalog) {
        let now = self.mirror.now();
        let pauses =
            self.pauses_until > now && self.mirror.throttle().all_paused(self.mirror.now_ms()).is_some();
        if !pauses || self.looked_at_pauses.elapsed() < ASK_EVERY {
            return;
        }
        self.looked_at_pauses = Instant::now();
        match catalog.visits().throttles(now) {
            Ok(shown) if shown.iter().all(|pause| pause.host != ALL_HOSTS) => {
                self.mirror.throttle().go_on();
                self.shown_pauses.remove(ALL_HOSTS);
                self.pauses_until = Timestamp(0);
                self.tell(catalog, EventKind::Resumed);
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("cannot look up whether the pause is over: {e}"),
        }
    }

    /// Renews the leases of all tasks, after each third of their time.
    fn renew(&mut self, catalog: &Catalog) {
        let lease_s = self.mirror.options.lease_s;
        if self.renewed.elapsed() < Duration::from_secs(lease_s) / 3 {
            return;
        }
        self.renewed = Instant::now();
        let until = self.mirror.now() + lease_s as i64;
        match catalog.visits().renew(&self.queue.leases(), until) {
            Ok(()) => self.queue.renew(until),
            // The next attempt may be early enough. A repository whose lease has lapsed by then belongs to
            // another process or is due again.
            Err(e) => tracing::warn!("cannot renew leases: {e}"),
        }
    }

    /// Leases more repositories, if workers are idle.
    fn ask_for_more(&mut self, catalog: &Catalog, more: More<'_>) {
        let may_ask = self.had_more || self.asked.elapsed() >= ASK_EVERY;
        if !may_ask || self.stop.is_stopped() || !self.queue.wants_more() {
            return;
        }
        self.asked = Instant::now();
        let leased = match self.leased.take() {
            Some(leased) => Ok(leased),
            None => more(catalog, false),
        };
        match leased.and_then(|more| self.mirror.tasks(catalog, self.leased.insert(more))) {
            Ok(tasks) => {
                self.leased = None;
                self.had_more = !tasks.is_empty();
                (self.observe)(Event::Leased(tasks.len()));
                self.queue.add(tasks);
            }
            Err(e) => {
                self.had_more = false;
                self.queue.add(Vec::new());
                tracing::warn!("cannot look up what is due: {e}");
            }
        }
    }
}

/// Returns the record of a visit of `repository` that was postponed until `until`.
fn put_off(repository: &Repository, until: Timestamp, at: Timestamp) -> Visit {
    Visit {
        id: repository.id,
        epoch: repository.epoch,
        hints: repository.hints,
        began_at: at,
        at,
        next_due: at + spread((until - at).max(0) as u64, repository.id) as i64,
        again_at: at,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: false,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome: Outcome::PutOff,
    }
}
