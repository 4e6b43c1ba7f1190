//! Registers archives in the store that the catalog does not know.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use weir_catalog::clock::now;
use weir_catalog::{Adopted, Catalog};
use weir_ground::{FileError, NameError, check_name};
use weir_repo::{Origin, Repo, StateKind};

use crate::archives::files::{is_archive, walk};
use crate::archives::find::get;
use crate::archives::store::Store;
use crate::error::Result;

/// Archives registered at a time.
const BATCH_MAX: usize = 1000;

/// The archives in a store that the catalog does not know.
pub struct FoundArchives {
    /// Archives that can be registered.
    pub found: Vec<Adopted>,
    /// Archives that cannot.
    pub left_out: Vec<LeftOut>,
    /// Folders that cannot be read.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// An archive that cannot be registered.
pub struct LeftOut {
    /// Its path below the store.
    pub path: String,
    /// The reason.
    pub why: AdoptError,
}

/// Why an archive cannot be registered, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The name of its file is not UTF-8.
    #[error("its name is not UTF-8: rename the file")]
    NoUtf8,
    /// The name of its file is no name of a repository.
    #[error("{0}: rename the file")]
    Name(#[from] NameError),
    /// It cannot be read.
    #[error(transparent)]
    Unread(#[from] weir_repo::Error),
    /// It is a repository of another kind.
    #[error("it is no archive")]
    NoArchive,
    /// It does not record its upstream.
    #[error("it does not record its upstream")]
    NoUpstream(String),
    /// Another repository has its name.
    #[error("the pool has another repository called '{0}': rename the file, and it gets that name")]
    Taken(String),
    /// A number in it is larger than the catalog can store.
    #[error("its numbers are too large")]
    TooLarge,
}

/// Finds the archives in `store` that the catalog does not know, sorted by path.
///
/// # Errors
/// If the catalog or the store cannot be read.
pub fn find_archives(catalog: &Catalog, store: &Store) -> Result<FoundArchives> {
    let known = catalog.list()?;
    let names: HashSet<&str> = known.iter().map(|r| &*r.name).collect();
    let known: HashSet<&str> = known.iter().map(|r| &*r.path).collect();
    let mut paths = Vec::new();
    let unread = walk(&store.path, &mut |path, kind| {
        if kind.is_file() && is_archive(path) {
            paths.push(path.to_owned());
        }
    })
    .map_err(FileError::on("read", &store.path))?;
    paths.sort();
    let mut archives = FoundArchives { found: Vec::new(), left_out: Vec::new(), unread };
    for path in paths {
        let below = path.strip_prefix(&store.path).unwrap_or(&path).to_string_lossy().into_owned();
        if known.contains(&*below) {
            continue;
        }
        match read_archive(&path, &below) {
            Ok(archive) if names.contains(&*archive.name) => {
                archives.left_out.push(LeftOut { path: below, why: AdoptError::Taken(archive.name) });
            }
            Ok(archive) => archives.found.push(archive),
            Err(why) => archives.left_out.push(LeftOut { path: below, why }),
        }
    }
    Ok(archives)
}

/// Registers `archives`. Returns how many are new.
///
/// # Errors
/// If the catalog fails, or an archive cannot be read any more. Archives registered before that stay.
pub fn adopt(catalog: &Catalog, store: &Store, archives: &[Adopted]) -> Result<usize> {
    let mut added = 0;
    for batch in archives.chunks(BATCH_MAX) {
        added += catalog.archives().adopt(batch, now())?;
    }
    // Bases can be recorded once all archives are registered.
    for archive in archives {
        let repository = get(catalog, &archive.name)?;
        store.note_base(catalog, &repository)?;
    }
    Ok(added)
}

/// Reads what the catalog stores about the archive at `path`. Its path below the store is `below`.
fn read_archive(path: &Path, below: &str) -> std::result::Result<Adopted, AdoptError> {
    if below.contains(char::REPLACEMENT_CHARACTER) && path.to_str().is_none() {
        return Err(AdoptError::NoUtf8);
    }
    let name = weir_catalog::name_for(below);
    check_name(&name)?;
    let repo = Repo::open_archive(path)?;
    let archive = repo.archive().ok_or(AdoptError::NoArchive)?;
    let Some(Origin { url, forge }) = Origin::of(archive) else {
        return Err(AdoptError::NoUpstream(name));
    };
    let number = |n: u64| i64::try_from(n).map_err(|_| AdoptError::TooLarge);
    Ok(Adopted {
        name,
        url,
        path: below.to_owned(),
        seq: number(archive.state().record.seq)?,
        archive_bytes: number(archive.state().end())?,
        ref_count: number(repo.refs().list().len() as u64)?,
        epoch: weir_repo::epoch_of(path)?,
        forge,
        // `weir restore` has set it back.
        is_pinned: StateKind::of(archive) == StateKind::Restored,
    })
}
