//! `adopt`: registers archives in the store that the catalog does not know.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use weir_arguments::Global;
use weir_pool::{FoundArchives, Pool};
use weir_terminal::{output, warn_line};

use crate::error::{Result, SOME_FAILED};
use crate::remedies::Remediable;

pub(crate) fn adopt(pool: &mut Pool, global: &Global, dry_run: bool) -> Result<ExitCode> {
    let FoundArchives { found, left_out, unread } = weir_pool::find_archives(&pool.catalog, &pool.store)?;
    for (folder, e) in unread {
        tracing::warn!(folder = %folder.display(), "folder skipped: {e}");
    }
    let added = if dry_run { 0 } else { weir_pool::adopt(&pool.catalog, &pool.store, &found)? };
    if global.json {
        let names: Vec<_> = found
            .iter()
            .map(|a| json!({ "name": a.name, "url": a.url, "seq": a.seq, "forge": a.forge }))
            .collect();
        let left: Vec<_> =
            left_out.iter().map(|l| json!({ "archive": l.path, "why": l.why.with_remedy() })).collect();
        output::json(&json!({ "found": names, "added": added, "left_out": left }))?;
    } else {
        let mut out = output::stdout();
        for a in &found {
            if !global.quiet {
                writeln!(out, "{}  {}", a.name, output::printable(a.url.as_bytes()))?;
            }
        }
        for l in &left_out {
            warn_line!("skipped   {}: {}", output::printable(l.path.as_bytes()), l.why.with_remedy());
        }
        if !global.quiet {
            let what = if dry_run {
                format!("{} would be registered", found.len())
            } else {
                format!("{added} registered")
            };
            writeln!(out, "{what}, {} skipped", left_out.len())?;
        }
    }
    Ok(if left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}
