//! The contents of an archive: its head, packs and Git LFS objects.

use std::sync::Arc;

use serde::Serialize;
use weir_catalog::Repository;
use weir_ground::printable;
use weir_repo::{Head, Pack, Refs, Repo};

use crate::error::Result;
use crate::running::Pool;

/// The contents of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchiveFacts {
    /// The ref that HEAD names, or the commit, if HEAD is detached.
    pub head: String,
    /// The hash that names objects.
    pub object_format: &'static str,
    /// The number of objects.
    pub objects: u64,
    /// The repository that the archive builds on, or the path of its archive.
    pub base: Option<String>,
    /// Whether the upstream is a shallow clone.
    #[serde(rename = "shallow")]
    pub is_shallow: bool,
    /// Git LFS objects.
    pub lfs: ArchiveLfs,
    /// The clones that weir sends unchanged.
    pub whole_clone: StoredClones,
    /// The packs that the archive itself holds.
    pub packs: Vec<PackFacts>,
}

/// The Git LFS objects of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ArchiveLfs {
    /// Their number.
    pub objects: u64,
    /// The bytes that they have together.
    pub bytes: u64,
}

/// The clones that weir sends unchanged from an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StoredClones {
    /// One of branches and tags.
    pub heads_and_tags: bool,
    /// One of all refs.
    pub all: bool,
}

/// A pack of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackFacts {
    /// The checksum that names it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The number of its objects.
    pub objects: u64,
    /// Where it begins in the archive.
    pub offset: u64,
    /// The kind of clone for which weir sends it unchanged, if there is one.
    pub class: Option<&'static str>,
    /// The number of objects that weir sends then.
    pub sent_objects: Option<u64>,
}

impl ArchiveFacts {
    /// Reads the archive of `r`.
    ///
    /// # Errors
    /// If the catalog fails, or the archive cannot be read.
    pub fn read(pool: &Pool, r: &Repository) -> Result<ArchiveFacts> {
        let repo = pool.open_repo(r)?;
        let base = repo.base().map(|base| base.path().to_owned());
        let store = std::path::absolute(&pool.store.path)?;
        let known = pool.catalog.archives().bases(&[r.id])?.pop();
        let known = known.filter(|known| base.as_deref() == Some(&store.join(&known.path)));
        let (lfs_objects, lfs_bytes) = repo.lfs_count();
        let packs = PackFacts::read(&repo);
        Ok(ArchiveFacts {
            head: head_text(repo.refs()),
            object_format: repo.hash().name(),
            objects: packs.iter().map(|pack| pack.objects).sum(),
            base: known.map(|known| known.name).or_else(|| base.map(|path| path.display().to_string())),
            is_shallow: !repo.history().shallow().is_empty(),
            lfs: ArchiveLfs { objects: lfs_objects, bytes: lfs_bytes },
            whole_clone: StoredClones {
                heads_and_tags: repo.bodies().heads.is_some(),
                all: repo.bodies().all.is_some(),
            },
            packs,
        })
    }
}

impl PackFacts {
    /// Returns the packs that the archive itself holds.
    fn read(repo: &Repo) -> Vec<PackFacts> {
        let of_base = repo.objects().packs().len() - repo.own_packs().len();
        let read = |(n, p): (usize, &Arc<Pack>)| {
            let body = repo.bodies().list.iter().find(|body| body.pack as usize == n);
            PackFacts {
                name: p.name().to_string(),
                bytes: p.data().len() as u64,
                objects: p.index().count().into(),
                offset: p.data().file_offset(),
                class: body.map(|body| body.class.name()),
                sent_objects: body.map(|body| body.sent_count.into()),
            }
        };
        (of_base..).zip(repo.own_packs()).map(read).collect()
    }
}

fn head_text(refs: &Refs) -> String {
    match &refs.head {
        Head::Symbolic(name) => {
            let unborn = if refs.head_oid().is_none() { " (unborn)" } else { "" };
            printable(&String::from_utf8_lossy(name)) + unborn
        }
        Head::Detached(oid) => format!("{oid} (detached)"),
    }
}
