//! An archive as a file: where it ends, under which lease it was written, and its lock.

use std::path::Path;

use weir_archive::{Archive, LockedFile, TailKind, lock_existing};
use weir_ground::Epoch;

use crate::error::Result;
use crate::repo::keys::EPOCH_KEY;

/// Returns the number of the last commit of the archive at `path`. Checks for damage as far as that needs no
/// further reading.
///
/// # Errors
/// If the archive cannot be opened, or commits are damaged that its end mark records
/// ([`crate::Error::is_torn`]).
pub fn check_end(path: &Path) -> Result<u64> {
    Ok(Archive::check_end(path)?)
}

/// Returns the highest number of a lease under which something was written to the archive at `path`; 0 for
/// none.
///
/// # Errors
/// If the archive cannot be opened.
pub fn epoch_of(path: &Path) -> Result<Epoch> {
    let archive = Archive::open(path)?;
    Ok(archive.attribute(EPOCH_KEY).and_then(|epoch| epoch.parse().ok()).unwrap_or(Epoch::NONE))
}

/// Returns whether the bytes behind the last commit that holds, in the archive at `path`, may be a commit,
/// too.
pub fn has_doubtful_tail(path: &Path) -> bool {
    let archive = Archive::open(path).ok();
    archive.and_then(|archive| archive.tail().copied()).is_some_and(|tail| tail.kind != TailKind::Unfinished)
}

/// Locks the archive at `path`: no other process writes to it, or replaces it, until the result is dropped.
///
/// # Errors
/// If the archive cannot be opened.
pub fn lock_archive(path: &Path) -> Result<LockedFile> {
    Ok(lock_existing(path)?)
}
