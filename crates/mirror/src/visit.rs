//! One visit to one upstream.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};
use weir_git::{Oid, refname};
use weir_repo::ingest::Limits;
use weir_repo::{ArchiveRepo, Head, Lost, Origin, Ref, Refs, RefsChange, Repo, UpdateReport};
use weir_transport::{Advertised, Options as TransportOptions, Session, Symbolic, Url};

use crate::Space;
use crate::compacting::{Compacting, compact_if_due};
use crate::failure::{DAMAGED, EMPTIED, FENCED, Failure, NOT_DAMAGED};
use crate::incoming::Update;
use crate::lfs::{LfsReport, fetch_lfs};
use crate::replace::relink_or_replace;
use crate::scratch::Scratch;
use crate::store::StoreMark;

/// Which of an upstream's refs are mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RefsWanted {
    /// All that are advertised.
    #[default]
    All,
    /// HEAD, branches and tags.
    HeadsAndTags,
}

/// How upstreams are visited.
#[derive(Clone)]
pub struct VisitOptions {
    /// How they are talked to.
    pub transport: TransportOptions,
    /// What a pack may be.
    pub limits: Limits,
    /// Where packs lie while they are verified.
    pub scratch: Scratch,
    /// Threads for one pack.
    pub threads: usize,
    /// Which refs.
    pub refs: RefsWanted,
    /// Bytes of inflated deltas kept while a pack is verified.
    pub delta_bytes_max: usize,
    /// Whether the files that Git LFS keeps beside are fetched.
    pub lfs: bool,
    /// Room for them.
    pub space: Arc<Space>,
    /// When archives are compacted after an update.
    pub compacting: Compacting,
    /// Whether an upstream that has no refs any more is followed.
    pub accepts_empty: bool,
    /// What says that the store is there, where something does.
    pub store: Option<Arc<StoreMark>>,
}

/// What a visit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Fingerprint of the upstream's refs.
    pub fingerprint: Vec<u8>,
    /// What changed; `None` if nothing.
    pub change: Option<(RefsChange, UpdateReport)>,
    /// Refs of the upstream.
    pub ref_count: u64,
    /// Names of refs that were refused.
    pub refused: Vec<Vec<u8>>,
    /// Whether the archive is new: its name is durable once [`weir_repo::sync_folder_of`] was called.
    pub created: bool,
    /// Number of the archive's last commit and its length, if it was opened.
    pub archive: Option<(u64, u64)>,
    /// Where the archive that stood there lies now, if it was damaged and a new clone took its place.
    pub damaged: Option<PathBuf>,
    /// What the archive builds on, if it was opened.
    pub builds_on: Option<Option<PathBuf>>,
    /// What the upstream has, if the archive was written to: the SHA-1 of its snapshot ([`Repo::snapshot_id`]).
    pub snapshot: Option<Oid>,
    /// LFS objects, if they were looked for.
    pub lfs: Option<LfsReport>,
    /// Another archive stands there than before, or it has lost commits: what built on it is to be looked at.
    pub is_another: bool,
    /// Commits that were found to be lost.
    pub lost: Option<LostCommits>,
}

/// Commits of an archive that are lost, as far as its upstream could not give them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCommits {
    /// Which.
    pub commits: Lost,
    /// Refs they named that lead to what is not here any more: name and id.
    pub refs: Vec<String>,
}

/// What is known of a repository before a visit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// Fingerprint of the last visit that went well.
    pub fingerprint: Option<&'a [u8]>,
    /// Number of the archive's last commit.
    pub seq: Option<u64>,
    /// Number of the lease.
    pub epoch: u64,
    /// The archive that a new one builds on, if it is there.
    pub base: Option<&'a Path>,
    /// What its forge knows it by, if it was listed by one ([`weir_repo::Origin::forge`]).
    pub forge: Option<&'a str>,
    /// The repository that the archive is a copy of, if it is read from elsewhere: a clone of it that is taken over.
    pub upstream: Option<&'a Url>,
    /// Somebody has found the archive damaged.
    pub is_damaged: bool,
}

/// Fingerprint of refs and HEAD as an upstream shows them.
fn fingerprint(advertised: &Advertised, lfs: bool) -> Vec<u8> {
    let mut h = Sha256::new();
    // What is there is not all that is wanted, once they are wanted, too.
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

/// Refs of an upstream, and the session they came by.
pub(crate) fn list(url: &Url, options: &VisitOptions) -> Result<(Session, Advertised, Visited), Failure> {
    let prefixes: &[&str] = match options.refs {
        RefsWanted::All => &[],
        RefsWanted::HeadsAndTags => &["HEAD", "refs/heads/", "refs/tags/"],
    };
    let (session, mut advertised) = Session::open_and_list(url, &options.transport, prefixes)?;
    if options.refs == RefsWanted::HeadsAndTags {
        advertised.refs.retain(|r| refname::is_head_or_tag(&r.name));
    }
    let fingerprint = fingerprint(&advertised, options.lfs);
    let ref_count = advertised.refs.len() as u64;
    let refused = std::mem::take(&mut advertised.refused);
    let visited = Visited {
        fingerprint,
        change: None,
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

/// Brings the archive at `path` up to date with `url`. If the upstream shows the same as when its fingerprint was taken, only the end
/// of the archive is looked at. If the archive is found to be damaged, it goes on from the last commit that holds, or is put aside for
/// a new clone.
///
/// # Errors
/// If it does not go well; then the archive is as it was, or has one part of the update more.
pub fn visit(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    if known.is_damaged && exists(path)? {
        match relink_or_replace(url, path, known, now, options) {
            Err(other) if other.class == NOT_DAMAGED => {}
            replaced => return replaced,
        }
    }
    match update(url, path, known, now, options) {
        // What an upstream sends must not be taken for damage: all of it is read before it is believed.
        Err(failure) if failure.class == DAMAGED && exists(path)? => match relink_or_replace(url, path, known, now, options) {
            Err(other) if other.class == NOT_DAMAGED => Err(failure),
            replaced => replaced,
        },
        result => result,
    }
}

/// Whether there is an archive at `path`. A disk that does not answer is not one without it.
fn exists(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|e| Failure::new("local", format!("cannot look at '{}': {e}", path.display())))
}

/// The archive at `path` to be written to, which is a copy of `url`; and commits of it that are lost.
fn open(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    session: &Session,
    now: u64,
    options: &VisitOptions,
) -> Result<(ArchiveRepo, Option<Lost>), Failure> {
    if exists(path)? {
        let (archive, lost) = ArchiveRepo::open_recovering(path, known.seq, now)?;
        if let Some(lost) = &lost {
            tracing::error!(path = %path.display(), "the archive is damaged, and goes on from the last commit that holds: {lost}");
        }
        if known.epoch > 0 && archive.epoch() > known.epoch {
            let (ours, theirs) = (known.epoch, archive.epoch());
            return Err(Failure::new(
                FENCED,
                format!("the lease has passed to another visit, which has written already ({ours}, {theirs})"),
            ));
        }
        // On a disk that does not tell large letters from small ones two names are one file; and names are given again.
        if let Some(found) = archive.origin().filter(|found| known.seq.is_none() && !is_same(found, &origin(url, known))) {
            let error = format!("'{}' is a copy of {} already: give this one another name, or delete that", path.display(), found.url);
            return Err(Failure::new("local", error));
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
        tracing::error!(path = %path.display(), "the archive is gone: it is cloned anew");
    }
    Ok((archive, lost))
}

pub(crate) fn update(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    let (mut session, advertised, mut visited) = list(url, options)?;
    let is_there = exists(path)?;
    if is_there && known.fingerprint == Some(visited.fingerprint.as_slice()) && is_sound(path, known)? {
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
        return Err(Failure::new("protocol", format!("the upstream has become a {name} repository; add it under another name")));
    }
    let refs = snapshot(&advertised, old.as_deref());
    let before = old.as_ref().map(|r| r.refs().clone()).unwrap_or_default();
    if refs.list().is_empty() && !before.list().is_empty() && !options.accepts_empty {
        let count = before.list().len();
        let error = format!("the upstream has no refs any more: the {count} it had stay here; 'weir mirror --accept-empty' follows it");
        return Err(Failure::new(EMPTIED, error));
    }
    if old.as_ref().is_none_or(|r| !r.refs().lead_where(&refs)) {
        let report = take_in(&mut archive, &mut session, url, path, &refs, known.epoch, now, options)?;
        visited.change = Some((RefsChange::between(&before, &refs), report));
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

/// Whether the archive at `path` is as it was when its last commit was told of, as far as that can be seen at its end, and what it
/// builds on is there. One with later commits is looked into: they may be of a visit that was never written down, or one that went
/// on from damage and came no further.
fn is_sound(path: &Path, known: &Known<'_>) -> Result<bool, Failure> {
    match weir_repo::check_end(path) {
        Ok(seq) if known.seq.is_none_or(|known| known == seq) => {}
        Err(e) if !e.is_torn() => return Err(e.into()),
        Ok(_) | Err(_) => return Ok(false),
    }
    // What it builds on may have been replaced since.
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
    now: u64,
    options: &VisitOptions,
    visited: &mut Visited,
) -> Result<(), Failure> {
    if options.lfs {
        let report = fetch_lfs(archive, url, path, now, options)?;
        visited.archive = archive.committed();
        visited.lfs = Some(report);
        // No upstream has this one: the next visit looks again, whatever it shows.
        if report.is_incomplete {
            visited.fingerprint.clear();
        }
    }
    Ok(())
}

/// The identity of what was committed last, if it can be had.
pub(crate) fn snapshot_id(archive: &mut ArchiveRepo) -> Option<Oid> {
    let repo = archive.repo().ok()??;
    repo.snapshot_id(repo.refs()).unwrap_or_else(|e| {
        tracing::warn!("no id of its snapshot: {e}");
        None
    })
}

/// Lets a new archive build on the base it is to have. Where that cannot be, it is whole.
pub(crate) fn build_on_base(archive: &mut ArchiveRepo, known: &Known<'_>, now: u64) {
    let Some(path) = known.base.filter(|path| path.exists()) else { return };
    if let Err(e) = weir_repo::open_as_base(path, now).and_then(|base| archive.build_on(&base)) {
        tracing::warn!("a fork is cloned whole: {e}");
    }
}

/// Fetches what `refs` need into `archive`, which will stand at `path`, and makes the files that answers are faster with.
#[allow(clippy::too_many_arguments)]
pub(crate) fn take_in(
    archive: &mut ArchiveRepo,
    session: &mut Session,
    url: &Url,
    path: &Path,
    refs: &Refs,
    epoch: u64,
    now: u64,
    options: &VisitOptions,
) -> Result<UpdateReport, Failure> {
    let store = path.parent().unwrap_or(Path::new("."));
    let report = Update { archive, session, url, options, store, epoch, now }.run(refs)?;
    // Derived files only make answers faster: without them the visit has gone well all the same.
    let started = Instant::now();
    match weir_repo::derive(archive, now, options.threads) {
        Ok(true) => tracing::debug!(path = %path.display(), "bitmaps and commit-graph made in {:?}", started.elapsed()),
        Ok(false) => {}
        Err(e) => tracing::warn!(path = %path.display(), "no bitmaps: {e}"),
    }
    Ok(report)
}

/// Returns what an archive read from `url` says that it is a copy of.
pub(crate) fn origin(url: &Url, known: &Known<'_>) -> Origin {
    Origin { url: known.upstream.unwrap_or(url).without_userinfo(), forge: known.forge.map(str::to_owned) }
}

/// Whether both are one repository, be it at another place by now.
fn is_same(one: &Origin, other: &Origin) -> bool {
    one.url == other.url || one.forge.is_some() && one.forge == other.forge
}

/// The refs as they will be stored. What tags peel to is found out from the objects.
pub(crate) fn snapshot(advertised: &Advertised, old: Option<&Repo>) -> Refs {
    let list = advertised.refs.iter().map(|r| Ref { name: r.name.clone(), oid: r.oid, peeled: None }).collect();
    let head = match &advertised.head {
        Symbolic::Branch(name) => Head::Symbolic(name.clone()),
        Symbolic::Detached(oid) => Head::Detached(*oid),
        // An upstream that says nothing of HEAD: it stays what it was.
        Symbolic::Unknown => old.map_or_else(Head::default, |r| r.refs().head.clone()),
    };
    Refs::new(list, head)
}

/// Shared with the workers.
pub(crate) type SharedOptions = Arc<VisitOptions>;
