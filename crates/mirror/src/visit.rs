//! One visit to one upstream.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};
use weir_git::{Oid, OidSet, refname};
use weir_repo::ingest::{Limits, Options as IngestOptions, ingest};
use weir_repo::walk::HaveCommits;
use weir_repo::{ArchiveRepo, Head, Ref, RefClass, Refs, RefsChange, Repo, Rewrite, Sharing, UpdateReport};
use weir_transport::{Advertised, ErrorClass, FetchRequest, Negotiator, Options as TransportOptions, Session, Symbolic, Url};

use crate::Space;
use crate::lfs::{LfsReport, fetch_lfs};
use crate::scratch::Scratch;

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
    /// An archive with more packs than this is compacted after an update.
    pub packs_max: usize,
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
    /// Another archive stands there than before: what built on that one is to be looked at.
    pub is_another: bool,
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
}

/// The class of failures of what an archive builds on.
pub(crate) const BASE: &str = "base";
/// The class of failures of what is stored here.
pub(crate) const DAMAGED: &str = "damaged";
/// The class of a replacement that was not needed.
pub(crate) const NOT_DAMAGED: &str = "not-damaged";

/// Why a visit failed.
#[derive(Debug)]
pub struct Failure {
    /// What that means.
    pub class: &'static str,
    /// In words.
    pub error: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.error, self.class)
    }
}

impl From<weir_transport::Error> for Failure {
    fn from(e: weir_transport::Error) -> Failure {
        Failure { class: e.class().name(), error: e.to_string() }
    }
}

impl From<weir_repo::Error> for Failure {
    fn from(e: weir_repo::Error) -> Failure {
        use weir_repo::Error as E;
        let class = match &e {
            E::BadPack(_) | E::Object { .. } | E::Collision(_) => "bad-pack",
            E::NotConnected { .. } => "incomplete",
            E::Limit { .. } => "limit",
            e if e.is_disk_full() => "disk-full",
            e if e.is_damage() => DAMAGED,
            E::Base { .. } => BASE,
            E::Archive(_) | E::Corrupt { .. } | E::Missing(_) => "local",
            E::Io(io) => {
                // A transport's error that came through `Read`.
                let ours = io.get_ref().and_then(|inner| inner.downcast_ref::<weir_transport::Error>());
                return match ours {
                    Some(t) => Failure { class: t.class().name(), error: t.to_string() },
                    None => match io.kind() {
                        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => {
                            Failure { class: ErrorClass::Network.name(), error: format!("the connection broke: {io}") }
                        }
                        _ => Failure { class: ErrorClass::Local.name(), error: e.to_string() },
                    },
                };
            }
            E::NotFound(_) | E::Unsupported(_) => "local",
        };
        Failure { class, error: e.to_string() }
    }
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
    };
    Ok((session, advertised, visited))
}

/// Brings the archive at `path` up to date with `url`. If the upstream shows the same as when its fingerprint was taken, the
/// archive is not even opened. If the archive is found to be damaged, it is put aside for a new clone.
///
/// # Errors
/// If it does not go well; then the archive is as it was, or has one part of the update more.
pub fn visit(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    match update(url, path, known, now, options) {
        // What an upstream sends must not be taken for damage: all of it is read before it is believed.
        Err(failure) if failure.class == DAMAGED && path.exists() => {
            match crate::replace::relink_or_replace(url, path, known, now, options) {
                Err(other) if other.class == NOT_DAMAGED => Err(failure),
                replaced => replaced,
            }
        }
        result => result,
    }
}

pub(crate) fn update(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    let (mut session, advertised, mut visited) = list(url, options)?;
    let exists = path.exists();
    visited.created = !exists;
    if exists && known.fingerprint == Some(visited.fingerprint.as_slice()) {
        // What it builds on may have been replaced since.
        if known.base.is_some() {
            weir_repo::base_holds(path)?;
        }
        return Ok(visited);
    }
    let mut archive = if exists { ArchiveRepo::open(path)? } else { ArchiveRepo::create_named_later(path, session.hash(), 1)? };
    if !exists {
        build_on_base(&mut archive, known, now);
        visited.is_another = true;
    }
    visited.archive = archive.committed();
    let old = archive.repo()?;
    visited.builds_on = Some(archive.base_path()?);
    if let Some(old) = &old
        && old.hash() != session.hash()
    {
        return Err(Failure {
            class: "protocol",
            error: format!("the upstream has become a {} repository; add it under another name", session.hash().name()),
        });
    }
    let refs = snapshot(&advertised, old.as_deref());
    let before = old.as_ref().map(|r| r.refs().clone()).unwrap_or_default();
    if old.as_ref().is_some_and(|r| *r.refs() == refs) {
        take_in_lfs(&mut archive, url, path, now, options, &mut visited)?;
        return Ok(visited);
    }
    let store = path.parent().unwrap_or(Path::new(".")).to_owned();
    let report = take_in(&mut archive, &mut session, url, path, &refs, known.epoch, now, options)?;
    visited.change = Some((RefsChange::between(&before, &refs), report));
    visited.archive = archive.committed();
    visited.snapshot = snapshot_id(&mut archive);
    take_in_lfs(&mut archive, url, path, now, options, &mut visited)?;
    let packs = archive.pack_count();
    drop(archive);
    if packs > options.packs_max {
        let spill = |bytes| options.scratch.place(bytes, &store);
        // A compaction that fails costs nothing but time: the archive stands as it is.
        let how = Rewrite { sharing: Sharing::Keep, time: now, threads: options.threads, spill: &spill };
        match weir_repo::compact(path, &how) {
            Ok(report) => {
                visited.archive = Some((report.seq, report.archive_bytes));
            }
            Err(e) => tracing::warn!(path = %path.display(), "not compacted: {e}"),
        }
    }
    Ok(visited)
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

/// The refs as they will be stored.
pub(crate) fn snapshot(advertised: &Advertised, old: Option<&Repo>) -> Refs {
    let list = advertised.refs.iter().map(|r| Ref { name: r.name.clone(), oid: r.oid, peeled: r.peeled }).collect();
    let head = match &advertised.head {
        Symbolic::Branch(name) => Head::Symbolic(name.clone()),
        Symbolic::Detached(oid) => Head::Detached(*oid),
        // An upstream that says nothing of HEAD: it stays what it was.
        Symbolic::Unknown => old.map_or_else(Head::default, |r| r.refs().head.clone()),
    };
    Refs::new(list, head)
}

struct Update<'a> {
    archive: &'a mut ArchiveRepo,
    session: &'a mut Session,
    url: &'a Url,
    options: &'a VisitOptions,
    store: &'a Path,
    epoch: u64,
    now: u64,
}

impl Update<'_> {
    /// Heads and tags first, then the rest: each a pack and a commit of its own, if it brings something.
    fn run(&mut self, refs: &Refs) -> Result<UpdateReport, Failure> {
        let heads = Refs::new(refs.list().iter().filter(|r| refname::is_head_or_tag(&r.name)).cloned().collect(), refs.head.clone());
        let has_rest = heads.list().len() < refs.list().len();
        let mut appended = 0;
        let mut added = 0;
        let mut add = |report: UpdateReport| {
            appended += report.bytes_appended;
            added += report.objects_added;
            UpdateReport { bytes_appended: appended, objects_added: added, ..report }
        };
        let wants = self.wants(RefClass::HeadsAndTags, heads.head_and_tag_tips())?;
        let rest_wants = |this: &mut Self| if has_rest { this.wants(RefClass::Rest, refs.tips()) } else { Ok(Vec::new()) };
        if wants.is_empty() {
            let rest = rest_wants(self)?;
            return self.commit(RefClass::Rest, &rest, refs).map(add);
        }
        // Refs of the rest stay as they were until their own pack is here.
        let kept: Vec<Ref> = match self.archive.repo()? {
            Some(old) => old.refs().list().iter().filter(|r| !refname::is_head_or_tag(&r.name)).cloned().collect(),
            None => Vec::new(),
        };
        let interim = if has_rest || !kept.is_empty() {
            Refs::new(heads.list().iter().cloned().chain(kept).collect(), refs.head.clone())
        } else {
            refs.clone()
        };
        let report = add(self.commit(RefClass::HeadsAndTags, &wants, &interim)?);
        if interim == *refs {
            return Ok(report);
        }
        let rest = rest_wants(self)?;
        self.commit(RefClass::Rest, &rest, refs).map(add)
    }

    /// Tips that are not here yet.
    fn wants(&mut self, class: RefClass, tips: impl Iterator<Item = Oid>) -> Result<Vec<Oid>, Failure> {
        let base = self.archive.base_for(class)?;
        let mut wants: Vec<Oid> = tips.filter(|t| !base.as_ref().is_some_and(|b| b.contains(t))).collect();
        wants.sort_unstable();
        wants.dedup();
        Ok(wants)
    }

    fn commit(&mut self, class: RefClass, wants: &[Oid], refs: &Refs) -> Result<UpdateReport, Failure> {
        let (added, shallow) = if wants.is_empty() {
            let shallow = self.archive.repo()?.map(|r| r.shallow().to_vec()).unwrap_or_default();
            (None, shallow)
        } else {
            self.fetch(class, wants)?
        };
        Ok(self.archive.commit(added.map(|a| (class, a)), refs, &shallow, self.now, self.epoch)?)
    }

    fn fetch(&mut self, class: RefClass, wants: &[Oid]) -> Result<(Option<weir_repo::ingest::Ingested>, Vec<Oid>), Failure> {
        if !self.session.can_fetch() {
            // v0 and v1 give one pack a connection.
            *self.session = Session::open(self.url, &self.options.transport)?;
        }
        let hash = self.session.hash();
        let base = self.archive.base_for(class)?;
        let mut haves = Haves::new(base.as_ref(), class)?;
        let request = FetchRequest { wants, negotiator: &mut haves, thin: base.is_some(), progress: None };
        let mut pack = self.session.fetch(request)?;
        let mut shallow = pack.shallow.clone();
        shallow.extend(base.iter().flat_map(|b| b.shallow().iter().copied()));
        shallow.sort_unstable();
        shallow.dedup();
        let shallow_set: OidSet = shallow.iter().copied().collect();
        let options = IngestOptions {
            hash,
            limits: self.options.limits,
            threads: self.options.threads,
            base: base.as_ref(),
            wanted: wants,
            shallow: &shallow_set,
            delta_bytes_max: self.options.delta_bytes_max,
        };
        let spill = |bytes| self.options.scratch.place(bytes, self.store);
        Ok((ingest(&mut pack, &spill, &options)?, shallow))
    }
}

/// Says what is here: all tips first, then commits behind them.
struct Haves<'r> {
    tips: Vec<Oid>,
    behind: Option<HaveCommits<'r>>,
    repo: Option<&'r Repo>,
}

impl<'r> Haves<'r> {
    fn new(repo: Option<&'r Repo>, class: RefClass) -> Result<Haves<'r>, Failure> {
        let tips: Vec<Oid> = match repo {
            None => Vec::new(),
            Some(r) => {
                let tips: OidSet = match class {
                    RefClass::HeadsAndTags => r.refs().head_and_tag_tips().collect(),
                    _ => r.refs().tips().collect(),
                };
                // Of what it builds on, too: a fork has most of its history from there.
                let of_base = r.base().into_iter().flat_map(|base| base.refs().head_and_tag_tips());
                let tips: OidSet = tips.into_iter().chain(of_base).filter(|t| r.contains(t)).collect();
                let mut tips: Vec<Oid> = tips.into_iter().collect();
                tips.sort_unstable();
                tips
            }
        };
        Ok(Haves { tips, behind: None, repo })
    }
}

impl Negotiator for Haves<'_> {
    fn next_haves(&mut self, max: usize) -> Vec<Oid> {
        let Some(repo) = self.repo else { return Vec::new() };
        if self.behind.is_none() {
            // Branches say most; of many thousand refs the first ones must do, the walk behind them finds the others.
            let batch: Vec<Oid> = self.tips.iter().copied().take(max).collect();
            self.behind = HaveCommits::new(repo, std::mem::take(&mut self.tips)).ok();
            if !batch.is_empty() {
                return batch;
            }
        }
        // What cannot be read is not offered; the fetch is then larger, no more.
        self.behind.as_mut().and_then(|b| b.next_batch(max).ok()).unwrap_or_default()
    }
}

/// Shared with the workers.
pub(crate) type SharedOptions = Arc<VisitOptions>;
