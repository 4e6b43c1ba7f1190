//! Compaction: the same repository in a new file, in as few bodies as there are classes of refs.

use std::io::Write;
use std::path::Path;

use weir_git::{Kind, Oid, OidSet};

use crate::bodies::RefClass;
use crate::create::{ArchiveRepo, UpdateReport};
use crate::error::{Error, Result};
use crate::history::{HISTORY_MEMBER, encode_history, refs_history};
use crate::ingest::{Limits, Options, ingest};
use crate::refs::Refs;
use crate::repack::Repack;
use crate::repo::Repo;
use crate::walk::visit_reachable;

/// Writes the archive at `path` anew, with one body a class of refs, verifies it and puts it in the old one's place.
/// Objects that only older states of the refs reach are kept, with those states, in a body that is never served.
///
/// # Errors
/// If the archive is damaged or the disk fails; then the old one stands.
pub fn compact(path: &Path, time: u64, threads: usize, spill: crate::ingest::SpillFn<'_>) -> Result<UpdateReport> {
    let mut old = ArchiveRepo::open(path)?;
    let Some(repo) = old.repo()? else { return Err(Error::NotFound(format!("'{}' is empty", path.display()))) };
    let seq = repo.archive().map_or(0, |a| a.state().record.seq) + 1;
    let history = refs_history(&repo)?;
    let mut new = ArchiveRepo::create_beside(path, repo.hash(), seq)?;
    let heads: OidSet = repo.refs().head_and_tag_tips().collect();
    let all: OidSet = repo.refs().tips().collect();
    let older: OidSet = history.values().flat_map(|refs| refs.tips().collect::<Vec<_>>()).collect();
    let mut taken = OidSet::default();
    let mut report = None;
    for (class, tips) in [(RefClass::HeadsAndTags, &heads), (RefClass::Rest, &all), (RefClass::History, &older)] {
        let objects = reachable_beyond(&repo, tips, &mut taken)?;
        if objects.is_empty() && class != RefClass::HeadsAndTags {
            continue;
        }
        let refs = match class {
            RefClass::HeadsAndTags => heads_only(repo.refs()),
            _ => repo.refs().clone(),
        };
        let added = if objects.is_empty() {
            None
        } else {
            let base = new.base_for(class)?;
            let wanted: Vec<Oid> = tips.iter().copied().collect();
            let plan = Repack::new(&repo, &objects, base.as_ref())?;
            let options = Options {
                hash: repo.hash(),
                limits: Limits {
                    pack_bytes_max: u64::MAX,
                    object_bytes_max: u64::MAX,
                    inflated_bytes_max: u64::MAX,
                    objects_max: u32::MAX,
                },
                threads,
                base: base.as_ref(),
                wanted: &wanted,
                shallow: &repo.shallow.iter().copied().collect(),
                delta_bytes_max: 256 << 20,
            };
            take_in(&|out| plan.write(&repo, out), spill, &options)?
        };
        report = Some(new.commit(added.map(|a| (class, a)), &refs, &repo.shallow, time, 0)?);
    }
    let current = repo.refs();
    if new.repo()?.is_some_and(|r| r.refs() != current) {
        report = Some(new.commit(None, current, &repo.shallow, time, 0)?);
    }
    if !history.is_empty() {
        new.commit_members(&[(HISTORY_MEMBER, &encode_history(&history))], &[], time)?;
    }
    crate::derive::derive(&mut new, time, threads)?;
    // Only now: until here any failure leaves the old archive as it was.
    new.persist()?;
    drop(old);
    report.ok_or_else(|| Error::NotFound("nothing to compact".to_owned()))
}

/// Runs what `write` writes through ingest: what is made anew is verified like anything from outside.
fn take_in(
    write: &(dyn Fn(&mut dyn Write) -> Result<()> + Sync),
    spill: crate::ingest::SpillFn<'_>,
    options: &Options<'_>,
) -> Result<Option<crate::ingest::Ingested>> {
    let (mut reader, mut writer) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || write(&mut writer));
        let taken = ingest(&mut reader, spill, options);
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

/// What `tips` reach and nothing in `taken`, which it is added to.
fn reachable_beyond(repo: &Repo, tips: &OidSet, taken: &mut OidSet) -> Result<Vec<(Oid, Kind)>> {
    let mut found = Vec::new();
    let mut reader = repo.reader();
    let mut tips: Vec<Oid> = tips.iter().copied().collect();
    while !tips.is_empty() {
        let mut missing = None;
        let start = found.len();
        visit_reachable(repo, tips.drain(..), |oid, kind: Option<Kind>, _| match kind {
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
