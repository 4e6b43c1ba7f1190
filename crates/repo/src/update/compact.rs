//! Compaction: writes the same repository to a new file, in as few bodies as there are classes of refs.

use std::path::Path;
use std::sync::Arc;

use weir_archive::Takes;
use weir_git::{Kind, Oid, OidSet};
use weir_ground::Timestamp;
use weir_ground::thread::spawn_scoped;

use crate::error::{Error, Result, corrupt};
use crate::ingest::{IngestLimits, IngestOptions, Ingested, SpillFn, ingest};
use crate::objects::lookup::Location;
use crate::objects::object_set::ObjectSet;
use crate::progress::Progress;
use crate::reach::steps::Steps;
use crate::reach::walk::visit_reachable;
use crate::refs::state_kind::StateKind;
use crate::refs::states::encode_state;
use crate::repo::bodies::{RefClass, WholeClone};
use crate::repo::keys::{UNFINISHED_KEY, is_lfs_object, is_metadata};
use crate::repo::origin::Origin;
use crate::repo::repository::Repo;
use crate::update::archive_repo::{ArchiveRepo, UpdateReport, WholeClones};
use crate::update::repack::{Packed, Repack};

/// The base of a rewritten archive.
#[derive(Clone, Copy)]
pub enum Sharing<'a> {
    /// The same base as before.
    Keep,
    /// This base, opened by [`crate::open_as_base`].
    On(&'a Arc<Repo>),
    /// No base: the archive is whole by itself.
    Whole,
}

/// How an archive is rewritten.
#[derive(Clone, Copy)]
pub struct Rewrite<'a> {
    /// The base of the new archive.
    pub sharing: Sharing<'a>,
    /// Seconds since 1970.
    pub time: Timestamp,
    /// The number of threads for one pack.
    pub threads: usize,
    /// Where packs are kept while they are verified.
    pub spill: SpillFn<'a>,
}

/// Rewrites the archive at `path` with one body per class of refs, verifies it and puts it in the old
/// archive's place. Objects that only older states of the refs reach are kept, with those states, in a body
/// that is never served. Objects that no state reaches are kept there, too: other archives may build on them.
///
/// # Errors
/// If the archive is damaged or the disk fails. Then the old archive stays.
pub fn compact(path: &Path, how: &Rewrite<'_>) -> Result<UpdateReport> {
    ArchiveRepo::open(path)?.compact(how)
}

/// The attribute that records the last failed compaction: the number of the commit, and the failures in a
/// row.
const FAILED_KEY: &str = "compaction-failed";
/// After a failed compaction this many commits pass before the next try. Each further failure doubles the
/// number, at most as often as the second constant says.
const PUT_OFF_COMMITS: u64 = 8;
const PUT_OFF_DOUBLED_MAX: u32 = 10;

/// The size of an archive, and how much of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveUse {
    /// The number of packs in the archive.
    pub packs: usize,
    /// The length of the archive.
    pub bytes: u64,
    /// The bytes of live members.
    pub live_bytes: u64,
    /// The bytes of the live members that a compaction only copies: large files and metadata that are kept
    /// beside the repository.
    pub beside_bytes: u64,
}

impl ArchiveRepo {
    /// Does what [`compact`] does. The archive at the path is then another file than this.
    ///
    /// # Errors
    /// As [`compact`].
    pub fn compact(&mut self, how: &Rewrite<'_>) -> Result<UpdateReport> {
        let path = self.path().to_owned();
        let Some(repo) = self.repo()? else {
            return Err(Error::NotFound(format!("'{}' is empty", path.display())));
        };
        if repo.archive().is_some_and(|archive| archive.attribute(UNFINISHED_KEY).is_some()) {
            return corrupt(
                path.display().to_string(),
                "it has objects only: the commit of its refs was lost",
            );
        }
        write_anew(&repo, &path, Takes::PlaceOf(self.locked()), how)
    }

    /// Returns the size of the archive, and how much of it is needed.
    pub fn used(&self) -> ArchiveUse {
        let members = self.state().into_iter().flat_map(|state| &state.members);
        let (mut live_bytes, mut beside_bytes) = (0, 0);
        for (name, member) in members {
            live_bytes += member.len;
            if is_lfs_object(name) || is_metadata(name) {
                beside_bytes += member.len;
            }
        }
        ArchiveUse {
            packs: self.pack_count(),
            bytes: self.committed().map_or(0, |(_, bytes)| bytes),
            live_bytes,
            beside_bytes,
        }
    }

    /// Returns whether a compaction failed not long ago.
    pub fn compaction_is_put_off(&self) -> bool {
        let (seq, count) = self.failed_compactions();
        let commits = PUT_OFF_COMMITS << count.min(PUT_OFF_DOUBLED_MAX);
        count > 0 && self.committed().is_some_and(|(now, _)| now < seq.saturating_add(commits))
    }

    /// Records that a compaction failed.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn put_compaction_off(&mut self, time: Timestamp) -> Result<()> {
        let (_, count) = self.failed_compactions();
        let seq = self.committed().map_or(0, |(seq, _)| seq);
        self.commit_members(
            &[],
            &[(FAILED_KEY.to_owned(), format!("{seq} {}", count.saturating_add(1)))],
            time,
        )
    }

    /// Returns the number of the commit at which a compaction failed last, and the failures in a row.
    fn failed_compactions(&self) -> (u64, u32) {
        let value = self.state().and_then(|state| state.attributes.get(FAILED_KEY)?.split_once(' '));
        value.and_then(|(seq, count)| Some((seq.parse().ok()?, count.parse().ok()?))).unwrap_or((0, 0))
    }
}

/// Writes the archive that `repo` was opened from to `path`, as [`compact`] does, if `takes` allows it to
/// replace what is there.
///
/// # Errors
/// If the archive is damaged or the disk fails. Then the file at `path` is as before, or still missing.
pub fn write_anew(repo: &Repo, path: &Path, takes: Takes<'_>, how: &Rewrite<'_>) -> Result<UpdateReport> {
    let time = how.time;
    let seq = repo.archive().map_or(0, |a| a.state().record.seq) + 1;
    let mut new = ArchiveRepo::create_beside(path, repo.hash(), seq)?;
    if std::path::absolute(path)? == std::path::absolute(repo.path())? {
        new.goes_on_as(repo, time)?;
    }
    new.set_origin(repo.archive().and_then(Origin::of));
    let base = match how.sharing {
        Sharing::Keep => repo.base(),
        Sharing::On(base) => Some(base),
        Sharing::Whole => None,
    };
    if let Some(base) = base {
        new.build_on(base)?;
    }
    let base = base.map(|base| &**base);
    let heads: OidSet = repo.refs().head_and_tag_tips().collect();
    let all: OidSet = repo.refs().tips().collect();
    let (history, older) = states(repo)?;
    let mut taken = ObjectSet::new(repo.objects());
    let mut whole = WholeClones {
        kind: repo.archive().map_or_else(StateKind::default, StateKind::of),
        ..WholeClones::default()
    };
    // An archive with a base, or with shallow history, is no whole clone by itself.
    let may_be_whole = base.is_none() && repo.history().shallow.is_empty();
    let mut objects_added = 0;
    // Objects that only older states lead to.
    let mut lost = OidSet::default();
    for (class, tips) in
        [(RefClass::HeadsAndTags, &heads), (RefClass::Rest, &all), (RefClass::History, &older)]
    {
        let (mut objects, missing) = reachable_beyond(repo, base, tips, &mut taken)?;
        lost.extend(missing);
        if class == RefClass::History {
            // Unreachable objects are kept with all that they lead to: the base may no longer provide some of
            // that.
            let left = unreachable(repo, base, &taken);
            let (more, missing) = reachable_beyond(repo, base, &left, &mut taken)?;
            objects.extend(more);
            lost.extend(missing);
        }
        // A missing object in what is served is damage. In an older state the gap may be from before such
        // gaps were refused. Then it stays.
        if let Some(oid) = lost.iter().next()
            && (class != RefClass::History || !is_as_written(repo)?)
        {
            return Err(Error::Missing(*oid));
        }
        let body = if objects.is_empty() {
            None
        } else {
            take_in(repo, objects, &mut new, (class, tips, &lost), how)?
        };
        if let Some(pack) = &body {
            objects_added = new.commit_body(class, pack, time)?.objects_added;
        }
        if may_be_whole {
            whole.add(class, body.as_ref(), tips);
        }
    }
    let report = new.commit_rewritten(repo.refs(), &repo.history().shallow, &history, whole, time)?;
    new.take_lfs_objects(repo, false, time)?;
    new.take_metadata(repo, Some(how.spill), time)?;
    // The archive must hold the LFS objects that it took from its base before.
    if let (Sharing::Whole, Some(base)) = (how.sharing, repo.base()) {
        new.take_named_lfs_objects(base, time)?;
    }
    if !crate::update::derived_files::derive(&mut new, time, how.threads)? {
        // The refs and all older states are in one commit. With this empty commit behind it, damage to the
        // end of the file does not hit them.
        new.commit_members(&[], &[], time)?;
    }
    repo.check_reads()?;
    // Not before this point: until here any failure leaves the old archive as it was.
    new.persist(takes)?;
    // The commits after those of the packs count, too.
    let (seq, archive_bytes) = new.committed().unwrap_or((report.seq, report.archive_bytes));
    Ok(UpdateReport { seq, archive_bytes, objects_added, ..report })
}

impl WholeClones {
    /// Records what the body of a class makes of a rewritten archive. The body holds what `tips` lead to and
    /// no earlier class has. Each of its objects must be named by another or be a tip, and what they name
    /// must be in what is sent. Then it is whole and closed, because objects form no cycle.
    fn add(&mut self, class: RefClass, body: Option<&Ingested>, tips: &OidSet) {
        // The first body stands by itself. What the second body names or builds on is in the first.
        let is_exact = |pack: &Ingested, is_first: bool| {
            let is_by_itself = pack.sent_count as usize == pack.objects.len() && pack.outside.is_empty();
            pack.unreferenced.iter().all(|oid| tips.contains(oid)) && (is_by_itself || !is_first)
        };
        match (class, body) {
            (RefClass::HeadsAndTags, None) => {
                self.heads = Some(WholeClone { count: 0, trailer: None });
                self.all = self.heads;
            }
            (RefClass::HeadsAndTags, Some(pack)) if is_exact(pack, true) => {
                self.heads = Some(WholeClone { count: pack.sent_count, trailer: Some(pack.checksum) });
                self.all = self.heads;
            }
            (RefClass::Rest, Some(pack)) => {
                // The bodies of both classes are summed when they are first sent.
                let count = self
                    .heads
                    .filter(|_| is_exact(pack, false))
                    .and_then(|heads| heads.count.checked_add(pack.sent_count));
                self.all = count.map(|count| WholeClone { count, trailer: None });
            }
            _ => {}
        }
    }
}

/// Returns all states of the refs in the form that a rewritten archive keeps, and the ids that they led to.
fn states(repo: &Repo) -> Result<(Vec<u8>, OidSet)> {
    let (mut encoded, mut tips) = (Vec::new(), OidSet::default());
    if let Some(mut states) = repo.ref_states()? {
        while let Some((_, change)) = states.next_state()? {
            tips.extend(change.tips());
            // The last state may be incomplete. The rewritten archive marks its refs so, too.
            if !change.is_partial {
                encode_state(change, &mut encoded);
            }
        }
    }
    Ok((encoded, tips))
}

/// Takes `objects` of `repo` into `new` through ingest: what is rewritten is verified like anything from
/// outside.
fn take_in(
    repo: &Repo,
    objects: Vec<Packed>,
    new: &mut ArchiveRepo,
    (class, tips, lost): (RefClass, &OidSet, &OidSet),
    how: &Rewrite<'_>,
) -> Result<Option<Ingested>> {
    let earlier = new.base_for(class)?;
    let wanted: Vec<Oid> = tips.iter().copied().collect();
    let plan = Repack::new(repo.objects(), objects, earlier.as_ref())?;
    let options = IngestOptions {
        hash: repo.hash(),
        limits: IngestLimits {
            pack_bytes_max: u64::MAX,
            object_bytes_max: u64::MAX,
            held_bytes_max: u64::MAX,
            inflated_bytes_max: u64::MAX,
            objects_max: u32::MAX,
        },
        threads: how.threads,
        base: earlier.as_ref(),
        wanted: &wanted,
        shallow: &repo.history().shallow.iter().copied().collect(),
        lost,
        delta_bytes_max: 256 << 20,
        progress: &Progress::default(),
        arriving: None,
    };
    let (mut reader, mut writer) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let writing = spawn_scoped("repack", scope, move || plan.write(repo.objects(), &mut writer))?;
        let taken = ingest(&mut reader, how.spill, &options);
        drop(reader);
        let written = writing.join().expect("writing does not panic");
        match (taken, written) {
            (Ok(taken), Ok(())) => Ok(taken),
            // If writing failed, reading only saw the end: the write error is the cause.
            (_, Err(e)) if !matches!(&e, Error::Io(io) if io.kind() == std::io::ErrorKind::BrokenPipe) => {
                Err(e)
            }
            (Err(e), _) => Err(e),
            (Ok(_), Err(e)) => Err(e),
        }
    })
}

/// Returns whether all commits of the archive are as they were written. Then an object that is missing never
/// was there.
fn is_as_written(repo: &Repo) -> Result<bool> {
    let Some(archive) = repo.archive() else { return Ok(false) };
    Ok(weir_archive::verify(&**archive.file())?.iter().all(|damage| damage.is_unfinished))
}

/// Returns the objects that `tips` reach and that neither the refs of `base` nor `taken` have, and the ids
/// among them that are missing. The objects found are added to `taken`, which holds all that its objects lead
/// to.
fn reachable_beyond(
    repo: &Repo,
    base: Option<&Repo>,
    tips: &OidSet,
    taken: &mut ObjectSet,
) -> Result<(Vec<Packed>, Vec<Oid>)> {
    let mut found: Vec<Packed> = Vec::new();
    let mut missing = Vec::new();
    let mut new = ObjectSet::new(repo.objects());
    let mut reader = repo.reader();
    let mut tips: Vec<Oid> = tips.iter().copied().collect();
    let is_elsewhere = |oid: &Oid, location| {
        taken.contains(repo.objects(), oid, location) || base.is_some_and(|base| base.gives(oid))
    };
    while !tips.is_empty() {
        let start = found.len();
        visit_reachable(
            repo.history(),
            is_elsewhere,
            tips.drain(..),
            &mut Steps::unbounded(),
            |oid, place, _| match place.and_then(|(at, kind)| Some((repo.objects().place(at)?, at, kind))) {
                Some((place, at, kind)) if new.insert(repo.objects(), oid, Some(at)) => {
                    found.push(Packed { place, kind })
                }
                Some(_) => {}
                None => missing.push(*oid),
            },
        )?;
        // A tree may name any object as if it were a file. Ingest then wants what that object names, too.
        let mut at = start;
        while let Some(&Packed { place, kind }) = found.get(at) {
            let (pack, position) = repo.objects().at_place(place);
            let oid = repo.objects().packs()[pack as usize].index().oid(position);
            if kind == Kind::Blob && reader.kind(&oid)? != Some(Kind::Blob) {
                new.remove(repo.objects(), &oid, Some(Location::Packed { pack, position }));
                tips.push(oid);
                found.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
    taken.extend(&new);
    Ok((found, missing))
}

/// Returns the objects of the archive's own packs that neither the refs of `base` nor `taken` have.
fn unreachable(repo: &Repo, base: Option<&Repo>, taken: &ObjectSet) -> OidSet {
    let ids = repo
        .own_packs()
        .iter()
        .flat_map(|pack| (0..pack.index().count()).map(|position| pack.index().oid(position)));
    ids.filter(|oid| {
        !taken.contains(repo.objects(), oid, repo.objects().locate(oid))
            && !base.is_some_and(|base| base.gives(oid))
    })
    .collect()
}
