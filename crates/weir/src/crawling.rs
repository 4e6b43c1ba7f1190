//! Shows listings of forges to people: a bar for each.

use weir_crawl::{CrawlProgress, RoundEvent};
use weir_ground::Stop;
use weir_pool::{Pool, list_forges};
use weir_settings::ForgeConfig;
use weir_terminal::ListingBars;

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
    let mut bars = ListingBars::default();
    list_forges(pool, forges, watch, stop, &mut |name, event| {
        if shows_bar {
            bars.draw(name, &event);
        }
        match event {
            RoundEvent::Listed(progress) => Ok(report(name, progress)?),
            _ => Ok(()),
        }
    })
}
