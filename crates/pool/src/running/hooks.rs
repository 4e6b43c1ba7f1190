//! Hooks: a fixed number of long-lived programs that read updates as lines of JSON, and answer each with a
//! line.
//!
//! Updates wait in the catalog until they are answered. They are stored in the transaction that records their
//! visits, so a hook receives each at least once, even if processes are killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_catalog::{Catalog, Update};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_settings::HooksConfig;
use weir_transport::Url;

use crate::error::Result;
use crate::running::pool::Pool;
use crate::running::program::{LineProgram, error_of};

/// How often an update is sent to a program that ends or does not answer, before it is given up.
const TRIES: u32 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Updates read from the catalog at a time.
const BATCH: usize = 100;

/// The programs that receive updates.
pub struct Hooks {
    machine: String,
    /// Whether this process passes updates on. If another one does, updates recorded here wait for it in the
    /// catalog.
    tells: bool,
    /// Set while the program cannot be started.
    is_missing: Arc<AtomicBool>,
    stop: Stop,
    workers: Vec<JoinHandle<()>>,
}

impl Hooks {
    /// Starts the configured programs for updates recorded by `machine`. Returns `None` if none are
    /// configured. Only one process of a pool passes updates on; another takes its place when it ends.
    ///
    /// # Errors
    /// If the lock, the catalog or a thread cannot be had.
    pub fn start(pool: &Pool, machine: &str) -> Result<Option<Hooks>> {
        let config = &pool.config.hooks;
        if config.post_update.is_empty() {
            return Ok(None);
        }
        let lock = Arc::new(pool.open_lock("hooks.lock")?);
        let tells = lock.try_lock().is_ok();
        let is_locked = Arc::new(AtomicBool::new(tells));
        let stop = Stop::default();
        let is_missing = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for number in 0..usize::from(config.workers) {
            let worker = HookWorker {
                catalog: pool.another_catalog()?,
                machine: machine.to_owned(),
                store: pool.store.path.clone(),
                config: config.clone(),
                number,
                stop: stop.clone(),
                is_missing: is_missing.clone(),
                program: None,
            };
            let (lock, is_locked) = (lock.clone(), is_locked.clone());
            workers.push(spawn("hooks", move || {
                while !is_locked.load(Ordering::Relaxed) && !worker.stop.is_stopped() {
                    if worker.number == 0 && lock.try_lock().is_ok() {
                        is_locked.store(true, Ordering::Relaxed);
                    } else {
                        worker.stop.sleep(LOOK_EVERY);
                    }
                }
                worker.run();
            })?);
        }
        Ok(Some(Hooks { machine: machine.to_owned(), tells, is_missing, stop, workers }))
    }

    /// Waits until all updates are passed on. Returns early if `is_stopped` returns true or the programs are
    /// gone; the rest waits for the next time.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn finish(self, catalog: &Catalog, is_stopped: impl Fn() -> bool) -> Result<()> {
        let is_told =
            || self.workers.iter().all(JoinHandle::is_finished) || self.is_missing.load(Ordering::Relaxed);
        while self.tells && !is_stopped() && catalog.update_count(&self.machine)? > 0 && !is_told() {
            std::thread::sleep(LOOK_EVERY / 5);
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
    machine: String,
    store: PathBuf,
    config: HooksConfig,
    number: usize,
    stop: Stop,
    is_missing: Arc<AtomicBool>,
    program: Option<LineProgram>,
}

impl HookWorker {
    fn run(mut self) {
        while !self.stop.is_stopped() {
            match self.tell_all() {
                Ok(0) => drop(self.stop.sleep(LOOK_EVERY)),
                Ok(_) => {}
                Err(e) => {
                    tracing::error!("cannot pass updates to the hook: {e}");
                    self.stop.sleep(Duration::from_secs(10));
                }
            }
        }
        if let Some(program) = self.program.take() {
            program.end();
        }
    }

    fn tell_all(&mut self) -> weir_catalog::Result<usize> {
        let updates =
            self.catalog.updates(&self.machine, self.number, self.config.workers.into(), 0, BATCH)?;
        let count = updates.len();
        for update in updates {
            if !self.tell(&update) {
                break;
            }
            self.catalog.forget_update(&update)?;
        }
        Ok(count)
    }

    /// Sends an update to a program. Returns false if it must be sent later.
    fn tell(&mut self, update: &Update) -> bool {
        let archive = self.store.join(&update.path);
        // Neither a program nor the log needs the password of an upstream.
        let url = Url::parse(&update.url).map_or_else(|_| update.url.clone(), |url| url.without_userinfo());
        let line = serde_json::json!({ "event": "update", "id": update.id, "name": update.name, "url": url,
            "archive": archive,
                                       "seq": update.seq, "time": update.at });
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
                    match program.ask(&line.to_string(), self.config.timeout.0, || self.stop.is_stopped()) {
                        Ok(answer) => {
                            self.program = Some(program);
                            if let Some(error) = error_of(&answer) {
                                tracing::warn!("the hook for {}: {error}", update.name);
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
            tracing::warn!("the hook for {} {failed}, try {tries} of {TRIES}", update.name);
            self.stop.sleep(Duration::from_secs(u64::from(tries) - 1));
        }
        tracing::error!("giving up on the hook for {}: {line}", update.name);
        true
    }
}
