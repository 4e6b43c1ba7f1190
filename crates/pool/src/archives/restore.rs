//! Sets a repository back to an earlier state.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use weir_archive::{Archive, Replacement};
use weir_catalog::clock::now;
use weir_catalog::{Catalog, NewRepository, Repository, path_for};
use weir_git::Oid;
use weir_ground::{Epoch, check_name, printable};
use weir_repo::{ArchiveRepo, NewState, Refs, Repo, Sharing, StateKind, Takes, UpdateReport, write_anew};

use crate::archives::store::{Store, end_of};
use crate::error::{Error, InRepo, Result};

/// A repository that was set back.
#[derive(Debug)]
pub struct Restored {
    /// Its name.
    pub name: String,
    /// The number of the commit that set it back.
    pub seq: u64,
}

/// Sets `r` back to the refs of its state `seq`, or makes a copy of that state called `name`. The result is
/// not visited until the user says so.
///
/// # Errors
/// If there is no such state, its objects are not all there any more, or the name is taken. Then nothing is
/// changed, but a copy may be left in the store.
pub fn restore(
    catalog: &Catalog,
    store: &Store,
    r: &Repository,
    seq: u64,
    name: Option<&str>,
) -> Result<Restored> {
    let repo = store.open(r)?;
    let Some(refs) = repo.refs_at(seq).in_repo(&r.name)? else {
        return Err(Error::NoState { name: r.name.clone(), state: seq.to_string() });
    };
    let source = store.archive_path(r);
    let target = match name {
        None => source.clone(),
        Some(name) => {
            check_name(name).map_err(|e| Error::Refused(e.to_string()))?;
            let target = store.path.join(path_for(name));
            if target.exists() || catalog.get(name)?.is_some() {
                return Err(Error::Refused(format!("a repository named '{name}' already exists")));
            }
            match repo.base() {
                // An old state cannot be fetched again, so the copy must not depend on a base.
                Some(_) => drop(
                    store
                        .rewrite(Sharing::Whole, |how| write_anew(&repo, &target, Takes::FreePlace, how))
                        .in_repo(&r.name)?,
                ),
                None => copy_archive(&source, &target)?,
            }
            target
        }
    };
    let report = set_back(r, seq, &refs, &target, name.is_some()).inspect_err(|_| {
        if name.is_some() {
            // Otherwise 'weir adopt' would register the incomplete copy.
            let _ = std::fs::remove_file(&target);
        }
    })?;
    let shown = name.unwrap_or(&r.name);
    if shown != r.name {
        let copy = NewRepository { name: shown.to_owned(), url: r.url.clone(), path: path_for(shown) };
        catalog.add_copy(&copy, r.id, now())?;
    }
    let epoch = weir_repo::epoch_of(&target).in_repo(&r.name)?;
    catalog.archives().pin(shown, end_of(&report), refs.list().len() as u64, epoch)?;
    Ok(Restored { name: shown.to_owned(), seq: report.seq })
}

/// Commits `refs`, those of state `seq` of `r`, to the archive at `target`, which may be a copy of it.
fn set_back(r: &Repository, seq: u64, refs: &Refs, target: &Path, is_copy: bool) -> Result<UpdateReport> {
    let mut archive = ArchiveRepo::open(target).in_repo(&r.name)?;
    if is_copy {
        archive.goes_on_alone(now()).in_repo(&r.name)?;
    }
    let here = archive.repo().in_repo(&r.name)?;
    check_all_there(r, here.as_deref(), seq, refs)?;
    let shallow = here.as_ref().map_or_else(|| Ok(Vec::new()), |here| cut_still(here)).in_repo(&r.name)?;
    let restored = NewState {
        refs: Cow::Borrowed(refs),
        shallow: &shallow,
        time: now(),
        epoch: Epoch::NONE,
        kind: StateKind::Restored,
    };
    archive.commit(None, restored).in_repo(&r.name)
}

/// Refuses to restore a state that the archive no longer holds completely: a new clone may have replaced it.
fn check_all_there(r: &Repository, here: Option<&Repo>, seq: u64, refs: &Refs) -> Result<()> {
    if let Some(missing) = refs.list().iter().find(|at| !here.is_some_and(|here| here.contains(&at.oid))) {
        let name = printable(&String::from_utf8_lossy(&missing.name));
        return Err(Error::Refused(format!(
            "'{}' no longer has what {name} was at state {seq} ({})",
            r.name, missing.oid
        )));
    }
    let Some(here) = here else { return Ok(()) };
    let missing = here.history().first_missing(refs.list().iter().map(|at| at.oid)).in_repo(&r.name)?;
    missing.map_or(Ok(()), |missing| {
        Err(Error::Refused(format!("'{}' no longer has all of state {seq} ({missing})", r.name)))
    })
}

/// Returns the commits where history ends, except those whose parents have been fetched since.
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
fn copy_archive(source: &Path, target: &Path) -> Result<()> {
    let fail = |e: weir_archive::Error| Error::Refused(format!("cannot copy '{}': {e}", source.display()));
    let archive = Archive::open(source).map_err(fail)?;
    let replacement = Replacement::create(target).map_err(fail)?;
    let mut file = replacement.file()?;
    file.write_all(archive.region())?;
    file.sync_all()?;
    replacement.persist(Takes::FreePlace).map_err(fail)?;
    Ok(())
}
