//! A new clone in the place of a damaged archive, which is kept.

use std::path::{Path, PathBuf};

use weir_repo::{ArchiveRepo, Refs, RefsChange, Repo};
use weir_transport::Url;

use crate::visit::{
    DAMAGED, Failure, Known, NOT_DAMAGED, VisitOptions, Visited, build_on_base, list, snapshot, snapshot_id, take_in, take_in_lfs, update,
};

/// Damaged archives of one name that are kept. A disk that damages more than that is to be looked at first.
const KEPT_MAX: u32 = 9;

/// Whether the archive at `path` cannot be opened for what is in it, or not all of it is as it was written. Reads all of it.
fn is_damaged(path: &Path) -> bool {
    match Repo::open_archive(path).and_then(|repo| weir_repo::fsck(&repo)) {
        Ok(report) => !report.problems.is_empty(),
        Err(e) => e.is_damage(),
    }
}

/// Has the archive at `path`, if only what it builds on has been replaced, build on that from now on, where all it needs is there.
/// Else, if it is damaged, clones `url` anew beside it and lets the clone take its place once all of it is there and verified; what
/// stood there is kept as `<path>.damaged` (`.damaged-2` and on, if there is one already).
///
/// # Errors
/// If it is not damaged, the clone fails, the upstream is empty or too many damaged ones are kept already; then what stands there
/// stands.
pub fn relink_or_replace(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    if let Some(base) = known.base.filter(|base| base.exists())
        && weir_repo::base_holds(path).is_err_and(|e| e.is_damage())
        && weir_repo::open_as_base(base, now).and_then(|base| weir_repo::relink(path, &base, now)).unwrap_or(false)
    {
        tracing::warn!(path = %path.display(), "what it builds on has been replaced: all it needs is there");
        return update(url, path, &Known { fingerprint: None, ..*known }, now, options);
    }
    replace(url, path, known, now, options)
}

/// The latter alone.
fn replace(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    // Nobody appends to it meanwhile, or replaces it.
    let lock = weir_repo::lock_archive(path)?;
    if !is_damaged(path) {
        let error = "the archive is not damaged: it stays as it is".to_owned();
        return Err(Failure { class: NOT_DAMAGED, error });
    }
    tracing::warn!(path = %path.display(), "the archive is damaged: it is put aside for a new clone");
    let aside = places_aside(path).find(|place| !place.exists()).ok_or_else(|| {
        let error = format!("the archive is damaged, and {KEPT_MAX} damaged ones are kept beside it: look at the disk, and remove them");
        Failure { class: DAMAGED, error }
    })?;
    let (mut session, advertised, mut visited) = list(url, options)?;
    let refs = snapshot(&advertised, None);
    if refs.list().is_empty() {
        let error = "the archive is damaged, and its upstream is empty: it stays as it is".to_owned();
        return Err(Failure { class: DAMAGED, error });
    }
    // Clients that saw the old one's numbers must not take new ones for older.
    let old = Repo::open_archive(path).ok();
    let old_seq = old.as_ref().and_then(|old| Some(old.archive()?.state().record.seq));
    let first_seq = known.seq.max(old_seq).unwrap_or(0) + 1;
    let mut archive = ArchiveRepo::create_beside(path, session.hash(), first_seq)?;
    build_on_base(&mut archive, known, now);
    let report = take_in(&mut archive, &mut session, url, path, &refs, known.epoch, now, options)?;
    // What was built on the old one finds all it needs in this one, or is to find out that it does not.
    let is_same = match (&old, archive.repo()?) {
        // Not if the old one had lost its last commits already.
        (Some(old), Some(new)) if old_seq >= known.seq && new.shallow().is_empty() => holds_all_of(&new, old).unwrap_or(false),
        _ => false,
    };
    if let Some(old) = &old {
        if is_same {
            archive.goes_on_as(old, now)?;
        }
        // The upstream may have them no more.
        archive.take_lfs_objects(old, true, now)?;
        archive.take_metadata(old, None, now)?;
    }
    let failed = |e: std::io::Error| Failure { class: "local", error: format!("the damaged archive cannot be kept: {e}") };
    std::fs::hard_link(path, &aside).map_err(failed)?;
    archive.persist()?;
    drop(lock);
    visited.change = Some((RefsChange::between(&Refs::default(), &refs), report));
    visited.archive = archive.committed();
    visited.snapshot = snapshot_id(&mut archive);
    visited.damaged = Some(aside);
    visited.builds_on = Some(archive.base_path()?);
    visited.is_another = !is_same;
    if let Err(failure) = take_in_lfs(&mut archive, url, path, now, options, &mut visited) {
        tracing::warn!(path = %path.display(), "LFS objects wait for the next visit: {failure}");
        visited.fingerprint.clear();
    }
    Ok(visited)
}

/// Whether `new` has all that refs of `old` lead to, or led to once.
fn holds_all_of(new: &Repo, old: &Repo) -> weir_repo::Result<bool> {
    let history = old.refs_history()?;
    let mut refs = history.values().chain([old.refs()]);
    Ok(refs.all(|refs| refs.tips().all(|tip| new.contains(&tip))))
}

/// Where damaged archives of `path` are kept.
pub fn places_aside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = path.as_os_str().to_owned();
    (1..=KEPT_MAX).map(move |n| {
        let mut name = path.clone();
        name.push(if n == 1 { ".damaged".to_owned() } else { format!(".damaged-{n}") });
        PathBuf::from(name)
    })
}
