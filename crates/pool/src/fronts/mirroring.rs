//! The work beside serving: visits, crawls, and looks at metadata.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_catalog::{Catalog, PoolEvent};
use weir_crawl::RoundEvent;
use weir_ground::thread::spawn;
use weir_ground::{OtherError, Stop};
use weir_metadata::LookOutcome;
use weir_mirror::{Event, Mirror, MirrorLoop};
use weir_settings::ForgeConfig;

use crate::error::Result;
use crate::running::{
    Counters, Hooks, LookGuard, MirrorGuard, Notifier, Pool, list_forges, look_at_metadata, with_metadata,
};

/// The time that work waits for a catalog that failed.
pub const CATALOG_RETRY: Duration = Duration::from_secs(30);

/// Visits upstreams until `stop` is requested, and crawls and looks for metadata if there are forges. The
/// first thread is the mirror loop; `tell` gets what happens there. What forges say goes to the log of the
/// process.
///
/// # Errors
/// If another process mirrors the pool, the catalog cannot be opened, or no thread be started.
pub fn keep_mirroring(
    pool: &Pool,
    counters: &Arc<Counters>,
    stop: &Stop,
    tell: impl Fn(&PoolEvent) + Send + 'static,
) -> Result<Vec<JoinHandle<()>>> {
    let guard = MirrorGuard::take(pool)?;
    let (mirror, catalog) = (pool.mirror(None), pool.another_catalog()?);
    let notifier = Notifier::of(pool);
    let hooks = Hooks::start(pool)?;
    let (counters, stopped) = (counters.clone(), stop.clone());
    let mut threads = vec![spawn("mirror", move || {
        // Both as a whole: a closure captures only the fields that it names, and would release the lock.
        let (_hooks, guard) = (hooks, guard);
        let visits = Visits { mirror, catalog, owner: &guard.owner, counters, notifier, tell: &tell };
        again("the mirror loop", &stopped, || visits.make(&stopped));
    })?];
    if !pool.config.forge.is_empty() {
        let (pool, stop) = (pool.again()?, stop.clone());
        threads.push(spawn("crawls", move || crawl(&pool, &stop))?);
    }
    let forges = with_metadata(pool);
    if !forges.is_empty() {
        let guard = Arc::new(LookGuard::take(pool)?);
        // Each forge has limits of its own to wait for.
        for forge in forges {
            let (mut pool, stop, guard) = (pool.again()?, stop.clone(), guard.clone());
            threads.push(spawn("metadata", move || {
                again("metadata", &stop, || look(&mut pool, &guard, &forge, &stop))
            })?);
        }
    }
    Ok(threads)
}

/// Does `work` until it succeeds. After a failure it waits a while.
fn again(what: &str, stop: &Stop, mut work: impl FnMut() -> std::result::Result<(), OtherError>) {
    while let Err(e) = work() {
        if stop.is_stopped() {
            tracing::error!("{what}: {e}");
            return;
        }
        tracing::error!("{what}: {e}; trying again in {} s", CATALOG_RETRY.as_secs());
        stop.sleep(CATALOG_RETRY);
    }
}

/// The mirror loop, and those that learn of its events.
struct Visits<'a> {
    mirror: Mirror,
    catalog: Catalog,
    owner: &'a str,
    counters: Arc<Counters>,
    notifier: Option<Notifier>,
    tell: &'a dyn Fn(&PoolEvent),
}

impl Visits<'_> {
    /// Runs the mirror loop until told to stop.
    fn make(&self, stop: &Stop) -> std::result::Result<(), OtherError> {
        let (mirror, owner) = (&self.mirror, self.owner);
        let mirror_loop = MirrorLoop { mirror, owner, watch: true, all_first: false, retry: CATALOG_RETRY };
        mirror_loop.run(&self.catalog, &mut |_| Ok(None), stop, &mut |event| {
            let event = match event {
                Event::Started(repository, _) => return self.counters.delays.visit_began(repository.id),
                Event::Happened(event) => event,
                _ => return,
            };
            self.counters.count(event);
            if let Some(notifier) = &self.notifier {
                notifier.tell(event);
            }
            (self.tell)(event);
        })?;
        Ok(())
    }
}

/// Lists all forges at their intervals until told to stop.
fn crawl(pool: &Pool, stop: &Stop) {
    list_forges(pool, &pool.config.forge, true, stop, &mut |name, event| {
        if let RoundEvent::Listed(progress) = event {
            tracing::info!("{}", progress.line(name));
        }
        Ok(())
    });
}

/// Makes the looks that are due at a forge until told to stop.
fn look(
    pool: &mut Pool,
    guard: &LookGuard,
    forge: &ForgeConfig,
    stop: &Stop,
) -> std::result::Result<(), OtherError> {
    let report = |name: &str, brought: &LookOutcome| {
        tracing::info!("{}", brought.line(name));
        Ok(())
    };
    look_at_metadata(pool, &guard.owner, forge, None, true, stop, &report)?;
    Ok(())
}
