//! Progress bars of listings.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use weir_crawl::{CrawlProgress, RoundEvent};

/// A bar for each forge that is being listed.
#[derive(Default)]
pub struct ListingBars {
    shown: MultiProgress,
    bars: HashMap<String, ListingBar>,
}

impl ListingBars {
    /// Shows an event of the listing of the forge called `name`.
    pub fn draw(&mut self, name: &str, event: &RoundEvent<'_>) {
        let new = || ListingBar { bar: ProgressBar::hidden(), began: Instant::now() };
        self.bars.entry(name.to_owned()).or_insert_with(new).draw(name, event, &self.shown);
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
