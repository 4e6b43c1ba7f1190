//! Opens archives that others build on, and moves an archive from its base to another.

use std::path::Path;
use std::sync::Arc;

use weir_archive::{Archive, Writer};
use weir_ground::{Epoch, Timestamp};

use crate::error::{Error, Result};
use crate::reach::steps::Steps;
use crate::reach::walk::visit_reachable;
use crate::repo::keys::{ALTERNATES, BASE_KEY, ID_KEY};
use crate::repo::repository::Repo;
use crate::update::archive_repo::ArchiveRepo;
use crate::update::link::{Link, new_id};

/// Opens the archive at `path` for others to build on. Gives it an id if it has none; for that it waits for
/// other writers.
///
/// # Errors
/// If the archive cannot be opened, or the disk fails.
pub fn open_as_base(path: &Path, time: Timestamp) -> Result<Arc<Repo>> {
    let repo = Repo::open_archive(path)?;
    if repo.archive.as_ref().is_some_and(|a| a.attribute(ID_KEY).is_some()) {
        return Ok(Arc::new(repo));
    }
    let mut archive = ArchiveRepo::open(path)?;
    archive.commit_members(&[], &[(ID_KEY.to_owned(), new_id())], time)?;
    archive.repo()?.map_or_else(|| Err(Error::NotFound(format!("'{}' is empty", path.display()))), Ok)
}

/// Lets the archive at `path` build on `base` instead of its present base, if `base` has all it needs:
/// everything that its refs lead to, or led to once. Returns whether it does.
///
/// # Errors
/// If one of the archives cannot be read or written.
pub fn relink(path: &Path, base: &Arc<Repo>, time: Timestamp) -> Result<bool> {
    let mut writer = Writer::open(weir_archive::lock_existing(path)?)?;
    let state = writer.state().cloned().ok_or(weir_archive::Error::NoCommit)?;
    let link = Link::new(path, base)?;
    let archive = Archive::with_state(Arc::new(writer.storage().0.try_clone()?), state)?;
    let repo = Repo::from_archive_on(archive, path, Some(base.clone()))?;
    let tips = repo.tips_ever()?;
    let mut is_whole = true;
    visit_reachable(
        repo.history(),
        |oid, _| base.contains(oid),
        tips,
        &mut Steps::unbounded(),
        |_, found, _| is_whole &= found.is_some(),
    )?;
    if is_whole {
        let mut group = writer.begin();
        group.append(ALTERNATES, link.line.as_bytes())?;
        group.set(BASE_KEY, link.value);
        group.commit(time, Epoch::NONE)?;
    }
    Ok(is_whole)
}
