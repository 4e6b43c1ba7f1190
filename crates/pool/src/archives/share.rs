//! Lets archives build on others.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use weir_catalog::clock::now;
use weir_catalog::{AccessNames, Base, Catalog, Repository};
use weir_repo::{Repo, Sharing, open_as_base};

use crate::archives::rewrite::Rewritten;
use crate::archives::store::{Store, end_of};
use crate::error::{Error, InRepo, Result};

/// The least percentage of objects in common. With fewer, an archive stays whole.
const COMMON_PERCENT_MIN: u64 = 10;
const _: () = assert!(0 < COMMON_PERCENT_MIN && COMMON_PERCENT_MIN <= 100, "it is a percentage");

/// The result of sharing one archive.
#[derive(Debug)]
pub enum ShareOutcome {
    /// It builds on the base now.
    Done(Rewritten),
    /// It would build on the base: this was a dry run.
    Would {
        /// Objects that the base has, too.
        common: u64,
        /// All objects.
        objects: u64,
    },
    /// It built on the base before.
    Already,
    /// It is not mirrored yet: its first clone will build on the base.
    Later,
}

/// Returns the base that each of `repositories` should build on, by the repository's id: `reference` if there
/// is one, else the base that the user has set, else the root of its fork network.
///
/// # Errors
/// If the catalog fails.
pub fn bases_for(
    catalog: &Catalog,
    repositories: &[Repository],
    reference: Option<&Repository>,
    access: &AccessNames,
) -> Result<HashMap<i64, Base>> {
    let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
    let bases: Vec<Base> = match reference {
        Some(base) => ids.iter().filter(|id| **id != base.id).map(|&id| Base::of(id, base)).collect(),
        None => [catalog.archives().bases(&ids)?, catalog.archives().bases_by_forge(&ids, access)?].concat(),
    };
    Ok(bases.into_iter().map(|base| (base.id, base)).collect())
}

/// Lets archives build on others, and keeps the last base open for the next archive.
pub struct Sharer<'a> {
    catalog: &'a Catalog,
    store: &'a Store,
    dry_run: bool,
    open: Option<(i64, Arc<Repo>)>,
}

impl<'a> Sharer<'a> {
    /// Returns a sharer for the archives in `store`. In a dry run, it changes nothing.
    pub fn new(catalog: &'a Catalog, store: &'a Store, dry_run: bool) -> Sharer<'a> {
        Sharer { catalog, store, dry_run, open: None }
    }

    /// Lets the archive of `r` build on the archive of `base`.
    ///
    /// # Errors
    /// If the archive builds on another, the two have too little in common, or one of them cannot be read.
    /// Then the archive is unchanged.
    pub fn share(&mut self, r: &Repository, base: &Base) -> Result<ShareOutcome> {
        let path = std::path::absolute(self.store.path.join(&base.path))?;
        if !self.store.archive_path(r).exists() {
            self.set_base(r, base)?;
            return Ok(ShareOutcome::Later);
        }
        let repo = self.store.open(r)?;
        match repo.base() {
            Some(there) if there.path() == path => {
                self.set_base(r, base)?;
                return Ok(ShareOutcome::Already);
            }
            Some(there) => {
                let base = there.path().to_owned();
                return Err(Error::HasBase { name: r.name.clone(), base });
            }
            None => {}
        }
        let on = self.open_base(base)?;
        let (common, objects) = in_common(&repo, &on);
        if self.dry_run {
            return Ok(ShareOutcome::Would { common, objects });
        }
        if common * 100 < objects * COMMON_PERCENT_MIN {
            return Err(Error::Refused(format!(
                "only {common} of its {objects} objects are in '{}'",
                base.name
            )));
        }
        drop(repo);
        self.build_on(r, base, &on)
    }

    /// Records in the catalog that `r` builds on `base`.
    fn set_base(&mut self, r: &Repository, base: &Base) -> Result<()> {
        if !self.dry_run {
            self.catalog.archives().set_base(r.id, base.base)?;
        }
        Ok(())
    }

    fn open_base(&mut self, base: &Base) -> Result<Arc<Repo>> {
        if let Some((_, on)) = self.open.as_ref().filter(|(of, _)| *of == base.base) {
            return Ok(on.clone());
        }
        let path = std::path::absolute(self.store.path.join(&base.path))?;
        if !path.exists() {
            return Err(Error::NotMirrored(base.name.clone()));
        }
        let on = match self.dry_run {
            true => Repo::open_archive(&path).map(Arc::new),
            false => open_as_base(&path, now()),
        };
        let on = on.in_repo(&base.name)?;
        self.open = Some((base.base, on.clone()));
        Ok(on)
    }

    /// Rewrites the archive of `r` without the objects in `on`.
    fn build_on(&mut self, r: &Repository, base: &Base, on: &Arc<Repo>) -> Result<ShareOutcome> {
        // The catalog comes first: from now on, no process deletes the base.
        self.catalog.archives().set_base(r.id, base.base)?;
        let archive = self.store.archive_path(r);
        let bytes_before = fs::metadata(&archive)?.len();
        let rewritten = self.store.rewrite(Sharing::On(on), |how| weir_repo::compact(&archive, how));
        if rewritten.is_err() {
            // Another archive may have replaced the base by now.
            self.open = None;
        }
        // A visit that began before may have recorded the archive as whole.
        self.store.note_base(self.catalog, r)?;
        let report = rewritten.map_err(|e| Error::Refused(e.to_string()))?;
        self.catalog.archives().set_archive(r.id, end_of(&report))?;
        Ok(ShareOutcome::Done(Rewritten { bytes_before, bytes_after: report.archive_bytes }))
    }
}

/// Counts the objects in the packs of `repo` that are also in `on`, and all of them.
fn in_common(repo: &Repo, on: &Repo) -> (u64, u64) {
    let (mut common, mut all) = (0, 0);
    for pack in repo.own_packs() {
        let index = pack.index();
        all += u64::from(index.count());
        common += (0..index.count()).filter(|&n| on.contains(&index.oid(n))).count() as u64;
    }
    (common, all)
}

/// Makes the archive of `r` independent of its base. Returns `None` if it has no base, or there is no
/// archive.
///
/// # Errors
/// If the archive or its base cannot be read, or there is no room. Then the archive is unchanged.
pub fn dissociate(catalog: &Catalog, store: &Store, r: &Repository) -> Result<Option<Rewritten>> {
    let archive = store.archive_path(r);
    let mut rewritten = None;
    if archive.exists() && store.open(r)?.base().is_some() {
        let bytes_before = fs::metadata(&archive)?.len();
        let report =
            store.rewrite(Sharing::Whole, |how| weir_repo::compact(&archive, how)).in_repo(&r.name)?;
        catalog.archives().set_archive(r.id, end_of(&report))?;
        rewritten = Some(Rewritten { bytes_before, bytes_after: report.archive_bytes });
    }
    // Only now: until here, the archive needed its base.
    store.note_base(catalog, r)?;
    Ok(rewritten)
}
