//! Older states of the refs, carried through compactions in a member of their own.

use std::collections::{BTreeMap, HashSet};

use memchr::memchr;
use weir_archive::Archive;
use weir_git::HashKind;

use crate::error::{Result, corrupt};
use crate::refs::{Refs, parse_head, parse_packed_refs};
use crate::repo::Repo;

/// The member that carries older refs through a compaction.
pub(crate) const HISTORY_MEMBER: &str = "weir/refs-history";

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
        if let Some(refs) = archive.at(record.seq)?.map_or(Ok(None), |older| refs_in(&older, repo.hash()))? {
            history.insert(record.seq, refs);
        }
    }
    Ok(history)
}

/// The refs in an archive, if it has some.
pub(crate) fn refs_in(archive: &Archive, hash: HashKind) -> Result<Option<Refs>> {
    let Some(packed) = archive.member("packed-refs") else { return Ok(None) };
    let head = archive.member("HEAD").map_or_else(|| Ok(Default::default()), |h| parse_head(hash, &h))?;
    Ok(Some(Refs::new(parse_packed_refs(hash, &packed)?, head)))
}

/// Blocks of `state SEQ H C D\n`, then H bytes of a `HEAD` file, C bytes of a `packed-refs` file and D bytes of names, a line
/// each. The first block is a whole state; each further one is the state before with HEAD as said unless H is 0, the refs
/// named in the third part removed and those of the second added or set.
pub(crate) fn encode_history(history: &BTreeMap<u64, Refs>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last = Refs::default();
    for (n, (seq, refs)) in history.iter().enumerate() {
        let head = if n > 0 && refs.head == last.head { Vec::new() } else { refs.to_head_file() };
        let changed = refs.list().iter().filter(|r| last.get(&r.name) != Some(*r)).cloned().collect();
        let changed = Refs::new(changed, refs.head.clone());
        let lines = if changed.list().is_empty() { Vec::new() } else { changed.to_packed_refs() };
        let mut removed = Vec::new();
        for r in last.list().iter().filter(|r| refs.get(&r.name).is_none()) {
            removed.extend_from_slice(&r.name);
            removed.push(b'\n');
        }
        out.extend_from_slice(format!("state {seq} {} {} {}\n", head.len(), lines.len(), removed.len()).as_bytes());
        for part in [&head, &lines, &removed] {
            out.extend_from_slice(part);
        }
        last = refs.clone();
    }
    out
}

fn decode_history(repo: &Repo, data: &[u8]) -> Result<BTreeMap<u64, Refs>> {
    let mut history = BTreeMap::new();
    let mut last = Refs::default();
    let mut rest = data;
    while !rest.is_empty() {
        let Some((seq, [head, lines, removed])) = block(&mut rest) else { return corrupt(HISTORY_MEMBER, "malformed") };
        let removed: HashSet<&[u8]> = removed.split(|&b| b == b'\n').collect();
        let mut list: Vec<_> = last.list().iter().filter(|r| !removed.contains(r.name.as_slice())).cloned().collect();
        // Of several of one name the last counts.
        list.extend(parse_packed_refs(repo.hash(), lines)?);
        let head = if head.is_empty() { last.head } else { parse_head(repo.hash(), head)? };
        last = Refs::new(list, head);
        history.insert(seq, last.clone());
    }
    Ok(history)
}

/// The block at the start of `rest`, which is passed.
fn block<'d>(rest: &mut &'d [u8]) -> Option<(u64, [&'d [u8]; 3])> {
    let end = memchr(b'\n', rest)?;
    let mut words = std::str::from_utf8(&rest[..end]).ok()?.strip_prefix("state ")?.split(' ');
    let seq = words.next()?.parse().ok()?;
    let mut at = end + 1;
    let mut parts = [&rest[..0]; 3];
    for part in &mut parts {
        let len: usize = words.next()?.parse().ok()?;
        *part = rest.get(at..at.checked_add(len)?)?;
        at += len;
    }
    *rest = &rest[at..];
    words.next().is_none().then_some((seq, parts))
}
