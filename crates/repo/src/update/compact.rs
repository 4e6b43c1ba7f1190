//! Compaction: the same repository in a new file, in as few bodies as there are classes of refs.

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

/// What an archive that is written anew builds on.
#[derive(Clone, Copy)]
pub enum Sharing<'a> {
    /// What it did before.
    Keep,
    /// This, opened by [`crate::open_as_base`].
    On(&'a Arc<Repo>),
    /// Nothing: it is whole by itself.
    Whole,
}

/// How an archive is written anew.
#[derive(Clone, Copy)]
pub struct Rewrite<'a> {
    /// What it builds on.
    pub sharing: Sharing<'a>,
    /// Seconds since 1970.
    pub time: Timestamp,
    /// Threads for one pack.
    pub threads: usize,
    /// Where packs lie while they are verified.
    pub spill: SpillFn<'a>,
}

/// Writes the archive at `path` anew, with one body a class of refs, verifies it and puts it in the old one's
/// place. Objects that only older states of the refs reach are kept, with those states, in a body that is
/// never served, and so is what no state reaches: others may build on it.
///
/// # Errors
/// If the archive is damaged or the disk fails; then the old one stands.
pub fn compact(path: &Path, how: &Rewrite<'_>) -> Result<UpdateReport> {
    ArchiveRepo::open(path)?.compact(how)
}

/// The attribute that says when a compaction failed last, by the number of the commit, and how often in turn.
const FAILED_KEY: &str = "compaction-failed";
/// Commits after a compaction that failed before the next is tried, doubled with each that fails again, up to
/// so many times.
const PUT_OFF_COMMITS: u64 = 8;
const PUT_OFF_DOUBLED_MAX: u32 = 10;

/// What an archive takes, and what of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveUse {
    /// Packs in it.
    pub packs: usize,
    /// Its length.
    pub bytes: u64,
    /// Bytes of live members.
    pub live_bytes: u64,
    /// Bytes of those that a compaction only copies: large files and metadata that are kept beside the
    /// repository.
    pub beside_bytes: u64,
}

impl ArchiveRepo {
    /// Does what [`compact`] does. What stands at the path afterwards is another archive than this.
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

    /// What it takes.
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

    /// Whether a compaction has failed not long ago.
    pub fn compaction_is_put_off(&self) -> bool {
        let (seq, count) = self.failed_compactions();
        let commits = PUT_OFF_COMMITS << count.min(PUT_OFF_DOUBLED_MAX);
        count > 0 && self.committed().is_some_and(|(now, _)| now < seq.saturating_add(commits))
    }

    /// Takes note of a compaction that failed.
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

    /// The number of the commit at which a compaction failed last, and how often in turn.
    fn failed_compactions(&self) -> (u64, u32) {
        let value = self.state().and_then(|state| state.attributes.get(FAILED_KEY)?.split_once(' '));
        value.and_then(|(seq, count)| Some((seq.parse().ok()?, count.parse().ok()?))).unwrap_or((0, 0))
    }
}

/// Writes the archive that `repo` was opened from to `path`, as [`compact`] does, where that `takes` what is
/// there.
///
/// # Errors
/// If it is damaged or the disk fails; then there is nothing at `path`, or what stood there.
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
    // What builds on another archive is no whole clone by itself, nor is what ends somewhere.
    let may_be_whole = base.is_none() && repo.history().shallow.is_empty();
    let mut objects_added = 0;
    // Of what only older states lead to.
    let mut lost = OidSet::default();
    for (class, tips) in
        [(RefClass::HeadsAndTags, &heads), (RefClass::Rest, &all), (RefClass::History, &older)]
    {
        let (mut objects, missing) = reachable_beyond(repo, base, tips, &mut taken)?;
        lost.extend(missing);
        if class == RefClass::History {
            // With all that it leads to: of that, too, the base may give something no more.
            let left = unreachable(repo, base, &taken);
            let (more, missing) = reachable_beyond(repo, base, &left, &mut taken)?;
            objects.extend(more);
            lost.extend(missing);
        }
        // A hole in what is served is damage. One in an older state may be from before such holes were
        // refused: then it stays one.
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
    // What it found in its base it is to have by itself.
    if let (Sharing::Whole, Some(base)) = (how.sharing, repo.base()) {
        new.take_named_lfs_objects(base, time)?;
    }
    if !crate::update::derived_files::derive(&mut new, time, how.threads)? {
        // The refs and all older states are in one commit: what damages the end of the file costs another.
        new.commit_members(&[], &[], time)?;
    }
    repo.check_reads()?;
    // Only now: until here any failure leaves the old archive as it was.
    new.persist(takes)?;
    // What came after the packs counts, too.
    let (seq, archive_bytes) = new.committed().unwrap_or((report.seq, report.archive_bytes));
    Ok(UpdateReport { seq, archive_bytes, objects_added, ..report })
}

impl WholeClones {
    /// Takes note of the body of a class in an archive that is written anew: it holds what `tips` lead to, as
    /// far as no class before has it. Each object of it must be named by another or be a tip, and what they
    /// name must be in what is sent: then it is whole and closed, for objects form no circle.
    fn add(&mut self, class: RefClass, body: Option<&Ingested>, tips: &OidSet) {
        // The first body stands by itself; what the second one names, or is a delta of, is in the first.
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
                // Bodies of both classes are summed when they are first sent.
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

/// All states of the refs as they are kept in an archive that is written anew, and ids of what they led to.
fn states(repo: &Repo) -> Result<(Vec<u8>, OidSet)> {
    let (mut encoded, mut tips) = (Vec::new(), OidSet::default());
    if let Some(mut states) = repo.ref_states()? {
        while let Some((_, change)) = states.next_state()? {
            tips.extend(change.tips());
            // What is on its way is so afterwards, too.
            if !change.is_partial {
                encode_state(change, &mut encoded);
            }
        }
    }
    Ok((encoded, tips))
}

/// Takes `objects` of `repo` into `new`, through ingest: what is made anew is verified like anything from
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
    };
    let (mut reader, mut writer) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let writing = spawn_scoped("repack", scope, move || plan.write(repo.objects(), &mut writer))?;
        let taken = ingest(&mut reader, how.spill, &options);
        drop(reader);
        let written = writing.join().expect("writing does not panic");
        match (taken, written) {
            (Ok(taken), Ok(())) => Ok(taken),
            // If writing failed, reading only saw the end: the cause is what matters.
            (_, Err(e)) if !matches!(&e, Error::Io(io) if io.kind() == std::io::ErrorKind::BrokenPipe) => {
                Err(e)
            }
            (Err(e), _) => Err(e),
            (Ok(_), Err(e)) => Err(e),
        }
    })
}

/// Whether all commits of the archive are as they were written: then what is missing never was there.
fn is_as_written(repo: &Repo) -> Result<bool> {
    let Some(archive) = repo.archive() else { return Ok(false) };
    Ok(weir_archive::verify(&**archive.file())?.iter().all(|damage| damage.is_unfinished))
}

/// What `tips` reach and neither the refs of `base` nor `taken` has, and what of that is nowhere; the former
/// is added to `taken`, which holds all that it leads to.
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
        // A tree may name anything as if it were a file. Ingest then wants what that names, too.
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

/// What its own packs hold and neither the refs of `base` nor `taken` has.
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
