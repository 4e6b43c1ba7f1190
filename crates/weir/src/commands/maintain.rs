//! `fsck`, `compact`, `restore`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use weir_catalog::Repository;
use weir_git::Oid;
use weir_ground::Epoch;
use weir_mirror::{Mirror, Visited};
use weir_repo::{ArchiveRepo, NewState, Refs, Repo, Sharing, StateKind, Takes, write_anew};

use crate::cli::Global;
use crate::error::{Error, InRepo, Result, SOME_FAILED};
use crate::names::check_name;
use crate::output;
use crate::pool::{Pool, end_of, now};

pub(crate) fn fsck(
    pool: &mut Pool,
    global: &Global,
    pattern: Option<&str>,
    repair: bool,
) -> Result<ExitCode> {
    let mut damaged = 0;
    let mirror = repair.then(|| pool.mirror(None));
    let mut results = Vec::new();
    let mut repositories = pool.matching(pattern)?;
    // Forks after what they build on: that may be all that is wrong with them.
    let forks = pool.catalog.bases(&repositories.iter().map(|r| r.id).collect::<Vec<_>>())?;
    let forks: HashSet<i64> = forks.iter().map(|fork| fork.id).collect();
    repositories.sort_by_key(|r| forks.contains(&r.id));
    for r in repositories {
        let Some(mut checked) = check(pool, &r)? else { continue };
        match checked.problems.first() {
            Some(first) if checked.is_there && !repair => pool.catalog.set_damaged(r.id, first, now())?,
            // The next visit is now.
            Some(_) if !checked.is_there => pool.catalog.look_again(&r.name, now())?,
            Some(_) => checked.repair = mirror.as_ref().map(|m| replace_damaged(pool, m, &r)).transpose()?,
            None => {}
        }
        damaged +=
            usize::from(!checked.problems.is_empty() && !matches!(checked.repair, Some(Repair::Done(_))));
        match global.json {
            true => results.push(checked.json(&r)),
            false => checked.print(&r, global.quiet)?,
        }
    }
    if global.json {
        output::json(&results)?;
    }
    Ok(if damaged > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// What `weir fsck` found of a repository, and did about it.
#[derive(Default)]
struct Checked {
    is_there: bool,
    objects: u64,
    problems: Vec<String>,
    /// What is behind the last commit, and normal after a kill.
    unfinished: Option<String>,
    /// The result of the repair, if the user asked for one.
    repair: Option<Repair>,
}

/// The result of a repair.
enum Repair {
    /// A visit replaced the archive.
    Done(Box<Visited>),
    /// The archive is unchanged, for this reason.
    Failed(String),
}

/// Checks the archive of `r`; `None` if there is none yet.
fn check(pool: &Pool, r: &Repository) -> Result<Option<Checked>> {
    let path = pool.archive_path(r);
    let is_there =
        path.try_exists().map_err(|source| Error::File { what: "look at", path: path.clone(), source })?;
    if !is_there && r.seq.is_none() {
        return Ok(None);
    }
    let known = r.seq.and_then(|n| u64::try_from(n).ok());
    let mut checked = Checked { is_there, ..Checked::default() };
    if !is_there {
        checked.problems.push("the archive is missing; the next visit clones it again".to_owned());
        return Ok(Some(checked));
    }
    match pool.open_repo(r).and_then(|repo| weir_repo::fsck(&repo).in_repo(&r.name)) {
        Ok(report) => {
            (checked.objects, checked.problems) = (report.objects, report.problems);
            let is_all_there =
                || known.is_some_and(|known| weir_repo::check_end(&path).is_ok_and(|seq| known <= seq));
            match report.unfinished {
                // If the catalog knows of nothing, it may be a commit all the same.
                Some(line) if is_all_there() => checked.unfinished = Some(line),
                line => checked.problems.extend(line),
            }
            report.unchecked.iter().for_each(|line| warn_line!("{}: {line}", r.name));
        }
        Err(e) => checked.problems.push(e.to_string()),
    }
    // What the catalog was told of is there no more, though nothing that is there tells.
    if checked.problems.is_empty()
        && let (Some(known), Ok(seq)) = (known, weir_repo::check_end(&path))
        && known > seq
    {
        checked.problems.push(format!("commits {} to {known} are gone", seq + 1));
    }
    Ok(Some(checked))
}

/// Visits the upstream of `r`, and replaces its damaged archive.
fn replace_damaged(pool: &mut Pool, mirror: &Mirror, r: &Repository) -> Result<Repair> {
    let base = pool.catalog.bases(&[r.id])?;
    let repair = match mirror.replace(r, base.first()) {
        Ok(Some(visited)) => Repair::Done(Box::new(visited)),
        Ok(None) => Repair::Failed("the archive is not damaged; nothing to repair".to_owned()),
        Err(failure) => Repair::Failed(failure.to_string()),
    };
    pool.catalog.look_again(&r.name, now())?;
    if let Repair::Done(visited) = &repair {
        mirror.note_base(&mut pool.catalog, r, base.first(), visited)?;
    }
    Ok(repair)
}

impl Checked {
    fn json(&self, r: &Repository) -> serde_json::Value {
        let (visited, error) = match &self.repair {
            Some(Repair::Done(visited)) => (Some(visited), None),
            Some(Repair::Failed(why)) => (None, Some(why)),
            None => (None, None),
        };
        let lost = visited.and_then(|visited| visited.lost.as_ref()).map(output::lost_json);
        let kept = visited.and_then(|visited| visited.damaged.as_ref());
        json!({ "name": r.name, "objects": self.objects, "problems": self.problems,
            "unfinished": self.unfinished, "damaged": kept, "lost": lost, "error": error })
    }

    fn print(&self, r: &Repository, quiet: bool) -> Result<()> {
        let (mut out, name) = (output::stdout(), &r.name);
        for p in &self.problems {
            writeln!(out, "{name}: {p}")?;
        }
        match &self.repair {
            Some(Repair::Done(visited)) => match (&visited.lost, &visited.damaged) {
                (Some(lost), _) => writeln!(out, "{}", output::lost_line(r, lost))?,
                (None, Some(kept)) => {
                    writeln!(out, "{name}: cloned again; the damaged archive is {}", kept.display())?;
                }
                (None, None) => writeln!(out, "{name}: builds on the archive that replaced its base")?,
            },
            Some(Repair::Failed(why)) => writeln!(out, "{name}: not repaired: {why}")?,
            None => {}
        }
        if let Some(line) = self.unfinished.as_ref().filter(|_| !quiet) {
            writeln!(out, "{name}: {line}; the next visit removes them")?;
        }
        if self.problems.is_empty() && !quiet {
            writeln!(out, "{name}: {} objects, all intact", self.objects)?;
        }
        Ok(())
    }
}

pub(crate) fn compact(pool: &mut Pool, global: &Global, pattern: Option<&str>) -> Result<ExitCode> {
    let mut failed = 0;
    for r in pool.matching(pattern)? {
        let path = pool.archive_path(&r);
        let Ok(before) = std::fs::metadata(&path) else { continue };
        match pool.rewrite(Sharing::Keep, |how| weir_repo::compact(&path, how)) {
            Ok(report) => {
                pool.catalog.set_archive(r.id, end_of(&report))?;
                if global.json {
                    output::json_line(&json!({ "name": r.name, "bytes_before": before.len(),
                            "bytes_after": report.archive_bytes }))?;
                } else if !global.quiet {
                    let (b, a) = (output::bytes(before.len()), output::bytes(report.archive_bytes));
                    writeln!(output::stdout(), "{}: {b} -> {a}", r.name)?;
                }
            }
            Err(e) => {
                failed += 1;
                warn_line!("{}: not compacted, the archive is unchanged: {e}", r.name);
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
    let repo = pool.open_repo(&r)?;
    let Some(refs) = repo.refs_at(seq).in_repo(&r.name)? else {
        return Err(Error::Message(format!(
            "'{}' has no state {seq}; run 'weir log {}' to list its states",
            r.name, r.name
        )));
    };
    let source = pool.archive_path(&r);
    let target = match &name {
        None => source.clone(),
        Some(name) => {
            check_name(name)?;
            let target = pool.store().join(format!("{name}.tar"));
            if target.exists() || pool.catalog.get(name)?.is_some() {
                return Err(Error::Message(format!("a repository named '{name}' already exists")));
            }
            match repo.base() {
                // It could not be got again: it had better be whole.
                Some(_) => drop(
                    pool.rewrite(Sharing::Whole, |how| write_anew(&repo, &target, Takes::FreePlace, how))
                        .in_repo(&r.name)?,
                ),
                None => copy_archive(&source, &target)?,
            }
            target
        }
    };
    let mut archive = ArchiveRepo::open(&target).in_repo(&r.name)?;
    if name.is_some() {
        archive.goes_on_alone(now()).in_repo(&r.name)?;
    }
    let here = archive.repo().in_repo(&r.name)?;
    check_all_there(&r, here.as_deref(), seq, &refs)?;
    let shallow = here.as_ref().map_or_else(|| Ok(Vec::new()), |here| cut_still(here)).in_repo(&r.name)?;
    let restored = NewState {
        refs: Cow::Borrowed(&refs),
        shallow: &shallow,
        time: now(),
        epoch: Epoch::NONE,
        kind: StateKind::Restored,
    };
    let report = archive.commit(None, restored).in_repo(&r.name)?;
    let shown = name.unwrap_or_else(|| r.name.clone());
    if shown != r.name {
        pool.catalog.add_copy((&shown, &r.url, &format!("{shown}.tar")), r.id, now())?;
    }
    let epoch = weir_repo::epoch_of(&target).in_repo(&r.name)?;
    pool.catalog.pin(&shown, end_of(&report), refs.list().len() as u64, epoch)?;
    if global.json {
        output::json(&json!({ "name": shown, "from": seq, "seq": report.seq }))?;
    } else if !global.quiet {
        let mut out = output::stdout();
        writeln!(out, "{shown} now has the refs of {}@{seq}, as {shown}@{}", r.name, report.seq)?;
        writeln!(out, "it is not visited until you run 'weir mirror {shown}'")?;
    }
    Ok(())
}

/// Refuses to restore what is not all in the archive any more: another may have taken its place meanwhile.
fn check_all_there(r: &Repository, here: Option<&Repo>, seq: u64, refs: &Refs) -> Result<()> {
    if let Some(missing) = refs.list().iter().find(|at| !here.is_some_and(|here| here.contains(&at.oid))) {
        let name = output::printable(&missing.name);
        return Err(Error::Message(format!(
            "'{}' no longer has what {name} was at state {seq} ({})",
            r.name, missing.oid
        )));
    }
    let Some(here) = here else { return Ok(()) };
    let missing = here.history().first_missing(refs.list().iter().map(|at| at.oid)).in_repo(&r.name)?;
    missing.map_or(Ok(()), |missing| {
        Err(Error::Message(format!("'{}' no longer has all of state {seq} ({missing})", r.name)))
    })
}

/// Where history ends, without those where it has gone on since: it may have then, too.
fn cut_still(here: &Repo) -> weir_repo::Result<Vec<Oid>> {
    let mut kept = Vec::new();
    for oid in here.history().shallow() {
        if !here.history().parents(oid)?.iter().all(|parent| here.contains(parent)) {
            kept.push(*oid);
        }
    }
    Ok(kept)
}

/// Copies the committed part of an archive to a new file.
fn copy_archive(source: &std::path::Path, target: &std::path::Path) -> Result<()> {
    let fail = |e: weir_archive::Error| Error::Message(format!("cannot copy '{}': {e}", source.display()));
    let archive = weir_archive::Archive::open(source).map_err(fail)?;
    let replacement = weir_archive::Replacement::create(target).map_err(fail)?;
    let mut file = replacement.file()?;
    file.write_all(archive.region())?;
    file.sync_all()?;
    replacement.persist(Takes::FreePlace).map_err(fail)?;
    Ok(())
}
