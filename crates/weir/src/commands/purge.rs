//! `purge`: the only way that copies of what is gone upstream go, too.

use std::io::Write;
use std::time::Duration;

use weir_ground::name_matches;

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{Pool, now};
use crate::registry::{delete_archives, lock};

pub(crate) fn purge(
    pool: &mut Pool,
    global: &Global,
    pattern: Option<&str>,
    gone_for: Duration,
    percent: u8,
    dry_run: bool,
) -> Result<()> {
    let before = now() - i64::try_from(gone_for.as_secs()).unwrap_or(i64::MAX);
    let mut gone = pool.catalog.gone_since(before)?;
    gone.retain(|(r, _)| pattern.is_none_or(|pattern| name_matches(pattern, &r.name)));
    if !dry_run {
        // A forge that was listed in part, or another one under that name, must not cost the copies: of each,
        // so much at most.
        for (forge, known) in pool.catalog.counts_by_forge()? {
            let of_it = gone.iter().filter(|(_, of)| *of == forge).count();
            if of_it as u64 * 100 > known.unsigned_abs() * u64::from(percent) {
                let whose =
                    forge.map_or("those that no forge lists".to_owned(), |forge| format!("forge '{forge}'"));
                return Err(Error::Message(format!(
                    "{of_it} of {known} repositories of {whose} are gone, more than {percent} per cent: \
                    nothing was deleted. Check them with 'weir purge --dry-run'; if that is right, raise \
                    --purge-protect"
                )));
            }
        }
    }
    let forks = pool.catalog.bases(&gone.iter().map(|(r, _)| r.id).collect::<Vec<_>>())?;
    // Forks before what they build on.
    gone.sort_by_key(|(r, _)| !forks.iter().any(|fork| fork.id == r.id));
    let going: Vec<i64> = gone.iter().map(|(r, _)| r.id).collect();
    let (mut bytes, mut purged) = (0, Vec::new());
    for (r, _) in gone {
        let path = pool.archive_path(&r);
        let staying = pool
            .catalog
            .built_on(r.id)?
            .into_iter()
            .filter(|fork| !(dry_run && going.contains(&fork.id)))
            .count();
        if staying > 0 {
            warn_line!(
                "{}: kept, {staying} archives build on it; run 'weir dissociate --reference {}' first",
                r.name,
                r.name
            );
            continue;
        }
        let size = std::fs::metadata(&path).map_or(0, |m| m.len());
        if !dry_run {
            // Whoever writes to it is waited for, and may have found that it is there again.
            let lock = lock(&path)?;
            if !pool.catalog.remove_gone(r.id, before)? {
                continue;
            }
            delete_archives(&path)?;
            drop(lock);
        }
        bytes += size;
        if !global.quiet && !global.json {
            writeln!(output::stdout(), "{}", r.name)?;
        }
        purged.push(r.name);
    }
    if global.json {
        output::json(&serde_json::json!({ "purged": purged, "bytes": bytes, "dry_run": dry_run }))?;
    } else if !global.quiet {
        let what = if dry_run { "would be deleted" } else { "deleted" };
        writeln!(output::stdout(), "{} repositories, {} {what}", purged.len(), output::bytes(bytes))?;
    }
    Ok(())
}
