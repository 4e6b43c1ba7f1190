//! Opens a repository in an archive, with its base.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use weir_archive::Archive;

use crate::error::{Result, corrupt};
use crate::objects::lookup::Objects;
use crate::objects::pack::Pack;
use crate::reach::history::{Derived, History, parse_shallow};
use crate::refs::config::GitConfig;
use crate::refs::states::refs_in;
use crate::repo::base::{base_path, check_base, unusable};
use crate::repo::bodies::Bodies;
use crate::repo::keys::{ALTERNATES, UNFINISHED_KEY};
use crate::repo::repository::Repo;

impl Repo {
    /// Opens the archive at `path`.
    ///
    /// # Errors
    /// If it is not an archive of a repository, or is damaged.
    pub fn open_archive(path: &Path) -> Result<Repo> {
        Repo::from_archive(Archive::open(path)?, path)
    }

    /// Opens the repository in an open archive, as of the commit at which the archive was opened.
    ///
    /// # Errors
    /// As [`Repo::open_archive`].
    pub fn from_archive(archive: Archive, path: &Path) -> Result<Repo> {
        // Without its refs the repository would seem to be empty.
        if archive.attribute(UNFINISHED_KEY).is_some() {
            return corrupt(
                path.display().to_string(),
                "its last commit, with the refs, is damaged: only objects are left",
            );
        }
        Repo::from_unfinished(archive, path)
    }

    /// Opens the repository in an open archive that may hold objects and no refs.
    pub(crate) fn from_unfinished(archive: Archive, path: &Path) -> Result<Repo> {
        let base = open_base(&archive, path)?;
        Repo::from_archive_on(archive, path, base)
    }

    /// Opens the repository in an open archive, on `base`, whatever base the archive names.
    pub(crate) fn from_archive_on(archive: Archive, path: &Path, base: Option<Arc<Repo>>) -> Result<Repo> {
        let hash = GitConfig::parse(&archive.read("config")?.unwrap_or_default())?.hash_of_format()?;
        if let Some(base) = base.as_ref().filter(|base| base.hash() != hash) {
            return corrupt(ALTERNATES, format!("'{}' has another object format", base.path().display()));
        }
        let mut packs = base.as_ref().map_or_else(Vec::new, |base| base.objects().packs.clone());
        let of_base = packs.len();
        let state = archive.state();
        let mut names: Vec<(&str, u64)> = state
            .members
            .iter()
            .filter_map(|(name, m)| {
                Some((name.strip_prefix("objects/pack/")?.strip_suffix(".pack")?, m.offset))
            })
            .collect();
        // In the order they were appended: a body never needs a later one.
        names.sort_by_key(|n| n.1);
        for (short, _) in names {
            let name = format!("objects/pack/{short}");
            let part = |suffix: &str| {
                let member = format!("{name}{suffix}");
                archive.member(&member).map_or_else(|| corrupt(&member, "it is missing"), Ok)
            };
            let pack = Pack::open(&name, part(".pack")?, part(".idx")?, hash)?;
            packs.push(Arc::new(pack.with_reverse_index(archive.member(&format!("{name}.rev")))));
        }
        let refs = refs_in(&archive, hash)?.unwrap_or_default();
        let shallow = parse_shallow(hash, &archive.read("shallow")?.unwrap_or_default())?;
        let bodies = Bodies::parse(hash, &archive, &packs, of_base)?;
        let derived = Derived {
            graph: archive.member("objects/info/commit-graph"),
            // In a directory any pack may have bitmaps. They are read only from archives.
            bitmaps: packs.first().and_then(|pack| archive.member(&format!("{}.bitmap", pack.name()))),
        };
        let of_base = base.as_ref().map(|base| base.shared_history());
        let history = History::new(Objects::of_packs(hash, packs), shallow, derived, of_base);
        let mut repo = Repo::new(history, path);
        (repo.refs, repo.bodies, repo.archive, repo.base) = (refs, bodies, Some(archive), base);
        Ok(repo)
    }
}

/// Opens the base of the archive at `path`, if it names one.
///
/// # Errors
/// If the base is missing, is another than it was, or cannot be opened.
fn open_base(archive: &Archive, path: &Path) -> Result<Option<Arc<Repo>>> {
    let Some(base_path) = base_path(archive, path)? else { return Ok(None) };
    let base = check_base(archive, path, &base_path)?;
    let m = base.file().metadata()?;
    let key = (m.dev(), m.ino(), base.state().record.seq, base.state().end());
    if let Some(base) =
        open_bases().get(&key).and_then(Weak::upgrade).filter(|base| base.check_reads().is_ok())
    {
        return Ok(Some(base));
    }
    let base = Arc::new(Repo::from_archive(base, &base_path).map_err(|e| unusable(&base_path, e))?);
    let mut open = open_bases();
    open.retain(|_, base| base.strong_count() > 0);
    open.insert(key, Arc::downgrade(&base));
    Ok(Some(base))
}

/// The open bases, by device and inode of their files, last commit and committed length: forks of one base
/// share it.
type OpenBases = HashMap<(u64, u64, u64, u64), Weak<Repo>>;

fn open_bases() -> MutexGuard<'static, OpenBases> {
    static OPEN: LazyLock<Mutex<OpenBases>> = LazyLock::new(Mutex::default);
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
