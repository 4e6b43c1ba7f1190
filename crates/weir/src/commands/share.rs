//! `share` and `dissociate`: let archives build on others, and make them whole again.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use weir_arguments::{Global, RepoSelection};
use weir_catalog::{Base, Repository};
use weir_pool::{Pool, Rewritten, ShareOutcome, Sharer, bases_for};
use weir_terminal::{output, warn_line};

use crate::error::{Result, SOME_FAILED};
use crate::remedies::Remediable;

pub(crate) fn share(
    pool: &mut Pool,
    global: &Global,
    selection: &RepoSelection,
    reference: Option<&str>,
    dry_run: bool,
) -> Result<ExitCode> {
    let repositories = pool.selected(&selection.repos)?;
    let reference = reference.map(|name| pool.get(name)).transpose()?;
    let access = pool.config.access.names();
    let bases = bases_for(&pool.catalog, &repositories, reference.as_ref(), &access)?;
    let mut sharer = Sharer::new(&pool.catalog, &pool.store, dry_run);
    let mut failed = 0;
    for r in &repositories {
        let Some(base) = bases.get(&r.id) else { continue };
        if access.hide_more(&base.name, &r.name) {
            failed += 1;
            warn_line!(
                "{}: an access rule hides '{}' from some who could read it, and with it all objects of \
                the base: name both in the rule",
                r.name,
                base.name
            );
            continue;
        }
        match sharer.share(r, base) {
            Ok(shared) => report(global, r, base, &shared)?,
            Err(e) => {
                failed += 1;
                warn_line!("{}: not shared: {}", r.name, e.with_remedy());
            }
        }
    }
    Ok(if failed > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn report(global: &Global, r: &Repository, base: &Base, shared: &ShareOutcome) -> Result<()> {
    let base = &base.name;
    if global.json {
        let mut value = json!({ "name": r.name, "base": base });
        match *shared {
            ShareOutcome::Done(Rewritten { bytes_before, bytes_after }) => {
                (value["bytes_before"], value["bytes_after"]) = (json!(bytes_before), json!(bytes_after))
            }
            ShareOutcome::Would { common, objects } => {
                (value["objects_in_base"], value["objects"]) = (json!(common), json!(objects))
            }
            ShareOutcome::Already | ShareOutcome::Later => {}
        }
        return Ok(output::json_line(&value)?);
    }
    if global.quiet {
        return Ok(());
    }
    let mut out = output::stdout();
    match shared {
        ShareOutcome::Done(done) => writeln!(out, "{}: {}, on {base}", r.name, output::lengths(done))?,
        ShareOutcome::Would { common, objects } => {
            writeln!(out, "{}: {common} of {objects} objects are in {base}", r.name)?
        }
        ShareOutcome::Already => writeln!(out, "{}: builds on {base} already", r.name)?,
        ShareOutcome::Later => writeln!(out, "{}: its first clone builds on {base}", r.name)?,
    }
    Ok(())
}

pub(crate) fn dissociate(
    pool: &mut Pool,
    global: &Global,
    repos: &[String],
    reference: Option<&str>,
) -> Result<ExitCode> {
    let mut repositories = pool.matching_any(repos)?;
    if let Some(name) = reference {
        let base = pool.get(name)?;
        repositories.extend(pool.catalog.archives().built_on(base.id)?);
    }
    repositories.sort_by(|a, b| a.name.cmp(&b.name));
    repositories.dedup_by_key(|r| r.id);
    let mut failed = 0;
    for r in repositories {
        match weir_pool::dissociate(&pool.catalog, &pool.store, &r) {
            Ok(None) => {}
            Ok(Some(done)) if global.json => output::json_line(&output::lengths_json(&r.name, &done))?,
            Ok(Some(_)) if global.quiet => {}
            Ok(Some(done)) => {
                writeln!(output::stdout(), "{}: {}, whole", r.name, output::lengths(&done))?;
            }
            Err(e) => {
                failed += 1;
                warn_line!("{}: not dissociated, the archive is unchanged: {}", r.name, e.with_remedy());
            }
        }
    }
    Ok(if failed > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}
