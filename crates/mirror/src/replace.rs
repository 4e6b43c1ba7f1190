//! Replaces a damaged archive with a new clone, and keeps the damaged one.

use std::path::{Path, PathBuf};

use weir_ground::{Epoch, FailureClass, Timestamp};
use weir_repo::{ArchiveRepo, KEPT_MAX, Refs, RefsChange, Repo, Takes};
use weir_transport::Url;

use crate::failure::Failure;
use crate::options::VisitOptions;
use crate::update::{build_on_base, list, origin, snapshot, snapshot_id, take_in, take_in_lfs, update};
use crate::visited::{Known, Visited};

/// Returns whether the archive at `path` cannot be opened because of damage, or fails verification. Reads all
/// of it.
fn is_damaged(path: &Path) -> bool {
    match Repo::open_archive(path).and_then(|repo| weir_repo::fsck(&repo)) {
        Ok(report) => !report.problems.is_empty(),
        Err(e) => e.is_damage(),
    }
}

/// If only the base of the archive at `path` has been replaced, links the archive to the new base, provided
/// it has all objects needed. Otherwise, if the archive is damaged, clones `url` beside it. The clone takes
/// its place once it is complete and verified, and the damaged archive is kept as `<path>.damaged`
/// (`.damaged-2` and so on, if that exists).
///
/// Returns `None` if the archive is not damaged: it stays as it is.
///
/// # Errors
/// If the clone fails, the upstream is empty, or too many damaged archives are kept already. The archive then
/// stays as it is.
pub fn relink_or_replace(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<Option<Visited>, Failure> {
    if relinked(path, known.base, now) {
        return update(url, path, &Known { fingerprint: None, ..*known }, now, options).map(Some);
    }
    // If only the last commits are damaged, the archive continues from the last intact one.
    if is_torn(path, known) {
        match update(url, path, &Known { fingerprint: None, ..*known }, now, options) {
            Ok(visited) if !is_damaged(path) => return Ok(Some(visited)),
            // It is damaged elsewhere, too.
            Err(failure) if failure.class != FailureClass::Damaged => return Err(failure),
            Ok(_) | Err(_) => {}
        }
    }
    // Another visit may have cloned the base again in the meantime.
    if relinked(path, known.base, now) {
        return update(url, path, &Known { fingerprint: None, ..*known }, now, options).map(Some);
    }
    replace(url, path, known, now, options)
}

/// Links the archive at `path` to its base if that has been replaced, and has all that the archive needs.
/// Returns whether it has done so.
pub(crate) fn relinked(path: &Path, base: Option<&Path>, now: Timestamp) -> bool {
    let Some(base) = base.filter(|base| base.exists()) else { return false };
    let is_linked = weir_repo::base_holds(path).is_err_and(|e| e.is_damage())
        && weir_repo::open_as_base(base, now)
            .and_then(|base| weir_repo::relink(path, &base, now))
            .unwrap_or(false);
    if is_linked {
        tracing::warn!(path = %path.display(), "its base was replaced; now builds on the new one, which has \
            all it needs");
    }
    is_linked
}

/// Returns whether the last commits of the archive at `path` are damaged while those before them may be
/// intact.
fn is_torn(path: &Path, known: &Known<'_>) -> bool {
    match weir_repo::check_end(path) {
        Ok(seq) => known.seq.is_some_and(|known| known > seq) || weir_repo::has_doubtful_tail(path),
        Err(e) => e.is_torn(),
    }
}

/// Does the second part of [`relink_or_replace`]: replaces a damaged archive.
fn replace(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<Option<Visited>, Failure> {
    // No other process appends to it or replaces it meanwhile.
    let lock = weir_repo::lock_archive(path)?;
    if !is_damaged(path) {
        return Ok(None);
    }
    tracing::warn!(path = %path.display(), "the archive is damaged; setting it aside and cloning again");
    if places_aside(path).all(|place| place.exists()) {
        // Fails before anything is fetched: there is no place for the damaged archive.
        put_aside(path)?;
    }
    let (mut session, advertised, mut visited) = list(url, options)?;
    let refs = snapshot(advertised, None);
    if refs.list().is_empty() {
        return Err(Failure::new(
            FailureClass::Damaged,
            "the archive is damaged, but its upstream is empty; leaving it as it is",
        ));
    }
    // The commit numbers continue, so that clients that saw the old ones do not take new ones for older.
    let old = Repo::open_archive(path).ok();
    if known.epoch > Epoch::NONE && weir_repo::epoch_of(path).is_ok_and(|epoch| epoch > known.epoch) {
        return Err(Failure::new(
            FailureClass::Fenced,
            "another visit has taken the lease and has already written",
        ));
    }
    let old_seq = old.as_ref().and_then(|old| Some(old.archive()?.state().record.seq));
    let first_seq = known.seq.max(old_seq).unwrap_or(0) + 1;
    let mut archive = ArchiveRepo::create_beside(path, session.hash(), first_seq)?;
    build_on_base(&mut archive, known, now);
    archive.set_origin(Some(origin(url, known)));
    let added = RefsChange::between(&Refs::default(), &refs);
    let report = take_in(&mut archive, &mut session, url, path, refs, known.epoch, now, options)?;
    // Forks of the old archive find all they need in this one, or must be checked.
    let is_same = match (&old, archive.repo()?) {
        // Not the same if the old archive had already lost its last commits.
        (Some(old), Some(new)) => {
            old_seq >= known.seq && new.history().shallow().is_empty() && holds_all_of(&new, old)
        }
        _ => false,
    };
    if let Some(old) = &old {
        if is_same {
            archive.goes_on_as(old, now)?;
        }
        // The upstream may no longer have them.
        archive.take_lfs_objects(old, true, now)?;
        archive.take_metadata(old, None, now)?;
    }
    let aside = put_aside(path)?;
    archive.persist(Takes::PlaceOf(&lock))?;
    drop(lock);
    visited.change = Some((added, report));
    visited.archive = archive.committed();
    visited.snapshot = snapshot_id(&mut archive);
    visited.damaged = Some(aside);
    visited.builds_on = Some(archive.base_path()?);
    visited.is_another = !is_same;
    if let Err(failure) = take_in_lfs(&mut archive, url, path, now, options, &mut visited) {
        tracing::warn!(path = %path.display(), "LFS objects put off until the next visit: {failure}");
        visited.fingerprint.clear();
    }
    Ok(Some(visited))
}

/// Returns whether `new` has every object of `old`. Other archives may build on any of them, whether a ref
/// ever reached it or not.
fn holds_all_of(new: &Repo, old: &Repo) -> bool {
    let has = |pack: &weir_repo::Pack| (0..pack.index().count()).all(|n| new.contains(&pack.index().oid(n)));
    old.own_packs().iter().all(|pack| has(pack))
}

/// Links the archive at `path` under a second name, where it is kept.
fn put_aside(path: &Path) -> Result<PathBuf, Failure> {
    for place in places_aside(path) {
        match std::fs::hard_link(path, &place) {
            Ok(()) => return Ok(place),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                return Err(Failure::new(
                    FailureClass::Local,
                    format!("cannot keep the damaged archive: {e}"),
                ));
            }
        }
    }
    let error = format!(
        "the archive is damaged, and {KEPT_MAX} damaged ones are already kept next to it: check the disk, \
        then remove them"
    );
    Err(Failure::new(FailureClass::Damaged, error))
}

/// Returns the paths where damaged archives of `path` are kept.
pub fn places_aside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = path.as_os_str().to_owned();
    (1..=KEPT_MAX).map(move |n| {
        let mut name = path.clone();
        name.push(if n == 1 { ".damaged".to_owned() } else { format!(".damaged-{n}") });
        PathBuf::from(name)
    })
}
