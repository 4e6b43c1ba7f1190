//! `share` and `dissociate`: archives that build on others.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use weir_catalog::{Base, Repository};
use weir_repo::{Repo, Sharing, compact, open_as_base};

use crate::cli::Global;
use crate::error::{Error, InRepo, Result, SOME_FAILED};
use crate::output;
use crate::pool::{Pool, end_of, now};

/// Below this many per cent of its objects in common, an archive stays whole.
const COMMON_PERCENT_MIN: u64 = 10;

/// What came of one archive.
enum ShareOutcome {
    /// It builds on the other now, and was, and is, so many bytes long.
    Done(u64, u64),
    /// So many of its objects, of so many, are in the other.
    Would(u64, u64),
    /// It did before.
    Already,
    /// It is not mirrored yet: its first clone will.
    Later,
}

pub(crate) fn share(
    pool: &mut Pool,
    global: &Global,
    pattern: Option<&str>,
    reference: Option<&str>,
    dry_run: bool,
) -> Result<ExitCode> {
    let repositories = pool.matching(pattern)?;
    let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
    let bases: Vec<Base> = match reference.map(|name| pool.get(name)).transpose()? {
        Some(base) => {
            let others = ids.iter().filter(|id| **id != base.id);
            others.map(|&id| Base::of(id, &base)).collect()
        }
        None => [pool.catalog.bases(&ids)?, pool.catalog.bases_by_forge(&ids)?].concat(),
    };
    let bases: HashMap<i64, Base> = bases.into_iter().map(|base| (base.id, base)).collect();
    let mut failed = 0;
    let mut open: Option<(i64, Arc<Repo>)> = None;
    for r in &repositories {
        let Some(base) = bases.get(&r.id) else { continue };
        match share_one(pool, r, base, dry_run, &mut open) {
            Ok(shared) => report(global, r, base, &shared)?,
            Err(e) => {
                failed += 1;
                warn_line!("{}: not shared: {e}", r.name);
            }
        }
    }
    Ok(if failed > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Lets the archive of `r` build on that of `base`, which stays open for the next.
fn share_one(
    pool: &mut Pool,
    r: &Repository,
    base: &Base,
    dry_run: bool,
    open: &mut Option<(i64, Arc<Repo>)>,
) -> Result<ShareOutcome> {
    let (archive, path) = (pool.archive_path(r), std::path::absolute(pool.store().join(&base.path))?);
    if !archive.exists() {
        if !dry_run {
            pool.catalog.set_base(r.id, base.base)?;
        }
        return Ok(ShareOutcome::Later);
    }
    let repo = pool.open_repo(r)?;
    match repo.base() {
        Some(there) if there.path() == path => {
            if !dry_run {
                pool.catalog.set_base(r.id, base.base)?;
            }
            return Ok(ShareOutcome::Already);
        }
        Some(there) => {
            let error = format!(
                "it already builds on '{}'; run 'weir dissociate {}' first",
                there.path().display(),
                r.name
            );
            return Err(Error::Message(error));
        }
        None => {}
    }
    let on = match open {
        Some((of, on)) if *of == base.base => on.clone(),
        _ if !path.exists() => return Err(Error::NotMirrored(base.name.clone())),
        _ => {
            let on =
                if dry_run { Repo::open_archive(&path).map(Arc::new) } else { open_as_base(&path, now()) }
                    .in_repo(&base.name)?;
            *open = Some((base.base, on.clone()));
            on
        }
    };
    let (common, all) = in_common(&repo, &on);
    if dry_run {
        return Ok(ShareOutcome::Would(common, all));
    }
    if common * 100 < all * COMMON_PERCENT_MIN {
        return Err(Error::Message(format!("only {common} of its {all} objects are in '{}'", base.name)));
    }
    // Before it does: nobody deletes the other from now on.
    pool.catalog.set_base(r.id, base.base)?;
    let before = std::fs::metadata(&archive)?.len();
    drop(repo);
    match pool.rewrite(Sharing::On(&on), |how| compact(&archive, how)) {
        Ok(report) => {
            // A visit that began before may have found it whole.
            pool.note_base(r)?;
            pool.catalog.set_archive(r.id, end_of(&report))?;
            Ok(ShareOutcome::Done(before, report.archive_bytes))
        }
        Err(e) => {
            // Another may be in its place by now.
            *open = None;
            pool.note_base(r)?;
            Err(Error::Message(e.to_string()))
        }
    }
}

/// How many of the objects in the packs of `repo` are in `on`, and how many there are.
fn in_common(repo: &Repo, on: &Repo) -> (u64, u64) {
    let (mut common, mut all) = (0, 0);
    for pack in repo.own_packs() {
        let index = pack.index();
        all += u64::from(index.count());
        common += (0..index.count()).filter(|&n| on.contains(&index.oid(n))).count() as u64;
    }
    (common, all)
}

fn report(global: &Global, r: &Repository, base: &Base, shared: &ShareOutcome) -> Result<()> {
    let base = &base.name;
    if global.json {
        let mut value = json!({ "name": r.name, "base": base });
        match *shared {
            ShareOutcome::Done(before, after) => {
                (value["bytes_before"], value["bytes_after"]) = (json!(before), json!(after))
            }
            ShareOutcome::Would(common, all) => {
                (value["objects_in_base"], value["objects"]) = (json!(common), json!(all))
            }
            ShareOutcome::Already | ShareOutcome::Later => {}
        }
        return output::json_line(&value);
    }
    if global.quiet {
        return Ok(());
    }
    let mut out = output::stdout();
    match *shared {
        ShareOutcome::Done(before, after) => {
            writeln!(out, "{}: {} -> {}, on {base}", r.name, output::bytes(before), output::bytes(after))?;
        }
        ShareOutcome::Would(common, all) => {
            writeln!(out, "{}: {common} of {all} objects are in {base}", r.name)?
        }
        ShareOutcome::Already => writeln!(out, "{}: builds on {base} already", r.name)?,
        ShareOutcome::Later => writeln!(out, "{}: its first clone builds on {base}", r.name)?,
    }
    Ok(())
}

pub(crate) fn dissociate(
    pool: &mut Pool,
    global: &Global,
    patterns: &[String],
    reference: Option<&str>,
) -> Result<ExitCode> {
    let mut repositories = Vec::new();
    for pattern in patterns {
        repositories.extend(pool.matching(Some(pattern))?);
    }
    if let Some(name) = reference {
        let base = pool.get(name)?;
        repositories.extend(pool.catalog.built_on(base.id)?);
    }
    repositories.sort_by(|a, b| a.name.cmp(&b.name));
    repositories.dedup_by_key(|r| r.id);
    let mut failed = 0;
    for r in repositories {
        match dissociate_one(pool, &r) {
            Ok(None) => {}
            Ok(Some((before, after))) if global.json => {
                output::json_line(&json!({ "name": r.name, "bytes_before": before, "bytes_after": after }))?;
            }
            Ok(Some(_)) if global.quiet => {}
            Ok(Some((before, after))) => {
                writeln!(
                    output::stdout(),
                    "{}: {} -> {}, whole",
                    r.name,
                    output::bytes(before),
                    output::bytes(after)
                )?;
            }
            Err(e) => {
                failed += 1;
                warn_line!("{}: not dissociated, the archive is unchanged: {e}", r.name);
            }
        }
    }
    Ok(if failed > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Makes the archive of `r` whole, if it builds on another; says how long it was, and is.
fn dissociate_one(pool: &mut Pool, r: &Repository) -> Result<Option<(u64, u64)>> {
    let archive = pool.archive_path(r);
    let mut bytes = None;
    if archive.exists() && pool.open_repo(r)?.base().is_some() {
        let before = std::fs::metadata(&archive)?.len();
        let report = pool.rewrite(Sharing::Whole, |how| compact(&archive, how)).in_repo(&r.name)?;
        pool.catalog.set_archive(r.id, end_of(&report))?;
        bytes = Some((before, report.archive_bytes));
    }
    // Only now: until here it needed the other.
    pool.note_base(r)?;
    Ok(bytes)
}
