//! An archive as a file: where it ends, under which lease it was written, and its lock.

use std::path::Path;

use weir_archive::{Archive, LockedFile, TailKind, lock_existing};
use weir_ground::Epoch;

use crate::error::Result;
use crate::repo::keys::EPOCH_KEY;

/// Number of the last commit of the archive at `path`, which is held against what was written, as far as that
/// can be told without reading more than that.
///
/// # Errors
/// If it cannot be opened, or commits are damaged that somebody was told of ([`crate::Error::is_torn`]).
pub fn check_end(path: &Path) -> Result<u64> {
    Ok(Archive::check_end(path)?)
}

/// The highest number of a lease under which something was written to the archive at `path`; 0 for none.
///
/// # Errors
/// If it cannot be opened.
pub fn epoch_of(path: &Path) -> Result<Epoch> {
    let archive = Archive::open(path)?;
    Ok(archive.attribute(EPOCH_KEY).and_then(|epoch| epoch.parse().ok()).unwrap_or(Epoch::NONE))
}

/// Whether something lies behind the last commit of the archive at `path` that holds which may be a commit,
/// too.
pub fn has_doubtful_tail(path: &Path) -> bool {
    let archive = Archive::open(path).ok();
    archive.and_then(|archive| archive.tail().copied()).is_some_and(|tail| tail.kind != TailKind::Unfinished)
}

/// Locks the archive at `path`: nobody else writes to it, or replaces it, while what is returned lives.
///
/// # Errors
/// If it cannot be opened.
pub fn lock_archive(path: &Path) -> Result<LockedFile> {
    Ok(lock_existing(path)?)
}
