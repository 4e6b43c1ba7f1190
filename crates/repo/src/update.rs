//! Compaction: the same repository in a new file, in as few bodies as there are classes of refs.

use std::collections::BTreeMap;
use std::path::Path;

use weir_git::{Kind, Oid, OidSet};

use crate::bodies::RefClass;
use crate::create::{ArchiveRepo, UpdateReport};
use crate::error::{Error, Result};
use crate::ingest::{Limits, Options, ingest};
use crate::refs::{Refs, parse_head, parse_packed_refs};
use crate::repo::Repo;
use crate::walk::{Selection, visit_reachable};
use crate::write::PackPlan;

/// The member that carries older refs through a compaction.
pub(crate) const HISTORY_MEMBER: &str = "weir/refs-history";

/// Writes the archive at `path` anew, with one body a class of refs, verifies it and puts it in the old one's place.
/// Objects that only older states of the refs reach are kept, with those states, in a body that is never served.
///
/// # Errors
/// If the archive is damaged or the disk fails; then the old one stands.
pub fn compact(path: &Path, time: u64, threads: usize, spill: crate::ingest::SpillFn<'_>) -> Result<UpdateReport> {
    let old = ArchiveRepo::open(path)?;
    let Some(repo) = old.repo().cloned() else { return Err(Error::NotFound(format!("'{}' is empty", path.display()))) };
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
            let selection = Selection { client_has: before(&taken, &objects), objects, ..Default::default() };
            let plan = PackPlan::new(&repo, selection, class != RefClass::HeadsAndTags, true)?;
            let base = new.base_for(class);
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
                wanted: &[],
                shallow: &repo.shallow.iter().copied().collect(),
                delta_bytes_max: 256 << 20,
            };
            ingest_plan(&repo, &plan, spill, &options)?
        };
        report = Some(new.commit(added.map(|a| (class, a)), &refs, &repo.shallow, time, 0)?);
    }
    let current = repo.refs();
    if new.repo().is_some_and(|r| r.refs() != current) {
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

/// Runs a plan's output through ingest: what is written anew is verified like anything from outside.
fn ingest_plan(
    repo: &Repo,
    plan: &PackPlan,
    spill: crate::ingest::SpillFn<'_>,
    options: &Options<'_>,
) -> Result<Option<crate::ingest::Ingested>> {
    let (mut reader, mut writer) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || plan.write(repo, &mut writer));
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

fn before(taken: &OidSet, objects: &[Oid]) -> OidSet {
    let now: OidSet = objects.iter().copied().collect();
    taken.difference(&now).copied().collect()
}

fn heads_only(refs: &Refs) -> Refs {
    let list = refs.list().iter().filter(|r| weir_git::refname::is_head_or_tag(&r.name)).cloned().collect();
    Refs::new(list, refs.head.clone())
}

fn reachable_beyond(repo: &Repo, tips: &OidSet, taken: &mut OidSet) -> Result<Vec<Oid>> {
    let mut found = Vec::new();
    let mut missing = None;
    visit_reachable(repo, tips.iter().copied(), |oid, kind: Option<Kind>, _| match kind {
        Some(_) if taken.insert(*oid) => found.push(*oid),
        Some(_) => {}
        None => missing = Some(*oid),
    })?;
    match missing {
        Some(oid) => Err(Error::Missing(oid)),
        None => Ok(found),
    }
}

/// Refs by commit number, older states only.
pub(crate) fn refs_history(repo: &Repo) -> Result<BTreeMap<u64, Refs>> {
    let mut history = BTreeMap::new();
    let Some(archive) = repo.archive() else { return Ok(history) };
    if let Some(member) = archive.member(HISTORY_MEMBER) {
        history = decode_history(repo, &member)?;
    }
    for record in archive.records()? {
        if record.seq == archive.state().record.seq {
            continue;
        }
        if let Some(older) = archive.at(record.seq)?
            && let Some(packed) = older.member("packed-refs")
        {
            let head = older.member("HEAD").map_or_else(|| Ok(Default::default()), |h| parse_head(repo.hash(), &h))?;
            history.insert(record.seq, Refs::new(parse_packed_refs(repo.hash(), &packed)?, head));
        }
    }
    Ok(history)
}

/// Blocks of `state <seq> <bytes of HEAD> <bytes of packed-refs>\n`, then those two files.
fn encode_history(history: &BTreeMap<u64, Refs>) -> Vec<u8> {
    let mut out = Vec::new();
    for (seq, refs) in history {
        let (head, packed) = (refs.to_head_file(), refs.to_packed_refs());
        out.extend_from_slice(format!("state {seq} {} {}\n", head.len(), packed.len()).as_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(&packed);
    }
    out
}

fn decode_history(repo: &Repo, data: &[u8]) -> Result<BTreeMap<u64, Refs>> {
    let mut history = BTreeMap::new();
    let mut rest = data;
    while !rest.is_empty() {
        let parsed = (|| {
            let end = memchr::memchr(b'\n', rest)?;
            let mut words = std::str::from_utf8(&rest[..end]).ok()?.strip_prefix("state ")?.split(' ');
            let (seq, head_len, packed_len): (u64, usize, usize) =
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let head = rest.get(end + 1..(end + 1).checked_add(head_len)?)?;
            let packed = rest.get(end + 1 + head_len..(end + 1 + head_len).checked_add(packed_len)?)?;
            rest = &rest[end + 1 + head_len + packed_len..];
            Some((seq, head, packed))
        })();
        let Some((seq, head, packed)) = parsed else { return crate::error::corrupt(HISTORY_MEMBER, "malformed") };
        history.insert(seq, Refs::new(parse_packed_refs(repo.hash(), packed)?, parse_head(repo.hash(), head)?));
    }
    Ok(history)
}
