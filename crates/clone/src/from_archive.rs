//! Takes the packs out of an archive on this machine.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use weir_ground::FileError;
use weir_repo::Repo;

use crate::description::Description;
use crate::error::{Error, Result};
use crate::repository::Target;

/// Takes the packs of the archive at `path` into `target`. Shares their blocks where the file system can,
/// else copies them. Returns the description of the clone, and the number of bytes.
pub(crate) fn from_archive(path: &Path, target: &Target) -> Result<(Description, u64)> {
    let repo = Repo::open_archive(path).map_err(Error::repo(&path.display().to_string()))?;
    let packs = target.prepare()?;
    let mut bytes = 0;
    let mut objects = 0;
    let mut written = HashSet::new();
    for pack in repo.objects().packs() {
        let name = pack.name().rsplit('/').next().unwrap_or_default();
        // A fork may have fetched the same pack as its base.
        if !written.insert(name) {
            continue;
        }
        if !pack.crcs_match().map_err(Error::repo(&path.display().to_string()))? {
            return Err(Error::Damaged(format!("{}: an entry is not what its checksum says", pack.name())));
        }
        objects += pack.index().count();
        for (suffix, region) in [("pack", pack.data()), ("idx", pack.index().data())] {
            let path = packs.join(format!("{name}.{suffix}"));
            bytes += region.len() as u64;
            weir_repo::copy_out(region, &path).map_err(FileError::on("write", &path))?;
        }
    }
    if !repo.history().shallow().is_empty() {
        let lines: String = repo.history().shallow().iter().map(|oid| format!("{oid}\n")).collect();
        let path = target.git_dir.join("shallow");
        fs::write(&path, lines).map_err(FileError::on("write", &path))?;
    }
    Ok((Description::of(&repo, objects), bytes))
}
