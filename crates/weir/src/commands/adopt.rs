//! `adopt`: archives in the store of which the catalog knows nothing.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use weir_catalog::Adopted;
use weir_repo::{Origin, Repo, StateKind};

use crate::cli::Global;
use crate::error::{Error, Result, SOME_FAILED};
use crate::names::check_name;
use crate::output;
use crate::pool::{Pool, now};
use crate::store_files::{SUFFIX, is_archive, walk};

/// Archives that are registered at a time.
const BATCH_MAX: usize = 1000;

/// An archive that cannot be registered, and why.
struct LeftOut {
    path: String,
    why: String,
}

pub(crate) fn adopt(pool: &mut Pool, global: &Global, dry_run: bool) -> Result<ExitCode> {
    let known: std::collections::HashSet<String> = pool.catalog.list()?.into_iter().map(|r| r.path).collect();
    let store = pool.store();
    let mut paths = Vec::new();
    let unread = walk(&store, &mut |path, kind| {
        if kind.is_file() && is_archive(path) {
            paths.push(path.to_owned());
        }
    })
    .map_err(|source| Error::File { what: "read", path: store.clone(), source })?;
    for (folder, e) in unread {
        tracing::warn!(folder = %folder.display(), "folder skipped: {e}");
    }
    paths.sort();
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for path in paths {
        let below = path.strip_prefix(&store).unwrap_or(&path).to_string_lossy().into_owned();
        if known.contains(&below) {
            continue;
        }
        match look(&path, &below) {
            Ok(archive) => found.push(archive),
            Err(why) => left_out.push(LeftOut { path: below, why }),
        }
    }
    let mut added = 0;
    if !dry_run {
        for batch in found.chunks(BATCH_MAX) {
            added += pool.catalog.adopt(batch, now())?;
        }
        // Who builds on whom, once all are known.
        for archive in &found {
            let repository = pool.get(&archive.name)?;
            pool.note_base(&repository)?;
        }
    }
    if global.json {
        let names: Vec<_> = found
            .iter()
            .map(|a| json!({ "name": a.name, "url": a.url, "seq": a.seq, "forge": a.forge }))
            .collect();
        let left: Vec<_> = left_out.iter().map(|l| json!({ "archive": l.path, "why": l.why })).collect();
        output::json(&json!({ "found": names, "added": added, "left_out": left }))?;
    } else {
        let mut out = output::stdout();
        for a in &found {
            if !global.quiet {
                writeln!(out, "{}  {}", a.name, output::printable(a.url.as_bytes()))?;
            }
        }
        for l in &left_out {
            warn_line!("skipped   {}: {}", output::printable(l.path.as_bytes()), l.why);
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

/// What is to be registered of the archive at `path`, which is `below` the store.
fn look(path: &Path, below: &str) -> std::result::Result<Adopted, String> {
    if below.contains(char::REPLACEMENT_CHARACTER) && path.to_str().is_none() {
        return Err("its name is not UTF-8: rename the file".to_owned());
    }
    let name = below.strip_suffix(SUFFIX).unwrap_or(below).to_owned();
    check_name(&name).map_err(|e| format!("{e}: rename the file"))?;
    let repo = Repo::open_archive(path).map_err(|e| e.to_string())?;
    let archive = repo.archive().ok_or("it is no archive")?;
    let Some(Origin { url, forge }) = Origin::of(archive) else {
        return Err(format!(
            "it does not record its upstream; register it as it is with 'weir add --name {name} URL'"
        ));
    };
    let number = |n: u64| i64::try_from(n).map_err(|_| "its numbers are too large".to_owned());
    Ok(Adopted {
        name,
        url,
        path: below.to_owned(),
        seq: number(archive.state().record.seq)?,
        archive_bytes: number(archive.state().end())?,
        ref_count: number(repo.refs().list().len() as u64)?,
        epoch: weir_repo::epoch_of(path).map_err(|e| e.to_string())?,
        forge,
        // As 'weir restore' left it.
        is_pinned: StateKind::of(archive) == StateKind::Restored,
    })
}
