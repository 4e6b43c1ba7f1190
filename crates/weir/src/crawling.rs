//! Shows listings of forges to people: a bar, and a line at the end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use weir_catalog::clock::now;
use weir_catalog::{EventKind, PoolEvent};
use weir_crawl::{CrawlProgress, RoundEvent, Rounds};
use weir_ground::{OtherError, Stop};
use weir_pool::{Pool, open_catalog_again};
use weir_settings::ForgeConfig;

use crate::error::Result;

/// Lists `forges`, once or until `stop` is requested. Returns whether one failed.
pub(crate) fn list_forges(
    pool: &Pool,
    forges: &[ForgeConfig],
    watch: bool,
    shows_bar: bool,
    stop: &Stop,
    report: &mut (dyn FnMut(&str, &CrawlProgress) -> Result<()> + Send),
) -> bool {
    let gone_s = pool.config.mirror.gone.0.as_secs() as i64;
    let rounds = Rounds { sources: forges, watch, gone_s, now: &now, stop };
    let mut bars = HashMap::new();
    let shown = MultiProgress::new();
    let (path, config) = (&pool.path, &pool.config);
    let open = || open_catalog_again(path, config);
    rounds.run(&open, &mut |name, event| {
        if shows_bar {
            let new = || ListingBar { bar: ProgressBar::hidden(), began: Instant::now() };
            bars.entry(name.to_owned()).or_insert_with(new).draw(name, &event, &shown);
        }
        if let Some(kind) = event_of(name, &event) {
            open()?.events().log(&PoolEvent { time: now(), subject: None, kind })?;
        }
        match event {
            RoundEvent::Listed(progress) => report(name, progress)?,
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
            RoundEvent::Began | RoundEvent::Page(_) | RoundEvent::Accounts(_) | RoundEvent::Ended => {}
        }
        Ok::<(), OtherError>(())
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

/// The progress of a forge's listing, on a terminal.
struct ListingBar {
    bar: ProgressBar,
    began: Instant,
}

impl ListingBar {
    fn draw(&mut self, name: &str, event: &RoundEvent<'_>, shown: &MultiProgress) {
        match event {
            RoundEvent::Began => {
                let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}, {elapsed} gone")
                    .expect("a valid template");
                let bar = ProgressBar::new_spinner().with_style(style).with_prefix(name.to_owned());
                self.bar = shown.add(bar);
                self.bar.enable_steady_tick(Duration::from_millis(200));
                self.began = Instant::now();
            }
            RoundEvent::Page(CrawlProgress { listed, wanted, taken, usage, .. }) => {
                let rate = *listed as f64 / self.began.elapsed().as_secs_f64().max(0.001);
                self.bar.set_message(format!(
                    "{listed} listed ({rate:.0}/s), {wanted} wanted, {} new, {} requests",
                    taken.added, usage.requests
                ));
            }
            RoundEvent::Accounts(accounts) => self.bar.set_message(format!(
                "{} accounts listed, {} requests",
                accounts.listed, accounts.usage.requests
            )),
            RoundEvent::Ended => self.bar.finish_and_clear(),
            _ => {}
        }
    }
}

/// Returns the result of a listing as a line.
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
