//! Listings of forges, once or at their intervals.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use weir_forge::{
    AccountsProgress, Crawl, CrawlError, CrawlProgress, Error as ForgeError, Forge, accounts_listing,
    crawl_accounts,
};
use weir_ground::{Stop, Timestamp};

use crate::error::{Error, Result};
use crate::forges::ForgeConfig;
use crate::pool::{Pool, now};

/// Longest sleep between looks at what is due while watching.
const WATCH_SLEEP: Duration = Duration::from_millis(200);
/// Time between looks at whether another machine still lists a forge.
const LISTED_BY_ANOTHER_S: i64 = 60;
/// Time after a crawl that failed, while watching.
const RETRY_S: i64 = 300;

/// Lists `forges`, once or for ever; says whether one failed.
pub(crate) fn rounds(
    pool: &mut Pool,
    forges: &[ForgeConfig],
    watch: bool,
    shows_bar: bool,
    stop: &Stop,
    report: &mut dyn FnMut(&str, &CrawlProgress) -> Result<()>,
) -> Result<bool> {
    let mut next = vec![Timestamp(0); forges.len()];
    let mut failed = false;
    loop {
        for (forge, next) in forges.iter().zip(&mut next) {
            if stop.is_stopped() || now() < *next {
                continue;
            }
            // Of the catalog, too: it may be back soon, and the next forge's listing may be taken all the
            // same.
            let when = turn(pool, shows_bar, forge, watch, stop, report).unwrap_or_else(|e| {
                failed = true;
                tracing::error!("{}: {e}; the next crawl resumes there", forge.name());
                now() + RETRY_S
            });
            *next = when;
        }
        if !watch || stop.is_stopped() {
            return Ok(failed);
        }
        stop.sleep(WATCH_SLEEP);
    }
}

/// Lists `forge`, if that is due; says when it is the next time.
fn turn(
    pool: &mut Pool,
    shows_bar: bool,
    forge: &ForgeConfig,
    watch: bool,
    stop: &Stop,
    report: &mut dyn FnMut(&str, &CrawlProgress) -> Result<()>,
) -> Result<Timestamp> {
    // When watching, what was listed lately is not listed again at once, whoever did that.
    let due = |at: Timestamp| at + forge.interval.0.as_secs() as i64;
    let lately =
        pool.catalog.listing(&forge.name())?.and_then(|l| l.finished_at).filter(|at| due(*at) > now());
    let accounts =
        if forge.accounts { pool.catalog.listing(&accounts_listing(&forge.name()))? } else { None };
    let only_accounts = watch && lately.is_some() && accounts.is_some_and(|l| l.finished_at.is_none());
    if let (true, Some(at), false) = (watch, lately, only_accounts) {
        return Ok(due(at));
    }
    if !pool.catalog.try_lock_listing(&forge.name())? {
        if !watch {
            return Err(Error::Message("another weir process is listing it".to_owned()));
        }
        return Ok(now() + LISTED_BY_ANOTHER_S);
    }
    let listed = one(pool, shows_bar, forge, only_accounts, stop, report);
    if let Err(e) = pool.catalog.unlock_listing(&forge.name()) {
        tracing::warn!("{}: {e}", forge.name());
    }
    match listed? {
        None | Some(ForgeError::Stopped) => Ok(due(now())),
        Some(e) => {
            pool.catalog.set_listing_failed(&forge.name(), &e.to_string(), now())?;
            Err(Error::Message(e.to_string()))
        }
    }
}

/// Lists one forge: its repositories, unless that was done lately, then its accounts, if they are wanted.
/// Reports a listing that ended. Returns the forge's error, if that ended the listing early.
fn one(
    pool: &mut Pool,
    shows_bar: bool,
    config: &ForgeConfig,
    only_accounts: bool,
    stop: &Stop,
    report: &mut dyn FnMut(&str, &CrawlProgress) -> Result<()>,
) -> Result<Option<ForgeError>> {
    let mut forge = match config.open(stop) {
        Ok(forge) => forge,
        Err(e) => {
            return Ok(Some(ForgeError::Unexpected { url: config.url.clone(), detail: e.to_string() }));
        }
    };
    let name = config.name();
    let bar = shows_bar.then(|| {
        let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}, {elapsed} gone")
            .expect("a valid template");
        let bar = ProgressBar::new_spinner().with_style(style).with_prefix(name.clone());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    });
    let result = list(pool, bar.as_ref(), config, only_accounts, forge.as_mut(), stop);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let (progress, result) = result;
    if let Some(progress) = progress.filter(|_| !only_accounts) {
        report(&name, &progress)?;
    }
    match result {
        Ok(()) => Ok(None),
        Err(CrawlError::Forge(e)) => Ok(Some(e)),
        Err(CrawlError::Catalog(e)) => Err(e.into()),
    }
}

/// How far repositories came, and how it ended.
fn list(
    pool: &mut Pool,
    bar: Option<&ProgressBar>,
    config: &ForgeConfig,
    only_accounts: bool,
    forge: &mut dyn Forge,
    stop: &Stop,
) -> (Option<CrawlProgress>, std::result::Result<(), CrawlError>) {
    let name = config.name();
    let started = Instant::now();
    let crawl = Crawl {
        name: &name,
        scope: &config.scope(),
        filter: &config.filter(),
        name_of: &|listed| config.name_of(listed),
        wikis: config.wikis(),
        wanted: &config.wanted(),
        limit: config.limit,
        gone_s: pool.config.mirror.gone.0.as_secs() as i64,
        now: &now,
    };
    let mut progress = CrawlProgress { finished: true, ..CrawlProgress::default() };
    if !only_accounts {
        let listed = crawl.run(&mut pool.catalog, forge, &mut |progress| {
            if let Some(bar) = bar {
                let rate = progress.listed as f64 / started.elapsed().as_secs_f64().max(0.001);
                let CrawlProgress { listed, wanted, taken, usage, .. } = progress;
                bar.set_message(format!(
                    "{listed} listed ({rate:.0}/s), {wanted} wanted, {} new, {} requests",
                    taken.added, usage.requests
                ));
            }
            !stop.is_stopped()
        });
        match listed {
            Ok(listed) => progress = listed,
            Err(e) => return (None, Err(e)),
        }
    }
    if !config.accounts || !progress.finished {
        return (Some(progress), Ok(()));
    }
    let goes_on = &mut |accounts: &AccountsProgress| {
        if let Some(bar) = bar {
            bar.set_message(format!(
                "{} accounts listed, {} requests",
                accounts.listed, accounts.usage.requests
            ));
        }
        !stop.is_stopped()
    };
    let accounts = crawl_accounts(&name, &config.scope(), &mut pool.catalog, forge, &now, goes_on);
    progress.usage = forge.usage();
    match accounts {
        Ok(Some(accounts)) => {
            progress.finished = accounts.finished;
            tracing::info!(
                "{name}: {} accounts listed, {} memberships",
                accounts.listed,
                accounts.memberships
            );
            (Some(progress), Ok(()))
        }
        Ok(None) => (Some(progress), Ok(())),
        Err(e) => (Some(progress), Err(e)),
    }
}

pub(crate) fn summary(name: &str, p: &CrawlProgress) -> String {
    let mut parts = vec![format!("{} listed", p.listed), format!("{} wanted", p.wanted)];
    let unknown = format!("skipped (the forge does not say {})", p.unknown_of.unwrap_or_default());
    let counts = [
        (p.taken.added as u64, "new"),
        (p.taken.renamed as u64, "renamed"),
        (p.taken.hinted as u64, "changed"),
        (p.taken.back as u64, "back"),
        (p.gone, "gone"),
        (p.unknown, &unknown),
        (p.refused, "skipped (invalid names)"),
        (p.unchanged, "pages unchanged"),
        (p.skipped, "pages skipped"),
        (p.recovered, "skipped pages recovered"),
    ];
    parts.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    let state = if p.finished { "" } else { " (to be continued)" };
    format!("{name}: {}; {} requests{state}", parts.join(", "), p.usage.requests)
}
