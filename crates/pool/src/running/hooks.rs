//! Hooks: a fixed number of long-lived programs that read updates as lines of JSON, and answer each with a
//! line.
//!
//! Hooks read the log of events, which has an update in the transaction that records its visit. The position
//! of each moves on when it has answered, so a hook receives each update at least once, even if processes are
//! killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use weir_catalog::{Catalog, EventReader, LoggedEvent};
use weir_collect::{LineProgram, error_of};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_settings::HooksConfig;

use crate::error::Result;
use crate::running::pool::Pool;

/// The name of the hooks' readers of the log.
const READER: &str = "hooks";
/// How often an update is sent to a program that ends or does not answer, before it is given up.
const TRIES: u32 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Updates read from the catalog at a time.
const BATCH: usize = 100;
/// The position in the log is written when it has moved by so many events that are not for the reader.
const PASSED_OVER_MAX: i64 = 1000;

/// The programs that receive updates.
pub struct Hooks {
    readers: Vec<EventReader>,
    /// Whether this process passes updates on. If another one does, updates recorded here wait for it in the
    /// log.
    tells: bool,
    /// Set while the program cannot be started.
    is_missing: Arc<AtomicBool>,
    stop: Stop,
    workers: Vec<JoinHandle<()>>,
}

impl Hooks {
    /// Starts the configured programs for updates recorded by this machine. Returns `None` if none are
    /// configured. Only one process of a pool passes updates on; another takes its place when it ends.
    ///
    /// # Errors
    /// If the lock, the catalog or a thread cannot be had.
    pub fn start(pool: &Pool) -> Result<Option<Hooks>> {
        let config = &pool.config.hooks;
        if config.post_update.is_empty() {
            pool.catalog.forget_readers(READER)?;
            return Ok(None);
        }
        let lock = Arc::new(pool.open_lock("hooks.lock")?);
        let tells = lock.try_lock().is_ok();
        let is_locked = Arc::new(AtomicBool::new(tells));
        let stop = Stop::default();
        let is_missing = Arc::new(AtomicBool::new(false));
        let parts = usize::from(config.workers);
        let kinds = vec!["update".to_owned()];
        let reader = |part| EventReader { name: READER.to_owned(), part, parts, kinds: kinds.clone() };
        let readers: Vec<EventReader> = (0..parts).map(reader).collect();
        let mut workers = Vec::new();
        for reader in &readers {
            let mut catalog = pool.another_catalog()?;
            // From here on, the log keeps for it what is recorded.
            catalog.open_reader(reader)?;
            let worker = HookWorker {
                catalog,
                reader: reader.clone(),
                store: pool.store.path.clone(),
                config: config.clone(),
                stop: stop.clone(),
                is_missing: is_missing.clone(),
                program: None,
            };
            let (lock, is_locked) = (lock.clone(), is_locked.clone());
            workers.push(spawn("hooks", move || {
                while !is_locked.load(Ordering::Relaxed) && !worker.stop.is_stopped() {
                    if worker.reader.part == 0 && lock.try_lock().is_ok() {
                        is_locked.store(true, Ordering::Relaxed);
                    } else {
                        worker.stop.sleep(LOOK_EVERY);
                    }
                }
                worker.run();
            })?);
        }
        Ok(Some(Hooks { readers, tells, is_missing, stop, workers }))
    }

    /// Waits until all updates are passed on. Returns early if `is_stopped` returns true or the programs are
    /// gone; the rest waits for the next time.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn finish(self, catalog: &Catalog, is_stopped: impl Fn() -> bool) -> Result<()> {
        let is_told =
            || self.workers.iter().all(JoinHandle::is_finished) || self.is_missing.load(Ordering::Relaxed);
        for reader in &self.readers {
            while self.tells && !is_stopped() && catalog.events_waiting(reader)? > 0 && !is_told() {
                std::thread::sleep(LOOK_EVERY / 5);
            }
        }
        Ok(())
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.stop.stop();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

struct HookWorker {
    catalog: Catalog,
    reader: EventReader,
    store: PathBuf,
    config: HooksConfig,
    stop: Stop,
    is_missing: Arc<AtomicBool>,
    program: Option<LineProgram>,
}

/// An update as a program reads it.
#[derive(Serialize)]
struct HookLine<'e> {
    #[serde(flatten)]
    event: &'e LoggedEvent,
    archive: PathBuf,
}

impl HookWorker {
    fn run(mut self) {
        let mut places: Option<(i64, i64)> = None;
        while !self.stop.is_stopped() {
            let told = match places {
                None => self.catalog.open_reader(&self.reader).map(|at| {
                    places = Some((at, at));
                    1
                }),
                Some(ref mut places) => self.tell_all(places),
            };
            match told {
                Ok(0) => drop(self.stop.sleep(LOOK_EVERY)),
                Ok(_) => {}
                Err(e) => {
                    tracing::error!("cannot pass updates to the hook: {e}");
                    self.stop.sleep(Duration::from_secs(10));
                }
            }
        }
        // Another number of workers begins behind what all have done, and repeats nothing.
        if let Some((position, _)) = places
            && let Err(e) = self.settle(position)
        {
            tracing::warn!("cannot note how far the hook is: {e}");
        }
        if let Some(program) = self.program.take() {
            program.end();
        }
    }

    /// Moves the position to the end of the log, if nothing before that is for this worker.
    fn settle(&self, position: i64) -> weir_catalog::Result<()> {
        let last = self.catalog.last_event()?;
        match self.catalog.events_after(&self.reader, position, 1)?.is_empty() {
            true => self.catalog.set_position(&self.reader, last),
            false => Ok(()),
        }
    }

    /// Tells what comes after the position, and moves it. `places` are the position, and the one that was
    /// written last.
    fn tell_all(&mut self, (position, written): &mut (i64, i64)) -> weir_catalog::Result<usize> {
        let last = self.catalog.last_event()?;
        let events = self.catalog.events_after(&self.reader, *position, BATCH)?;
        let count = events.len();
        for event in events {
            if !self.tell(&event) {
                return Ok(count);
            }
            self.catalog.set_position(&self.reader, event.id)?;
            (*position, *written) = (event.id, event.id);
        }
        if count == 0 {
            *position = last.max(*position);
            if *position - *written > PASSED_OVER_MAX {
                self.catalog.set_position(&self.reader, *position)?;
                *written = *position;
            }
        }
        Ok(count)
    }

    /// Sends an update to a program. Returns false if it must be sent later.
    fn tell(&mut self, event: &LoggedEvent) -> bool {
        // The catalog has forgotten the repository since.
        let (Some(path), Some(subject)) = (&event.path, &event.event.subject) else { return true };
        let (name, line) = (&subject.name, HookLine { event, archive: self.store.join(path) });
        let line = serde_json::to_string(&line).expect("an event is JSON");
        for tries in 1..=TRIES {
            if self.stop.is_stopped() {
                return false;
            }
            let program = match self.program.take() {
                Some(program) => Ok(program),
                None => LineProgram::start(&self.config.post_update, &self.store),
            };
            let failed = match program {
                Ok(mut program) => {
                    self.is_missing.store(false, Ordering::Relaxed);
                    match program.ask(&line, self.config.timeout.0, || self.stop.is_stopped()) {
                        Ok(answer) => {
                            self.program = Some(program);
                            if let Some(error) = error_of(&answer) {
                                tracing::warn!("the hook for {}: {error}", name);
                            }
                            return true;
                        }
                        Err(why) => why,
                    }
                }
                // Without the program, updates wait.
                Err(e) => {
                    tracing::error!(
                        "cannot start the hook '{}': {e}; updates wait for it",
                        self.config.post_update[0]
                    );
                    self.is_missing.store(true, Ordering::Relaxed);
                    self.stop.sleep(Duration::from_secs(10));
                    return false;
                }
            };
            if self.stop.is_stopped() {
                return false;
            }
            tracing::warn!("the hook for {} {failed}, try {tries} of {TRIES}", name);
            self.stop.sleep(Duration::from_secs(u64::from(tries) - 1));
        }
        tracing::error!("giving up on the hook for {}: {line}", name);
        true
    }
}
