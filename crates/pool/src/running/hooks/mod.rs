//! Hooks: programs that run on, programs that are run for each event, and servers to which events are posted.
//!
//! Hooks read the log of events, which has an update in the transaction that records its visit. The position
//! of each moves on when it has taken an event, so a hook receives each at least once, even if processes are
//! killed. Each hook has threads of its own: a slow one delays no other.

mod command;
mod failures;
mod hook;
mod line;
mod program;
mod reader;
mod state;
mod webhook;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use weir_catalog::{Catalog, EventReader};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_settings::EventSelection;

use crate::error::Result;
use crate::running::pool::Pool;
use command::CommandTeller;
use failures::HookFailures;
use hook::ConfiguredHook;
use program::ProgramTeller;
use reader::{HookTeller, HookWorker, LOOK_EVERY};
pub use state::{HookState, HookTest, hook_states, test_hook};
use webhook::{WebhookTeller, post_of};

/// Returns a function that makes a teller for each worker of `hook`.
///
/// # Errors
/// If a file with secrets cannot be read, or the catalog fails.
fn tellers(
    hook: &ConfiguredHook,
    pool: &Pool,
    is_stuck: &Arc<AtomicBool>,
    stop: &Stop,
) -> Result<Box<dyn Fn() -> Box<dyn HookTeller>>> {
    let (store, is_stuck, stop) = (pool.store.path.clone(), is_stuck.clone(), stop.clone());
    let hooks = pool.config.hooks.clone();
    Ok(match *hook {
        ConfiguredHook::Program => Box::new(move || {
            Box::new(ProgramTeller {
                store: store.clone(),
                config: hooks.clone(),
                stop: stop.clone(),
                is_stuck: is_stuck.clone(),
                program: None,
                failures: HookFailures::of("hooks"),
            })
        }),
        ConfiguredHook::Command(n) => {
            let config = hooks.command[n].clone();
            let selection: EventSelection = config.selection();
            Box::new(move || {
                Box::new(CommandTeller {
                    store: store.clone(),
                    config: config.clone(),
                    selection: selection.clone(),
                    stop: stop.clone(),
                    is_stuck: is_stuck.clone(),
                    failures: HookFailures::of(&format!("command {}", config.name)),
                })
            })
        }
        ConfiguredHook::Webhook(n) => {
            let config = hooks.webhook[n].clone();
            let post = Arc::new(post_of(pool, &config)?);
            let hook = format!("webhook {}", config.name);
            let failing = Arc::new(Mutex::new(pool.catalog.events().failing_hook(&hook)?));
            Box::new(move || {
                Box::new(WebhookTeller {
                    selection: config.selection(),
                    config: config.clone(),
                    post: post.clone(),
                    stop: stop.clone(),
                    is_stuck: is_stuck.clone(),
                    failing: failing.clone(),
                    hook: hook.clone(),
                })
            })
        }
    })
}

/// A hook that runs.
struct RunningHook {
    readers: Vec<EventReader>,
    /// Set while its receiver takes no events.
    is_stuck: Arc<AtomicBool>,
}

/// The hooks of a pool that run.
pub struct Hooks {
    hooks: Vec<RunningHook>,
    /// Whether this process passes events on. If another one does, events recorded here wait for it in the
    /// log.
    tells: bool,
    stop: Stop,
    workers: Vec<JoinHandle<()>>,
}

impl Hooks {
    /// Starts the hooks of the settings for events recorded by this machine. Returns `None` if there are
    /// none. Only one process of a pool passes events on; another takes its place when it ends.
    ///
    /// # Errors
    /// If the lock, the catalog, a secret or a thread cannot be had.
    pub fn start(pool: &Pool) -> Result<Option<Hooks>> {
        let all = ConfiguredHook::all(&pool.config);
        let catalog = pool.another_catalog()?;
        let readers: Vec<Vec<EventReader>> = all.iter().map(|hook| hook.readers(&pool.config)).collect();
        let names: Vec<&str> = readers.iter().flatten().map(|reader| reader.name.as_str()).collect();
        for name in catalog.events().retain_hooks(&names)? {
            tracing::warn!("the hook '{name}' is not in weir.toml any more: what waited for it is forgotten");
        }
        if all.is_empty() {
            return Ok(None);
        }
        let lock = Arc::new(pool.open_lock("hooks.lock")?);
        let tells = lock.try_lock().is_ok();
        let is_locked = Arc::new(AtomicBool::new(tells));
        let stop = Stop::default();
        let (mut hooks, mut workers) = (Vec::new(), Vec::new());
        for (hook, readers) in all.iter().zip(readers) {
            let is_stuck = Arc::new(AtomicBool::new(false));
            let teller = tellers(hook, pool, &is_stuck, &stop)?;
            for reader in &readers {
                let catalog = pool.another_catalog()?;
                // From here on, the log keeps for it what is recorded.
                catalog.events().open_reader(reader)?;
                let worker = HookWorker {
                    catalog,
                    reader: reader.clone(),
                    teller: teller(),
                    is_locked: is_locked.clone(),
                    stop: stop.clone(),
                };
                let lock = lock.clone();
                workers.push(spawn("hooks", move || worker.run(|| lock.try_lock().is_ok()))?);
            }
            hooks.push(RunningHook { readers, is_stuck });
        }
        Ok(Some(Hooks { hooks, tells, stop, workers }))
    }

    /// Waits until all events are passed on. Returns early if `is_stopped` returns true or the receivers are
    /// gone; the rest waits for the next time.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn finish(self, catalog: &Catalog, is_stopped: impl Fn() -> bool) -> Result<()> {
        let is_over = || self.workers.iter().all(JoinHandle::is_finished);
        for hook in &self.hooks {
            for reader in &hook.readers {
                while self.tells
                    && !is_stopped()
                    && catalog.events().waiting(reader)? > 0
                    && !is_over()
                    && !hook.is_stuck.load(Ordering::Relaxed)
                {
                    std::thread::sleep(LOOK_EVERY / 5);
                }
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
