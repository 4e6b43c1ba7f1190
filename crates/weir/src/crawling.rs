//! Shows listings of forges to people: a bar for each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use weir_crawl::{CrawlProgress, RoundEvent};
use weir_ground::Stop;
use weir_pool::{Pool, list_forges};
use weir_settings::ForgeConfig;

use crate::error::Result;

/// Lists `forges`, once or until `stop` is requested. Returns whether one failed.
pub(crate) fn list_with_bars(
    pool: &Pool,
    forges: &[ForgeConfig],
    watch: bool,
    shows_bar: bool,
    stop: &Stop,
    report: &mut (dyn FnMut(&str, &CrawlProgress) -> Result<()> + Send),
) -> bool {
    let mut bars = HashMap::new();
    let shown = MultiProgress::new();
    list_forges(pool, forges, watch, stop, &mut |name, event| {
        if shows_bar {
            let new = || ListingBar { bar: ProgressBar::hidden(), began: Instant::now() };
            bars.entry(name.to_owned()).or_insert_with(new).draw(name, &event, &shown);
        }
        match event {
            RoundEvent::Listed(progress) => Ok(report(name, progress)?),
            _ => Ok(()),
        }
    })
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
