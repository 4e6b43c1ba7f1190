//! Requests to forges: listings, and metadata of repositories.

use weir_catalog::clock::now;
use weir_catalog::{EventKind, PoolEvent};
use weir_crawl::{CrawlProgress, CrawlSource, RoundEvent, Rounds, TellRound};
use weir_ground::Stop;
use weir_metadata::{Place, Schedule, TellLook};
use weir_settings::ForgeConfig;

use crate::running::pool::{Pool, open_catalog_again};

/// Lists `forges`, once or until `stop` is requested, and logs what comes of it: in the catalog, and in the
/// log of the process. Returns whether one failed.
pub fn list_forges(
    pool: &Pool,
    forges: &[ForgeConfig],
    watch: bool,
    stop: &Stop,
    tell: &mut TellRound<'_>,
) -> bool {
    let gone_s = pool.config.mirror.gone.0.as_secs() as i64;
    let rounds = Rounds { sources: forges, watch, gone_s, now: &now, stop };
    let (path, config) = (&pool.path, &pool.config);
    let open = || open_catalog_again(path, config);
    rounds.run(&open, &mut |name, event| {
        if let Some(kind) = event_of(name, &event) {
            open()?.events().log(&PoolEvent { time: now(), subject: None, kind })?;
        }
        match &event {
            RoundEvent::Asked(asked) => tracing::info!(
                "{name}: asked about {} repositories that events say changed: {} renamed, {} gone, {} back",
                asked.asked,
                asked.taken.renamed,
                asked.gone,
                asked.taken.back
            ),
            RoundEvent::Failed(e) => tracing::error!("{name}: {e}; the next crawl resumes there"),
            RoundEvent::AccountsListed(accounts) => tracing::info!(
                "{name}: {} accounts listed, {} memberships",
                accounts.listed,
                accounts.memberships
            ),
            RoundEvent::Began
            | RoundEvent::Page(_)
            | RoundEvent::Accounts(_)
            | RoundEvent::Listed(_)
            | RoundEvent::Ended => {}
        }
        tell(name, event)
    })
}

/// Returns what the log of the pool says of a listing that has ended.
fn event_of(forge: &str, event: &RoundEvent<'_>) -> Option<EventKind> {
    let forge = forge.to_owned();
    match event {
        RoundEvent::Listed(CrawlProgress { listed, taken, gone, .. }) => {
            Some(EventKind::Listed { forge, listed: *listed, added: taken.added as u64, gone: *gone })
        }
        RoundEvent::Failed(e) => Some(EventKind::ListingFailed { forge, error: e.to_string() }),
        _ => None,
    }
}

/// Returns the forges that have metadata.
pub fn with_metadata(pool: &Pool) -> Vec<ForgeConfig> {
    pool.config.forge.iter().filter(|forge| forge.has_metadata()).cloned().collect()
}

/// Makes the looks that are due at a forge, or those at `ids`, once or for ever. Returns whether a look
/// failed.
///
/// # Errors
/// If the catalog, the forge or `report` fails.
pub fn look_at_metadata(
    pool: &mut Pool,
    owner: &str,
    config: &ForgeConfig,
    ids: Option<&[i64]>,
    watch: bool,
    stop: &Stop,
    report: &TellLook<'_>,
) -> weir_metadata::Result<bool> {
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
    weir_metadata::run(&pool.catalog, &place, &schedule, stop)
}
