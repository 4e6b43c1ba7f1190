//! `purge`: the only way that copies of what is gone upstream go, too.

use std::io::Write;
use std::time::Duration;

use weir_serve::name_matches;

use super::register::forget;
use crate::cli::Global;
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{Pool, now};

pub(crate) fn purge(pool: &mut Pool, global: &Global, pattern: Option<&str>, gone_for: Duration, percent: u8, dry_run: bool) -> Result<()> {
    let before = now().saturating_sub_unsigned(gone_for.as_secs());
    let mut gone = pool.catalog.gone_since(before)?;
    gone.retain(|r| pattern.is_none_or(|pattern| name_matches(pattern, &r.name)));
    let total = pool.catalog.counts(now())?.repositories.unsigned_abs();
    if !dry_run && gone.len() as u64 * 100 > total * u64::from(percent) {
        // A forge that was listed in part, or another one under that name, must not cost the copies.
        return Err(Error::Message(format!(
            "{} of {total} repositories are gone, more than {percent} per cent: nothing was deleted. 'weir purge --dry-run' lists them; \
             if that is right, say so with a larger --purge-protect",
            gone.len()
        )));
    }
    let mut bytes = 0;
    for r in &gone {
        bytes += std::fs::metadata(pool.archive_path(r)).map_or(0, |m| m.len());
        if !dry_run {
            forget(pool, r, true)?;
        }
        if !global.quiet && !global.json {
            writeln!(std::io::stdout(), "{}", r.name)?;
        }
    }
    if global.json {
        let names: Vec<&str> = gone.iter().map(|r| r.name.as_str()).collect();
        output::json(&serde_json::json!({ "purged": names, "bytes": bytes, "dry_run": dry_run }))?;
    } else if !global.quiet {
        let what = if dry_run { "would be deleted" } else { "deleted" };
        writeln!(std::io::stdout(), "{} repositories, {} {what}", gone.len(), output::bytes(bytes))?;
    }
    Ok(())
}
