//! Checks archives against their hashes and the catalog, and replaces damaged ones.

use std::path::Path;

use weir_catalog::clock::now;
use weir_catalog::{Catalog, Repository};
use weir_ground::FileError;
use weir_mirror::{Mirror, Visited};

use crate::archives::store::Store;
use crate::error::{InRepo, Result};

/// The result of checking a repository.
#[derive(Debug, Default)]
pub struct Checked {
    /// Whether its archive exists.
    pub is_there: bool,
    /// The number of objects read.
    pub objects: u64,
    /// Damage and missing data, a line each.
    pub problems: Vec<String>,
    /// Checks that could not be made, a line each.
    pub unchecked: Vec<String>,
    /// Data after the last commit, which is normal after a kill.
    pub unfinished: Option<String>,
}

/// The result of a repair.
pub enum Repair {
    /// A visit replaced the archive.
    Done(Box<Visited>),
    /// The archive builds on the one that replaced its base.
    Relinked,
    /// The archive is unchanged, for this reason.
    Failed(String),
}

/// Checks the archive of `r`. Returns `None` if it has not been mirrored yet.
///
/// # Errors
/// If the store cannot be read. Damage is not an error.
pub fn check(store: &Store, r: &Repository) -> Result<Option<Checked>> {
    let path = store.archive_path(r);
    let is_there = path.try_exists().map_err(FileError::on("look at", &path))?;
    if !is_there && r.seq.is_none() {
        return Ok(None);
    }
    let mut checked = Checked { is_there, ..Checked::default() };
    if !is_there {
        checked.problems.push("the archive is missing; the next visit clones it again".to_owned());
        return Ok(Some(checked));
    }
    let known = r.seq.and_then(|n| u64::try_from(n).ok());
    match store.open(r).and_then(|repo| weir_repo::fsck(&repo).in_repo(&r.name)) {
        Ok(report) => {
            checked.objects = report.objects;
            checked.problems = report.problems;
            checked.unchecked = report.unchecked;
            match report.unfinished {
                // If the catalog knows no commit, the data may be one after all.
                Some(line) if known.is_some_and(|known| ends_at(&path).is_some_and(|seq| known <= seq)) => {
                    checked.unfinished = Some(line);
                }
                line => checked.problems.extend(line),
            }
        }
        Err(e) => checked.problems.push(e.to_string()),
    }
    // Commits that the catalog knows of may be gone, though the archive itself does not show it.
    if checked.problems.is_empty()
        && let (Some(known), Some(seq)) = (known, ends_at(&path))
        && known > seq
    {
        checked.problems.push(format!("commits {} to {known} are gone", seq + 1));
    }
    Ok(Some(checked))
}

/// Returns the number of the last commit of the archive at `path`.
fn ends_at(path: &Path) -> Option<u64> {
    weir_repo::check_end(path).ok()
}

/// Records the problems in the catalog, so that a visit replaces the archive.
///
/// # Errors
/// If the catalog fails.
pub fn note(catalog: &Catalog, r: &Repository, checked: &Checked) -> Result<()> {
    match checked.problems.first() {
        Some(first) if checked.is_there => catalog.archives().set_damaged(r.id, first, now())?,
        Some(_) => catalog.visits().look_again(&r.name, now())?,
        None => {}
    }
    Ok(())
}

/// Visits the upstream of `r`, and replaces its damaged archive.
///
/// # Errors
/// If the catalog fails.
pub fn repair(catalog: &Catalog, mirror: &Mirror, r: &Repository) -> Result<Repair> {
    let base = catalog.archives().bases(&[r.id])?;
    // That needs no upstream.
    let repair = if mirror.relink(r, base.first()) {
        Repair::Relinked
    } else {
        match mirror.replace(r, base.first()) {
            Ok(Some(visited)) => Repair::Done(Box::new(visited)),
            Ok(None) => Repair::Failed("the archive is not damaged; nothing to repair".to_owned()),
            Err(failure) => Repair::Failed(failure.to_string()),
        }
    };
    catalog.visits().look_again(&r.name, now())?;
    if let Repair::Done(visited) = &repair {
        mirror.note_base(catalog, r, base.first(), visited)?;
    }
    Ok(repair)
}
