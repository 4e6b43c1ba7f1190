//! The folder of archives.

use std::path::{Path, PathBuf};

use weir_archive::Archive;
use weir_catalog::clock::now;
use weir_catalog::{ArchiveEnd, Catalog, Repository};
use weir_ground::Seq;
use weir_mirror::Scratch;
use weir_repo::{Repo, Rewrite, Sharing, UpdateReport};

use crate::error::{Error, InRepo, Result};

/// Returns the end of the archive that `report` describes, as the catalog stores it.
pub fn end_of(report: &UpdateReport) -> ArchiveEnd {
    ArchiveEnd { seq: Seq(report.seq), bytes: report.archive_bytes }
}

/// The folder of archives, and what is needed to rewrite one of them.
#[derive(Clone)]
pub struct Store {
    /// The folder.
    pub path: PathBuf,
    /// Where packs lie while they are written.
    pub scratch: Scratch,
    /// The number of threads for one archive.
    pub threads: usize,
}

impl Store {
    /// Returns the path of the archive of `repository`, whether it exists or not.
    pub fn archive_path(&self, repository: &Repository) -> PathBuf {
        self.path.join(&repository.path)
    }

    /// Opens the archive of `repository`.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn open(&self, repository: &Repository) -> Result<Repo> {
        let path = self.archive_path(repository);
        if !path.exists() {
            let name = repository.name.clone();
            return Err(if repository.seq.is_some() {
                Error::ArchiveMissing { name, path }
            } else {
                Error::NotMirrored(name)
            });
        }
        Repo::open_archive(&path).in_repo(&repository.name)
    }

    /// Calls `write` with the settings for rewriting archives in this store.
    pub fn rewrite<T>(&self, sharing: Sharing<'_>, write: impl FnOnce(&Rewrite<'_>) -> T) -> T {
        let spill = |bytes| self.scratch.place(bytes, &self.path);
        write(&Rewrite { sharing, time: now(), threads: self.threads, spill: &spill })
    }

    /// Records the base of the archive of `repository`, or that it has none.
    pub(crate) fn note_base(&self, catalog: &Catalog, repository: &Repository) -> Result<()> {
        let path = std::path::absolute(self.archive_path(repository))?;
        if !path.exists() {
            return Ok(catalog.archives().clear_bases(&[repository.id])?);
        }
        let archive = Archive::open(&path).map_err(weir_repo::Error::from).in_repo(&repository.name)?;
        let base = weir_repo::base_path(&archive, &path).in_repo(&repository.name)?;
        let store = std::path::absolute(&self.path)?;
        let below = |base: &Path| base.strip_prefix(&store).unwrap_or(base).to_string_lossy().into_owned();
        Ok(catalog.archives().set_base_found(repository.id, base.as_deref().map(below).as_deref())?)
    }
}
