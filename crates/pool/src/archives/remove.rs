//! Removes repositories and their archives.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use weir_archive::LockedFile;
use weir_catalog::clock::now;
use weir_catalog::{Base, Catalog, Repository};
use weir_ground::{FileError, Timestamp, name_matches};

use crate::archives::store::Store;
use crate::error::{Error, Result};

/// Orders `repositories` so that forks come before their bases, and checks that all of them can be removed:
/// none is the base of a repository that stays, an archive that stays keeps its base, and no archive that is
/// to be deleted is only being made.
///
/// # Errors
/// If one of them cannot be removed.
pub fn check_removal(
    catalog: &Catalog,
    store: &Store,
    repositories: &mut [Repository],
    deletes: bool,
) -> Result<()> {
    let ids: HashSet<i64> = repositories.iter().map(|r| r.id).collect();
    for r in repositories.iter() {
        let needing = catalog.archives().built_on(r.id)?;
        if let Some(first) = needing.iter().find(|fork| !ids.contains(&fork.id)) {
            let (count, first) = (needing.len() as i64, first.name.clone());
            return Err(weir_catalog::Error::BuiltOn { count, first }.into());
        }
    }
    let forks = catalog.archives().bases(&ids.iter().copied().collect::<Vec<_>>())?;
    let has_archive =
        |fork: &&Base| repositories.iter().any(|r| r.id == fork.id && store.archive_path(r).exists());
    if let Some(fork) = forks.iter().find(|fork| !deletes && has_archive(fork)) {
        let name = repositories.iter().find(|r| r.id == fork.id).map_or_else(String::new, |r| r.name.clone());
        return Err(Error::NeedsBase { name, base: fork.name.clone() });
    }
    // There is nothing to lock yet: the archive would be there afterwards, and known to nobody.
    for r in repositories.iter().filter(|r| deletes && !store.archive_path(r).exists()) {
        if catalog.visits().is_under_way(r.id, now())? {
            return Err(Error::Refused(format!(
                "'{}' is being mirrored for the first time: delete it when that has ended",
                r.name
            )));
        }
    }
    repositories.sort_by_key(|r| !forks.iter().any(|fork| fork.id == r.id));
    Ok(())
}

/// Removes a repository from the catalog, and deletes its archive if `deletes` says so. Returns whether an
/// archive was deleted.
///
/// # Errors
/// If the catalog fails, or the archive cannot be deleted. One that cannot be locked stays registered.
pub fn forget(catalog: &Catalog, store: &Store, r: &Repository, deletes: bool) -> Result<bool> {
    let path = store.archive_path(r);
    // Before the catalog forgets it: an archive that cannot be written cannot be deleted either.
    let lock = if deletes { lock(&path)? } else { None };
    catalog.remove(&r.name)?;
    if lock.is_none() {
        return Ok(false);
    }
    delete_archives(&path)?;
    drop(lock);
    Ok(true)
}

/// Returns the repositories that have been gone upstream since `before`, with their forges: those that match
/// any of `patterns`, or all, without patterns. Forks come before their bases.
///
/// # Errors
/// If the catalog fails.
pub fn gone_since(
    catalog: &Catalog,
    before: Timestamp,
    patterns: &[String],
) -> Result<Vec<(Repository, Option<String>)>> {
    let mut gone = catalog.listings().gone_since(before)?;
    let is_meant = |name: &str| patterns.is_empty() || patterns.iter().any(|p| name_matches(p, name));
    gone.retain(|(r, _)| is_meant(&r.name));
    let forks = catalog.archives().bases(&gone.iter().map(|(r, _)| r.id).collect::<Vec<_>>())?;
    gone.sort_by_key(|(r, _)| !forks.iter().any(|fork| fork.id == r.id));
    Ok(gone)
}

/// Checks that `gone` is at most `percent` of the repositories of each forge. A forge that was listed in
/// part, or another one under its name, must not cost the copies.
///
/// # Errors
/// If more are gone.
pub fn check_purge(catalog: &Catalog, gone: &[(Repository, Option<String>)], percent: u8) -> Result<()> {
    for (forge, known) in catalog.status().counts_by_forge()? {
        let of_it = gone.iter().filter(|(_, of)| *of == forge).count();
        if of_it as u64 * 100 > known.unsigned_abs() * u64::from(percent) {
            let whose =
                forge.map_or("those that no forge lists".to_owned(), |forge| format!("forge '{forge}'"));
            return Err(Error::TooManyGone { gone: of_it, known, whose, percent });
        }
    }
    Ok(())
}

/// The result of purging one repository.
#[derive(Debug, PartialEq, Eq)]
pub enum PurgeOutcome {
    /// It was deleted with an archive of this many bytes, or would be in a dry run.
    Purged(u64),
    /// This many archives that stay build on it.
    Needed(usize),
    /// It is there again.
    Back,
}

/// Deletes `r` and its archive, if it is still gone since `before` and no archive that stays needs it. A dry
/// run deletes nothing, and counts the repositories in `going` as deleted.
///
/// # Errors
/// If the catalog fails, or the archive cannot be deleted.
pub fn purge_one(
    catalog: &Catalog,
    store: &Store,
    r: &Repository,
    before: Timestamp,
    going: Option<&HashSet<i64>>,
) -> Result<PurgeOutcome> {
    let path = store.archive_path(r);
    let is_staying = |fork: &Repository| going.is_none_or(|going| !going.contains(&fork.id));
    let staying = catalog.archives().built_on(r.id)?.iter().filter(|fork| is_staying(fork)).count();
    if staying > 0 {
        return Ok(PurgeOutcome::Needed(staying));
    }
    let bytes = fs::metadata(&path).map_or(0, |m| m.len());
    if going.is_none() {
        // Waits for a visit that writes to the archive, and that may have found the repository again.
        let lock = lock(&path)?;
        if !catalog.listings().remove_gone(r.id, before)? {
            return Ok(PurgeOutcome::Back);
        }
        delete_archives(&path)?;
        drop(lock);
    }
    Ok(PurgeOutcome::Purged(bytes))
}

/// Locks the archive at `path`, if there is one, against writers. Readers are not blocked.
fn lock(path: &Path) -> Result<Option<LockedFile>> {
    if !path.try_exists().map_err(FileError::on("look at", path))? {
        return Ok(None);
    }
    let locked = weir_archive::lock_existing(path);
    Ok(Some(locked.map_err(|e| Error::Refused(format!("cannot lock '{}': {e}", path.display())))?))
}

/// Deletes the archive at `path`, and the damaged parts that were kept of it.
fn delete_archives(path: &Path) -> Result<()> {
    for path in std::iter::once(path.to_owned())
        .chain(weir_mirror::places_aside(path))
        .chain(weir_repo::torn_places(path))
    {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(FileError::on("delete", &path)(e).into());
            }
            _ => {}
        }
    }
    Ok(())
}
