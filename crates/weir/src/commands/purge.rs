//! `purge`: the only command that deletes copies of repositories that are gone upstream.

use std::collections::HashSet;
use std::io::Write;

use weir_arguments::{Global, PurgeArgs};
use weir_catalog::clock::now;
use weir_pool::{Pool, PurgeOutcome};
use weir_terminal::{output, warn_line};

use crate::error::Result;
use crate::workspace_records::OwnWorkspaces;

pub(crate) fn purge(pool: &mut Pool, global: &Global, args: &PurgeArgs) -> Result<()> {
    let PurgeArgs { selection, gone_for, purge_protect, dry_run } = args;
    if !selection.repos.is_empty() {
        // A name that matches nothing is an error, and not an empty list.
        pool.matching_any(&selection.repos)?;
    }
    let before = now() - i64::try_from(gone_for.as_secs()).unwrap_or(i64::MAX);
    let gone = weir_pool::gone_since(&pool.catalog, before, &selection.repos)?;
    if !*dry_run {
        weir_pool::check_purge(&pool.catalog, &gone, *purge_protect)?;
    }
    let going: HashSet<i64> = gone.iter().map(|(r, _)| r.id).collect();
    let going = dry_run.then_some(&going);
    let workspaces = OwnWorkspaces::list()?;
    let (mut bytes, mut purged) = (0, Vec::new());
    for (r, _) in gone {
        if let Some(why) = workspaces.lost_with(&pool.archive_path(&r)) {
            warn_line!("{}: kept, {why}", r.name);
            continue;
        }
        match weir_pool::purge_one(&pool.catalog, &pool.store, &r, before, going)? {
            PurgeOutcome::Purged(n) => bytes += n,
            PurgeOutcome::Back => continue,
            PurgeOutcome::Needed(count) => {
                warn_line!(
                    "{}: kept, {count} archives build on it; run 'weir dissociate --reference {}' first",
                    r.name,
                    r.name
                );
                continue;
            }
        }
        if !global.quiet && !global.json {
            writeln!(output::stdout(), "{}", r.name)?;
        }
        purged.push(r.name);
    }
    if global.json {
        output::json(&serde_json::json!({ "purged": purged, "bytes": bytes, "dry_run": dry_run }))?;
    } else if !global.quiet {
        let what = if *dry_run { "would be deleted" } else { "deleted" };
        writeln!(output::stdout(), "{} repositories, {} {what}", purged.len(), output::bytes(bytes))?;
    }
    Ok(())
}
