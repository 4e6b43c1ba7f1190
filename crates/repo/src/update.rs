//! Compaction: the same repository in a new file, in as few bodies as there are classes of refs.

use std::path::Path;
use std::sync::Arc;

use weir_git::{Kind, Oid, OidSet};

use crate::bodies::RefClass;
use crate::create::{ArchiveRepo, UpdateReport};
use crate::error::{Error, Result};
use crate::history::{HISTORY_MEMBER, encode_history, refs_history};
use crate::ingest::{Ingested, Limits, Options, SpillFn, ingest};
use crate::refs::Refs;
use crate::repack::Repack;
use crate::repo::Repo;
use crate::walk::visit_reachable;

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
    pub time: u64,
    /// Threads for one pack.
    pub threads: usize,
    /// Where packs lie while they are verified.
    pub spill: SpillFn<'a>,
}

/// Writes the archive at `path` anew, with one body a class of refs, verifies it and puts it in the old one's place.
/// Objects that only older states of the refs reach are kept, with those states, in a body that is never served, and so is what
/// no state reaches: others may build on it.
///
/// # Errors
/// If the archive is damaged or the disk fails; then the old one stands.
pub fn compact(path: &Path, how: &Rewrite<'_>) -> Result<UpdateReport> {
    let mut old = ArchiveRepo::open(path)?;
    let Some(repo) = old.repo()? else { return Err(Error::NotFound(format!("'{}' is empty", path.display()))) };
    write_anew(&repo, path, how)
}

/// Writes the archive that `repo` was opened from to `path`, as [`compact`] does; what stands there is replaced.
///
/// # Errors
/// If it is damaged or the disk fails; then there is nothing at `path`, or what stood there.
pub fn write_anew(repo: &Repo, path: &Path, how: &Rewrite<'_>) -> Result<UpdateReport> {
    let time = how.time;
    let seq = repo.archive().map_or(0, |a| a.state().record.seq) + 1;
    let history = refs_history(repo)?;
    let mut new = ArchiveRepo::create_beside(path, repo.hash(), seq)?;
    if std::path::absolute(path)? == std::path::absolute(repo.path())? {
        new.goes_on_as(repo, time)?;
    }
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
    let older: OidSet = history.values().flat_map(|refs| refs.tips().collect::<Vec<_>>()).collect();
    let mut taken = OidSet::default();
    let mut report = None;
    for (class, tips) in [(RefClass::HeadsAndTags, &heads), (RefClass::Rest, &all), (RefClass::History, &older)] {
        let mut objects = reachable_beyond(repo, base, tips, &mut taken)?;
        if class == RefClass::History {
            add_unreachable(repo, base, &taken, &mut objects)?;
        }
        if objects.is_empty() && class != RefClass::HeadsAndTags {
            continue;
        }
        let refs = match class {
            RefClass::HeadsAndTags => heads_only(repo.refs()),
            _ => repo.refs().clone(),
        };
        let added = if objects.is_empty() { None } else { take_in(repo, &objects, &mut new, (class, tips), how)? };
        report = Some(new.commit(added.map(|a| (class, a)), &refs, &repo.shallow, time, 0)?);
    }
    let current = repo.refs();
    if new.repo()?.is_some_and(|r| r.refs() != current) {
        report = Some(new.commit(None, current, &repo.shallow, time, 0)?);
    }
    if !history.is_empty() {
        new.commit_members(&[(HISTORY_MEMBER, &encode_history(&history))], &[], time)?;
    }
    new.take_lfs_objects(repo, false, time)?;
    new.take_metadata(repo, Some(how.spill), time)?;
    // What it found in its base it is to have by itself.
    if let (Sharing::Whole, Some(base)) = (how.sharing, repo.base()) {
        new.take_named_lfs_objects(base, time)?;
    }
    crate::derive::derive(&mut new, time, how.threads)?;
    // Only now: until here any failure leaves the old archive as it was.
    new.persist()?;
    match (report, new.committed()) {
        // What came after the packs counts, too.
        (Some(report), Some((seq, archive_bytes))) => Ok(UpdateReport { seq, archive_bytes, ..report }),
        _ => Err(Error::NotFound("nothing to compact".to_owned())),
    }
}

/// Takes `objects` of `repo` into `new`, through ingest: what is made anew is verified like anything from outside.
fn take_in(
    repo: &Repo,
    objects: &[(Oid, Kind)],
    new: &mut ArchiveRepo,
    (class, tips): (RefClass, &OidSet),
    how: &Rewrite<'_>,
) -> Result<Option<Ingested>> {
    let earlier = new.base_for(class)?;
    let wanted: Vec<Oid> = tips.iter().copied().collect();
    let plan = Repack::new(repo, objects, earlier.as_ref())?;
    let options = Options {
        hash: repo.hash(),
        limits: Limits { pack_bytes_max: u64::MAX, object_bytes_max: u64::MAX, inflated_bytes_max: u64::MAX, objects_max: u32::MAX },
        threads: how.threads,
        base: earlier.as_ref(),
        wanted: &wanted,
        shallow: &repo.shallow.iter().copied().collect(),
        delta_bytes_max: 256 << 20,
    };
    let (mut reader, mut writer) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || plan.write(repo, &mut writer));
        let taken = ingest(&mut reader, how.spill, &options);
        drop(reader);
        let written = writing.join().expect("writing does not panic");
        match (taken, written) {
            (Ok(taken), Ok(())) => Ok(taken),
            // If writing failed, reading only saw the end: the cause is what matters.
            (_, Err(e)) if !matches!(&e, Error::Io(io) if io.kind() == std::io::ErrorKind::BrokenPipe) => Err(e),
            (Err(e), _) => Err(e),
            (Ok(_), Err(e)) => Err(e),
        }
    })
}

fn heads_only(refs: &Refs) -> Refs {
    let list = refs.list().iter().filter(|r| weir_git::refname::is_head_or_tag(&r.name)).cloned().collect();
    Refs::new(list, refs.head.clone())
}

/// What `tips` reach and neither `base` nor `taken` has; it is added to the latter.
fn reachable_beyond(repo: &Repo, base: Option<&Repo>, tips: &OidSet, taken: &mut OidSet) -> Result<Vec<(Oid, Kind)>> {
    let mut found = Vec::new();
    let mut reader = repo.reader();
    let mut tips: Vec<Oid> = tips.iter().copied().collect();
    while !tips.is_empty() {
        let mut missing = None;
        let start = found.len();
        visit_reachable(repo, base, tips.drain(..), |oid: &Oid, kind: Option<Kind>, _| match kind {
            Some(kind) if taken.insert(*oid) => found.push((*oid, kind)),
            Some(_) => {}
            None => missing = Some(*oid),
        })?;
        if let Some(oid) = missing {
            return Err(Error::Missing(oid));
        }
        // A tree may name anything as if it were a file. Ingest then wants what that names, too.
        let mut at = start;
        while let Some((oid, kind)) = found.get(at) {
            if *kind == Kind::Blob && reader.kind(oid)? != Some(Kind::Blob) {
                taken.remove(oid);
                tips.push(*oid);
                found.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
    Ok(found)
}

/// Adds what its own packs hold and neither `base` nor `taken` has.
fn add_unreachable(repo: &Repo, base: Option<&Repo>, taken: &OidSet, objects: &mut Vec<(Oid, Kind)>) -> Result<()> {
    let mut reader = repo.reader();
    let mut added = OidSet::default();
    for pack in repo.own_packs() {
        for position in 0..pack.index().count() {
            let oid = pack.index().oid(position);
            if !taken.contains(&oid) && !base.is_some_and(|base| base.contains(&oid)) && added.insert(oid) {
                objects.push((oid, reader.kind(&oid)?.ok_or(Error::Missing(oid))?));
            }
        }
    }
    Ok(())
}
