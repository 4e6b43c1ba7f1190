//! `fsck`, `compact`, `restore`.

use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use weir_arguments::{Global, RepoSelection};
use weir_catalog::Repository;
use weir_mirror::LostCommits;
use weir_pool::{Checked, Pool, Repair};
use weir_terminal::{output, warn_line};

use crate::error::{Error, Result, SOME_FAILED};
use crate::remedies::Remediable;

pub(crate) fn fsck(
    pool: &mut Pool,
    global: &Global,
    selection: &RepoSelection,
    repair: bool,
) -> Result<ExitCode> {
    let mut damaged = 0;
    let mirror = repair.then(|| pool.mirror(None));
    let mut results = Vec::new();
    let mut repositories = pool.selected(&selection.repos)?;
    // Forks come after their bases: a damaged base may be all that is wrong with them.
    let forks = pool.catalog.archives().bases(&repositories.iter().map(|r| r.id).collect::<Vec<_>>())?;
    let forks: HashSet<i64> = forks.iter().map(|fork| fork.id).collect();
    repositories.sort_by_key(|r| forks.contains(&r.id));
    for r in repositories {
        let Some(checked) = weir_pool::check(&pool.store, &r)? else { continue };
        checked.unchecked.iter().for_each(|line| warn_line!("{}: {line}", r.name));
        let is_damaged = !checked.problems.is_empty();
        let repair = match mirror.as_ref().filter(|_| is_damaged && checked.is_there) {
            Some(mirror) => Some(weir_pool::repair(&pool.catalog, mirror, &r)?),
            None => {
                weir_pool::note(&pool.catalog, &r, &checked)?;
                None
            }
        };
        damaged += usize::from(is_damaged && !matches!(repair, Some(Repair::Done(_) | Repair::Relinked)));
        match global.json {
            true => results.push(checked_json(&r, &checked, repair.as_ref())),
            false => print_checked(&r, &checked, repair.as_ref(), global.quiet)?,
        }
    }
    if global.json {
        output::json(&results)?;
    }
    Ok(if damaged > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn checked_json(r: &Repository, checked: &Checked, repair: Option<&Repair>) -> serde_json::Value {
    let (visited, error) = match repair {
        Some(Repair::Done(visited)) => (Some(visited), None),
        Some(Repair::Failed(why)) => (None, Some(why)),
        Some(Repair::Relinked) | None => (None, None),
    };
    let lost = visited.and_then(|visited| visited.lost.as_ref()).map(LostCommits::facts);
    let kept = visited.and_then(|visited| visited.damaged.as_ref());
    json!({ "name": r.name, "objects": checked.objects, "problems": checked.problems,
        "unfinished": checked.unfinished, "damaged": kept, "lost": lost, "error": error })
}

fn print_checked(r: &Repository, checked: &Checked, repair: Option<&Repair>, quiet: bool) -> Result<()> {
    let (mut out, name) = (output::stdout(), &r.name);
    for p in &checked.problems {
        writeln!(out, "{name}: {p}")?;
    }
    match repair {
        Some(Repair::Done(visited)) => match (&visited.lost, &visited.damaged) {
            (Some(lost), _) => writeln!(out, "{}", output::lost_line(name, &lost.facts()))?,
            (None, Some(kept)) => {
                writeln!(out, "{name}: cloned again; the damaged archive is {}", kept.display())?;
            }
            (None, None) => writeln!(out, "{name}: goes on from its last intact commit")?,
        },
        Some(Repair::Relinked) => writeln!(out, "{name}: builds on the archive that replaced its base")?,
        Some(Repair::Failed(why)) => writeln!(out, "{name}: not repaired: {why}")?,
        None if checked.is_there && !checked.problems.is_empty() && !quiet => {
            writeln!(out, "{name}: run 'weir fsck --repair {name}'")?;
        }
        None => {}
    }
    if let Some(line) = checked.unfinished.as_ref().filter(|_| !quiet) {
        writeln!(out, "{name}: {line}; the next visit that changes the archive removes them")?;
    }
    if checked.problems.is_empty() && !quiet {
        writeln!(out, "{name}: {} objects, all intact", checked.objects)?;
    }
    Ok(())
}

pub(crate) fn compact(pool: &mut Pool, global: &Global, selection: &RepoSelection) -> Result<ExitCode> {
    let mut failed = 0;
    for r in pool.selected(&selection.repos)? {
        match weir_pool::compact(&pool.catalog, &pool.store, &r) {
            Ok(None) => {}
            Ok(Some(done)) if global.json => output::json_line(&output::lengths_json(&r.name, &done))?,
            Ok(Some(_)) if global.quiet => {}
            Ok(Some(done)) => writeln!(output::stdout(), "{}: {}", r.name, output::lengths(&done))?,
            // The other archives would fail, too.
            Err(weir_pool::Error::Catalog(e)) => return Err(e.into()),
            Err(e) => {
                failed += 1;
                warn_line!("{}: not compacted, the archive is unchanged: {}", r.name, e.with_remedy());
            }
        }
    }
    Ok(if failed > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

pub(crate) fn restore(pool: &mut Pool, global: &Global, state: &str, name: Option<String>) -> Result<()> {
    let parsed = state.rsplit_once('@').and_then(|(repo, n)| Some((repo, n.parse::<u64>().ok()?)));
    let Some((repo_name, seq)) = parsed else {
        return Err(Error::Message(format!(
            "'{state}' is not a state; use REPO@N, with N from 'weir log REPO'"
        )));
    };
    let r = pool.get(repo_name)?;
    let restored = weir_pool::restore(&pool.catalog, &pool.store, &r, seq, name.as_deref())?;
    let shown = &restored.name;
    if global.json {
        output::json(&json!({ "name": shown, "from": seq, "seq": restored.seq }))?;
    } else if !global.quiet {
        let mut out = output::stdout();
        writeln!(out, "{shown} now has the refs of {}@{seq}, as {shown}@{}", r.name, restored.seq)?;
        writeln!(out, "it is not visited until you run 'weir mirror {shown}'")?;
    }
    Ok(())
}
