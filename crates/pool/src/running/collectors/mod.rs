//! Collectors: they put the lines of senders into tables, and give them to workers.
//!
//! Each table and each worker reads the log of events from outside at its own pace. How far a table is stands
//! in its database, with the rows; how far a worker is, in the catalog. The catalog keeps the
//! events that they reject, with the reason.

mod log;
mod rejected_lines;
mod table;
mod worker;

use std::thread::JoinHandle;

use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::error::{Error, Result};
use crate::running::collectors::log::LOOK_EVERY;
pub use crate::running::collectors::rejected_lines::{RejectedLine, rejected_lines};
use crate::running::collectors::table::TableThread;
use crate::running::collectors::worker::WorkerThreads;
use crate::running::pool::Pool;

/// The threads of all tables and workers. When it is dropped, they end.
pub struct Collectors {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Collectors {
    /// Starts the tables and workers of the settings; `None` if there are none. Only one process of a pool
    /// runs them; another takes its place when it ends.
    ///
    /// # Errors
    /// If the lock, the catalog or a thread cannot be had.
    pub fn start(pool: &Pool) -> Result<Option<Collectors>> {
        let c = &pool.config.events;
        let of_tables = c.table.iter().map(|table| table.name.as_str());
        let names: Vec<&str> = of_tables.chain(c.worker.iter().map(|worker| worker.name.as_str())).collect();
        pool.catalog.received().set_collectors(&names)?;
        if names.is_empty() {
            return Ok(None);
        }
        let lock = pool.open_lock("collect.lock")?;
        let stop = Stop::default();
        let wrong = |name: &str| {
            let name = name.to_owned();
            move |why: weir_settings::SettingError| Error::Collector { name, why: why.to_string() }
        };
        let mut runs: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for table in &c.table {
            let collector = table.open(&pool.path, pool.store_id()).map_err(wrong(&table.name))?;
            let thread = TableThread::new(pool.another_catalog()?, &table.name, collector, stop.clone());
            runs.push(Box::new(move || thread.run()));
        }
        for worker in &c.worker {
            let spec = worker.spec(&pool.path).map_err(wrong(&worker.name))?;
            let threads = WorkerThreads::new(pool.another_catalog()?, spec, stop.clone());
            runs.push(Box::new(move || threads.run()));
        }
        let stopped = stop.clone();
        let thread = spawn("collectors", move || {
            while lock.try_lock().is_err() {
                if !stopped.sleep(LOOK_EVERY) {
                    return;
                }
            }
            let started = runs.into_iter().map(|run| spawn("collector", run));
            let threads: Vec<JoinHandle<()>> = started
                .filter_map(|started| {
                    started.inspect_err(|e| tracing::error!("cannot start a collector of events: {e}")).ok()
                })
                .collect();
            for thread in threads {
                let _ = thread.join();
            }
        })?;
        Ok(Some(Collectors { stop, thread: Some(thread) }))
    }
}

impl Drop for Collectors {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
