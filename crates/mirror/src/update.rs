//! Brings an archive up to date with its upstream.

use std::path::Path;
use std::time::Instant;

use sha2::{Digest, Sha256};
use weir_catalog::REFS_NAMED_MAX;
use weir_git::Oid;
use weir_ground::{Epoch, FailureClass, Timestamp};
use weir_repo::{
    ArchiveRepo, ChangedRef, Head, Lost, Origin, Phase, Ref, Refs, RefsChange, Repo, UpdateReport,
};
use weir_transport::{Advertised, Session, Symbolic, Url};

use crate::compacting::compact_if_due;
use crate::failure::Failure;
use crate::incoming::{Arrival, IncomingUpdate};
use crate::lfs::fetch_lfs;
use crate::options::VisitOptions;
use crate::refs_wanted::RefsWanted;
use crate::visited::{Known, LostCommits, Visited};

/// Returns the fingerprint of the refs and HEAD that an upstream advertises.
fn fingerprint(advertised: &Advertised, lfs: bool) -> Vec<u8> {
    let mut h = Sha256::new();
    // Once LFS objects are wanted, an archive without them is not up to date.
    if lfs {
        h.update(b"lfs");
    }
    for r in &advertised.refs {
        h.update(r.oid.as_bytes());
        h.update(&r.name);
        h.update([0]);
    }
    match &advertised.head {
        Symbolic::Branch(name) => h.update(name),
        Symbolic::Detached(oid) => h.update(oid.as_bytes()),
        Symbolic::Unknown => h.update(b"?"),
    }
    h.finalize()[..16].to_vec()
}

/// Opens a session with an upstream and lists its refs.
pub(crate) fn list(url: &Url, options: &VisitOptions) -> Result<(Session, Advertised, Visited), Failure> {
    options.progress.begin(Phase::Asking, 0);
    let (session, mut advertised) =
        Session::open_and_list(url, &options.transport, &options.refs.prefixes())?;
    advertised.keep(|name| options.refs.wants(name));
    if let Some(broken) = advertised.refs.iter().find(|r| r.oid.is_null()) {
        let name = String::from_utf8_lossy(&broken.name).into_owned();
        return Err(Failure::new(
            FailureClass::Server,
            format!("the upstream cannot read its ref '{}': nothing is changed here", name.escape_debug()),
        ));
    }
    let fingerprint = fingerprint(&advertised, options.lfs);
    let ref_count = advertised.refs.len() as u64;
    let refused = std::mem::take(&mut advertised.refused);
    let visited = Visited {
        fingerprint,
        change: None,
        refs: Vec::new(),
        ref_count,
        refused,
        created: false,
        archive: None,
        damaged: None,
        builds_on: None,
        snapshot: None,
        lfs: None,
        is_another: false,
        lost: None,
    };
    Ok((session, advertised, visited))
}

/// Returns whether there is an archive at `path`. A disk error is not taken for a missing archive.
pub(crate) fn exists(path: &Path) -> Result<bool, Failure> {
    path.try_exists()
        .map_err(|e| Failure::new(FailureClass::Local, format!("cannot look at '{}': {e}", path.display())))
}

/// Opens the archive at `path`, a copy of `url`, for writing, or creates it. Returns it with its lost
/// commits, if any.
fn open(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    session: &Session,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<(ArchiveRepo, Option<Lost>), Failure> {
    if exists(path)? {
        let (archive, lost) = ArchiveRepo::open_recovering(path, known.seq, now)?;
        if let Some(lost) = &lost {
            tracing::error!(path = %path.display(), "the archive is damaged; continuing from its last intact \
                commit: {lost}");
        }
        if known.epoch > Epoch::NONE && archive.epoch() > known.epoch {
            let (ours, theirs) = (known.epoch, archive.epoch());
            return Err(Failure::new(
                FailureClass::Fenced,
                format!("another visit has taken the lease and has already written ({ours}, {theirs})"),
            ));
        }
        // If the file system ignores case, two names can be one file. A name may also have been used before.
        if let Some(found) =
            archive.origin().filter(|found| known.seq.is_none() && !is_same(found, &origin(url, known)))
        {
            let error = format!(
                "'{}' already holds a copy of {}: choose another name, or delete that file",
                path.display(),
                found.url
            );
            return Err(Failure::new(FailureClass::Local, error));
        }
        return Ok((archive, lost));
    }
    if let Some(store) = &options.store {
        store.check()?;
    }
    let mut archive = ArchiveRepo::create_named_later(path, session.hash(), known.seq.unwrap_or(0) + 1)?;
    build_on_base(&mut archive, known, now);
    let lost = known.seq.map(Lost::all_up_to);
    if lost.is_some() {
        tracing::error!(path = %path.display(), "the archive is missing; cloning again");
    }
    Ok((archive, lost))
}

/// Returns whether the upstream advertises what it did at the last visit, and the archive is as it was then.
fn is_unchanged(path: &Path, known: &Known<'_>, visited: &Visited) -> Result<bool, Failure> {
    Ok(known.fingerprint == Some(visited.fingerprint.as_slice()) && is_sound(path, known)?)
}

/// Asks `url` whether anything has changed since the last visit. Returns `None` if it has, or if nobody can
/// tell without writing.
///
/// # Errors
/// If the upstream or the archive cannot be read.
pub(crate) fn look(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    options: &VisitOptions,
) -> Result<Option<Visited>, Failure> {
    if known.is_damaged || known.fingerprint.is_none() || !exists(path)? {
        return Ok(None);
    }
    let (_, _, visited) = list(url, options)?;
    Ok(is_unchanged(path, known, &visited)?.then_some(visited))
}

pub(crate) fn update(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<Visited, Failure> {
    let (mut session, advertised, mut visited) = list(url, options)?;
    let is_there = exists(path)?;
    if is_there && is_unchanged(path, known, &visited)? {
        return Ok(visited);
    }
    let (mut archive, lost) = open(url, path, known, &session, now, options)?;
    archive.set_origin(Some(origin(url, known)));
    visited.created = !is_there;
    visited.is_another = !is_there || lost.is_some();
    visited.archive = archive.committed();
    let old = archive.repo()?;
    visited.builds_on = Some(archive.base_path()?);
    if let Some(old) = &old
        && old.hash() != session.hash()
    {
        let name = session.hash().name();
        return Err(Failure::new(
            FailureClass::Protocol,
            format!("the upstream now uses object format {name}; add it under another name"),
        ));
    }
    let refs = snapshot(advertised, old.as_deref());
    let before = old.as_ref().map(|r| r.refs().clone()).unwrap_or_default();
    if refs.list().is_empty() && !before.list().is_empty() && !options.accepts_empty {
        let count = before.list().len();
        // The upstream lists only the refs that it is asked for, so it may have others.
        let none = if options.refs == RefsWanted::default() {
            "no refs"
        } else {
            "no refs that match the patterns of its 'refs'"
        };
        let error = format!("the upstream has {none} any more; the {count} it had are kept");
        return Err(Failure::new(FailureClass::Emptied, error));
    }
    if old.as_ref().is_none_or(|r| !r.refs().lead_where(&refs)) {
        let change = RefsChange::between(&before, &refs);
        // All refs of a first clone are new.
        if !before.list().is_empty() {
            visited.refs = ChangedRef::between(&before, &refs).take(REFS_NAMED_MAX).collect();
        }
        drop(before);
        let report = take_in(&mut archive, &mut session, url, path, refs, known.epoch, now, options)?;
        visited.change = Some((change, report));
        visited.archive = archive.committed();
        visited.snapshot = snapshot_id(&mut archive);
    }
    if let Some(commits) = lost {
        let refs = archive.repo()?.map_or_else(Vec::new, |repo| commits.missing_in(&repo));
        visited.lost = Some(LostCommits { commits, refs });
    }
    take_in_lfs(&mut archive, url, path, now, options, &mut visited)?;
    if visited.change.is_some()
        && let Some(report) = compact_if_due(archive, path, now, options)
    {
        visited.archive = Some((report.seq, report.archive_bytes));
    }
    Ok(visited)
}

/// Returns whether the archive at `path` is as it was when its last commit was recorded, as far as its end
/// shows, and its base is there. An archive with later commits is opened: they may be those of a visit that
/// was never recorded, or that continued after damage and failed.
fn is_sound(path: &Path, known: &Known<'_>) -> Result<bool, Failure> {
    match weir_repo::check_end(path) {
        Ok(seq) if known.seq.is_none_or(|known| known == seq) => {}
        Err(e) if !e.is_torn() => return Err(e.into()),
        Ok(_) | Err(_) => return Ok(false),
    }
    // Its base may have been replaced since.
    if known.base.is_some() {
        weir_repo::base_holds(path)?;
    }
    Ok(true)
}

/// Fetches LFS objects into `archive`, if they are wanted.
pub(crate) fn take_in_lfs(
    archive: &mut ArchiveRepo,
    url: &Url,
    path: &Path,
    now: Timestamp,
    options: &VisitOptions,
    visited: &mut Visited,
) -> Result<(), Failure> {
    if options.lfs {
        let report = fetch_lfs(archive, url, path, now, options)?;
        visited.archive = archive.committed();
        visited.lfs = Some(report);
        // This fingerprint matches no upstream, so that the next visit tries again. What the server has not
        // may be there by then, too.
        if report.is_incomplete || report.absent > report.over_limits {
            visited.fingerprint.clear();
        }
    }
    Ok(())
}

/// Returns the snapshot id of the last commit, if it can be computed.
pub(crate) fn snapshot_id(archive: &mut ArchiveRepo) -> Option<Oid> {
    let repo = archive.repo().ok()??;
    repo.snapshot_id(repo.refs()).unwrap_or_else(|e| {
        tracing::warn!("cannot compute the snapshot id: {e}");
        None
    })
}

/// Lets a new archive build on its base. If that fails, the archive is cloned whole.
pub(crate) fn build_on_base(archive: &mut ArchiveRepo, known: &Known<'_>, now: Timestamp) {
    let Some(path) = known.base.filter(|path| path.exists()) else { return };
    if let Err(e) = weir_repo::open_as_base(path, now).and_then(|base| archive.build_on(&base)) {
        tracing::warn!("cannot build a fork on its base, cloning it whole: {e}");
    }
}

/// Fetches the objects of `refs` into `archive`, which will be at `path`, and makes the derived files that
/// speed up answers.
#[allow(clippy::too_many_arguments)]
pub(crate) fn take_in(
    archive: &mut ArchiveRepo,
    session: &mut Session,
    url: &Url,
    path: &Path,
    refs: Refs,
    epoch: Epoch,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<UpdateReport, Failure> {
    let mut arrival = Arrival::default();
    let update = IncomingUpdate { archive, session, url, options, path, epoch, now, arrival: &mut arrival };
    let report = update.run(refs)?;
    // Derived files only speed up answers: without them the visit has succeeded all the same.
    let started = Instant::now();
    options.progress.begin(Phase::Deriving, 0);
    match arrival.work_on("derive", || weir_repo::derive(archive, now, options.threads)) {
        Ok(true) => {
            tracing::debug!(path = %path.display(), "bitmaps and commit-graph made in {} ms",
                started.elapsed().as_millis())
        }
        Ok(false) => {}
        Err(e) => tracing::warn!(path = %path.display(), "cannot make bitmaps: {e}"),
    }
    Ok(report)
}

/// Returns the origin that an archive read from `url` records.
pub(crate) fn origin(url: &Url, known: &Known<'_>) -> Origin {
    Origin { url: known.upstream.unwrap_or(url).without_userinfo(), forge: known.forge.map(str::to_owned) }
}

/// Returns whether both are one repository, even if its URL has changed.
fn is_same(one: &Origin, other: &Origin) -> bool {
    one.url == other.url || one.forge.is_some() && one.forge == other.forge
}

/// Returns the refs as they will be stored. What tags peel to is read from the objects later.
pub(crate) fn snapshot(advertised: Advertised, old: Option<&Repo>) -> Refs {
    let list = advertised.refs.into_iter().map(|r| Ref { name: r.name, oid: r.oid, peeled: None }).collect();
    let head = match advertised.head {
        Symbolic::Branch(name) => Head::Symbolic(name),
        Symbolic::Detached(oid) => Head::Detached(oid),
        // If the upstream does not tell its HEAD, the old one is kept.
        Symbolic::Unknown => old.map_or_else(Head::default, |r| r.refs().head.clone()),
    };
    Refs::new(list, head)
}
