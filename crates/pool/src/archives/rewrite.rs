//! Rewrites archives to make them smaller.

use std::fs;

use weir_catalog::{Catalog, Repository};
use weir_repo::Sharing;

use crate::archives::store::{Store, end_of};
use crate::error::{Error, Result};

/// The lengths of an archive that was rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes now.
    pub bytes_after: u64,
}

/// Compacts the archive of `repository`. Returns `None` if there is none.
///
/// # Errors
/// If it cannot be read, or there is no room. Then the archive is unchanged.
pub fn compact(catalog: &Catalog, store: &Store, repository: &Repository) -> Result<Option<Rewritten>> {
    let path = store.archive_path(repository);
    let Ok(before) = fs::metadata(&path) else { return Ok(None) };
    let rewritten = store.rewrite(Sharing::Keep, |how| weir_repo::compact(&path, how));
    let report = rewritten.map_err(Error::NotRewritten)?;
    catalog.archives().set_archive(repository.id, end_of(&report))?;
    Ok(Some(Rewritten { bytes_before: before.len(), bytes_after: report.archive_bytes }))
}
