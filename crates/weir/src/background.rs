//! The work beside serving: visits, crawls, and looks at metadata.

use std::sync::Arc;
use std::time::Duration;

use weir_catalog::Catalog;
use weir_crawl::CrawlSource;
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_metadata::{LookOutcome, Place, Schedule, TellLook};
use weir_mirror::{Event, Mirror, MirrorLoop};
use weir_pool::{Counters, Hooks, LookGuard, MirrorGuard, Notifier, Pool};
use weir_settings::ForgeConfig;

use crate::crawling::{list_forges, summary};
use crate::error::Result;
use crate::visit_lines::log_event;

/// How long a mirror loop waits for a catalog that failed.
pub(crate) const CATALOG_RETRY: Duration = Duration::from_secs(30);
/// Starts the work beside serving: visits, and crawls and looks if there are forges. The first thread is the
/// mirror loop.
pub(crate) fn start_mirror(
    pool: &Pool,
    counters: &Arc<Counters>,
    stop: &Stop,
) -> Result<Vec<std::thread::JoinHandle<()>>> {
    let guard = MirrorGuard::take(pool)?;
    let (mirror, catalog) = (pool.mirror(None), pool.another_catalog()?);
    let notifier = Notifier::of(pool);
    let hooks = Hooks::start(pool)?;
    let (counters, stopped) = (counters.clone(), stop.clone());
    let mut threads = vec![spawn("mirror", move || {
        // Both as a whole: a closure captures only the fields that it names, and would release the lock.
        let (_hooks, guard) = (hooks, guard);
        again("the mirror loop", &stopped, || {
            mirror_for_ever(&mirror, &catalog, &guard.owner, &counters, notifier.as_ref(), &stopped)
        });
    })?];
    if !pool.config.forge.is_empty() {
        let mut pool = pool.again()?;
        let stop = stop.clone();
        threads.push(spawn("crawls", move || again("crawls", &stop, || crawl_for_ever(&mut pool, &stop)))?);
    }
    let forges = with_metadata(pool);
    if !forges.is_empty() {
        let guard = Arc::new(LookGuard::take(pool)?);
        // Each forge has limits of its own to wait for.
        for forge in forges {
            let (mut pool, stop, guard) = (pool.again()?, stop.clone(), guard.clone());
            threads.push(spawn("metadata", move || {
                again("metadata", &stop, || look_for_ever(&mut pool, &guard, &forge, &stop))
            })?);
        }
    }
    Ok(threads)
}

/// Does `work` until it succeeds. After a failure it waits a while.
fn again(what: &str, stop: &Stop, mut work: impl FnMut() -> Result<()>) {
    while let Err(e) = work() {
        if stop.is_stopped() {
            tracing::error!("{what}: {e}");
            return;
        }
        tracing::error!("{what}: {e}; trying again in {} s", CATALOG_RETRY.as_secs());
        stop.sleep(CATALOG_RETRY);
    }
}

/// Runs the mirror loop until told to stop.
fn mirror_for_ever(
    mirror: &Mirror,
    catalog: &Catalog,
    owner: &str,
    counters: &Counters,
    notifier: Option<&Notifier>,
    stop: &Stop,
) -> Result<()> {
    let mirror_loop = MirrorLoop { mirror, owner, watch: true, all_first: false, retry: CATALOG_RETRY };
    mirror_loop.run(catalog, &mut |_| Ok(None), stop, &mut |event| {
        let event = match event {
            Event::Started(repository, _) => return counters.delays.visit_began(repository.id),
            Event::Happened(event) => event,
            _ => return,
        };
        counters.count(event);
        if let Some(notifier) = notifier {
            notifier.tell(event);
        }
        log_event(event);
    })?;
    Ok(())
}

/// Lists all forges at their intervals until told to stop.
fn crawl_for_ever(pool: &mut Pool, stop: &Stop) -> Result<()> {
    let forges = pool.config.forge.clone();
    list_forges(pool, &forges, true, false, stop, &mut |name, progress| {
        tracing::info!("{}", summary(name, progress));
        Ok(())
    });
    Ok(())
}

/// Makes the looks that are due at a forge until told to stop.
fn look_for_ever(pool: &mut Pool, guard: &LookGuard, forge: &ForgeConfig, stop: &Stop) -> Result<()> {
    let report = |name: &str, brought: &LookOutcome| {
        tracing::info!("{}", brought.line(name));
        Ok(())
    };
    look_at_metadata(pool, &guard.owner, forge, None, true, stop, &report).map(|_| ())
}

/// Returns the forges that have metadata.
pub(crate) fn with_metadata(pool: &Pool) -> Vec<ForgeConfig> {
    pool.config.forge.iter().filter(|forge| forge.has_metadata()).cloned().collect()
}

/// Makes the looks that are due at a forge, or those at `ids`, once or for ever. Returns whether a look
/// failed.
pub(crate) fn look_at_metadata(
    pool: &mut Pool,
    owner: &str,
    config: &ForgeConfig,
    ids: Option<&[i64]>,
    watch: bool,
    stop: &Stop,
    report: &TellLook<'_>,
) -> Result<bool> {
    let (name, (is_wanted_by_default, wanted)) = (config.name(), config.metadata());
    let schedule = Schedule {
        owner,
        forge: &name,
        is_wanted_by_default,
        wanted: &wanted,
        ids,
        watch,
        open: &|stop| config.open(stop),
        report,
    };
    let place = Place {
        store: pool.store.path.clone(),
        scratch: pool.store.scratch.clone(),
        space: pool.space(),
        interval: pool.config.mirror.metadata_interval.0,
    };
    Ok(weir_metadata::run(&pool.catalog, &place, &schedule, stop)?)
}
