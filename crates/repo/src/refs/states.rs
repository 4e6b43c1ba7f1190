//! The states of the refs, from the oldest to the newest. Each is stored as its difference from the state
//! before.
//!
//! Commits hold whole `packed-refs` files. The states before the last compaction are differences in a member
//! of their own (`docs/archive-format.md`, section 8). Reading takes the memory of one state, whatever the
//! number of states.

use std::collections::BTreeMap;
use std::io::Write;
use std::vec::IntoIter;

use memchr::{memchr, memrchr};
use weir_archive::{Archive, Member, Region};
use weir_git::{HashKind, Oid};
use weir_ground::Timestamp;

use crate::error::{Result, corrupt};
use crate::refs::list::{Head, Ref, Refs, parse_head, parse_packed_refs, push_packed_ref};
use crate::refs::state_kind::PARTIAL_KEY;

/// The member that carries older states through a compaction.
pub(crate) const HISTORY_MEMBER: &str = "weir/refs-history";
/// The first version of the archive in which each state has a time.
const TIMES_SINCE_VERSION: u32 = 2;

/// One state of the refs, as its difference from the state before. The first state is given whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The number of the commit that brought the state.
    pub seq: u64,
    /// The time of the commit, in seconds since 1970, if it is known.
    pub time: Option<Timestamp>,
    /// Whether the state is incomplete: the rest of what the upstream had was not received.
    pub is_partial: bool,
    /// HEAD, if it differs.
    pub head: Option<Head>,
    /// The names of refs that are gone, in ascending order.
    pub removed: Vec<Vec<u8>>,
    /// Refs that are new or point elsewhere, in ascending order of name.
    pub set: Vec<Ref>,
}

impl StateChange {
    /// Returns the ids that the state brought: of refs that are new or point elsewhere, and of HEAD.
    pub fn tips(&self) -> impl Iterator<Item = Oid> {
        let detached = match &self.head {
            Some(Head::Detached(oid)) => Some(*oid),
            _ => None,
        };
        self.set.iter().map(|r| r.oid).chain(detached)
    }
}

/// The refs, followed through their states.
#[derive(Clone, Debug, Default)]
pub struct FollowedRefs {
    by_name: BTreeMap<Vec<u8>, (Oid, Option<Oid>)>,
    pub(crate) head: Option<Head>,
}

impl FollowedRefs {
    /// Returns the id that the ref `name` points at.
    pub fn get(&self, name: &[u8]) -> Option<Oid> {
        self.by_name.get(name).map(|(oid, _)| *oid)
    }

    /// Returns the number of refs.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there are no refs.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Moves to the state after `change`.
    pub fn apply(&mut self, change: &StateChange) {
        for name in &change.removed {
            self.by_name.remove(name);
        }
        for r in &change.set {
            self.by_name.insert(r.name.clone(), (r.oid, r.peeled));
        }
        if let Some(head) = &change.head {
            self.head = Some(head.clone());
        }
    }

    /// Returns all refs as they are now.
    pub fn to_refs(&self) -> Refs {
        let list = self
            .by_name
            .iter()
            .map(|(name, (oid, peeled))| Ref { name: name.clone(), oid: *oid, peeled: *peeled })
            .collect();
        Refs::new(list, self.head.clone().unwrap_or_default())
    }

    /// Returns how `next` differs.
    fn change_to(&self, next: &Refs, seq: u64, time: Option<Timestamp>) -> StateChange {
        let set = next
            .list()
            .iter()
            .filter(|r| self.by_name.get(&r.name) != Some(&(r.oid, r.peeled)))
            .cloned()
            .collect();
        let removed = self.by_name.keys().filter(|name| next.get(name).is_none()).cloned().collect();
        StateChange {
            seq,
            time,
            is_partial: false,
            head: (self.head.as_ref() != Some(&next.head)).then(|| next.head.clone()),
            removed,
            set,
        }
    }
}

/// A commit whose refs differ from those of the commit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefsCommit {
    pub(crate) seq: u64,
    time: Timestamp,
    is_partial: bool,
    packed_refs: Member,
    head: Option<Member>,
}

/// The place from which refs were read last.
enum At {
    /// The member with the states of an earlier archive: the part that is still to be read.
    History { left: Region, has_times: bool },
    /// A commit: its `packed-refs`.
    Commit(Vec<u8>),
}

/// The states of the refs of an archive, from the oldest to the last that was committed.
pub struct RefStates<'r> {
    archive: &'r Archive,
    hash: HashKind,
    at: At,
    places: IntoIter<RefsCommit>,
    /// The refs before the state that was returned last, and the change of that state.
    refs: FollowedRefs,
    given: Option<StateChange>,
    head_file: Option<[u8; 32]>,
}

impl<'r> RefStates<'r> {
    /// Returns the states of the refs of `archive`, a repository of `hash`.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn of(archive: &'r Archive, hash: HashKind) -> Result<RefStates<'r>> {
        let left = match archive.state().members.get(HISTORY_MEMBER) {
            Some(member) => {
                // The member is long and its content is trusted, so it is checked here.
                archive.check_member(HISTORY_MEMBER, member)?;
                archive.member(HISTORY_MEMBER)
            }
            None => None,
        };
        let has_times = archive.state().record.version >= TIMES_SINCE_VERSION;
        let at = match left {
            Some(left) => At::History { left, has_times },
            None => At::Commit(Vec::new()),
        };
        let mut places = refs_commits(archive)?;
        // An incomplete state is skipped, unless it is the last.
        let last = places.last().map(|place| place.seq);
        places.retain(|place| !place.is_partial || Some(place.seq) == last);
        let places = places.into_iter();
        Ok(RefStates {
            archive,
            hash,
            at,
            places,
            refs: FollowedRefs::default(),
            given: None,
            head_file: None,
        })
    }

    /// Returns the next state, and the refs before it.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn next_state(&mut self) -> Result<Option<(&FollowedRefs, &StateChange)>> {
        self.go_on();
        loop {
            let change = match &mut self.at {
                At::History { left, has_times } if !left.is_empty() => {
                    let Some((change, len)) = decode_block(self.hash, left, *has_times)? else {
                        return corrupt(HISTORY_MEMBER, "malformed");
                    };
                    *left = left.slice(len as u64..left.len() as u64).expect("what is behind a part of it");
                    change
                }
                _ => match self.places.next() {
                    Some(place) => self.change_at(&place)?,
                    None => return Ok(None),
                },
            };
            let is_first = self.refs.head.is_none();
            if is_first || change.head.is_some() || !change.set.is_empty() || !change.removed.is_empty() {
                let change = self.given.insert(change);
                return Ok(Some((&self.refs, change)));
            }
        }
    }

    /// Returns the refs of the last state.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn into_last(mut self) -> Result<FollowedRefs> {
        while self.next_state()?.is_some() {}
        Ok(self.refs)
    }

    fn go_on(&mut self) {
        if let Some(given) = self.given.take() {
            self.refs.apply(&given);
        }
    }

    /// Returns how the commit at `place` differs from the state before.
    fn change_at(&mut self, place: &RefsCommit) -> Result<StateChange> {
        let packed = self.archive.read_member("packed-refs", &place.packed_refs)?;
        let sum = place.head.map(|member| member.sha256);
        let is_same_head = sum.is_some() && sum == self.head_file;
        let head = match &place.head {
            Some(_) if is_same_head => None,
            Some(member) => Some(parse_head(self.hash, &self.archive.read_member("HEAD", member)?)?),
            None => Some(Head::default()),
        };
        self.head_file = sum;
        let time = Some(place.time);
        let change = match std::mem::replace(&mut self.at, At::Commit(Vec::new())) {
            At::Commit(before) if !before.is_empty() => {
                let head = head.filter(|head| self.refs.head.as_ref() != Some(head));
                let (removed, set) = difference(self.hash, &before, &packed)?;
                StateChange { seq: place.seq, time, is_partial: false, head, removed, set }
            }
            _ => {
                let head = head.or_else(|| self.refs.head.clone()).unwrap_or_default();
                self.refs.change_to(&Refs::new(parse_packed_refs(self.hash, &packed)?, head), place.seq, time)
            }
        };
        self.at = At::Commit(packed);
        Ok(StateChange { is_partial: place.is_partial, ..change })
    }
}

/// Returns the commits whose refs differ from those of the commit before, oldest first.
pub(crate) fn refs_commits(archive: &Archive) -> Result<Vec<RefsCommit>> {
    let mut said = Vec::new();
    for record in archive.records() {
        let record = record?;
        let member = |name: &str| {
            let (_, offset, len, sha256) = record.members.iter().find(|m| m.0 == name)?;
            Some(Member { offset: *offset, len: *len, sha256: *sha256 })
        };
        let is_partial = record.set.iter().any(|(key, _)| key == PARTIAL_KEY);
        said.push((record.seq, record.time, is_partial, member("packed-refs"), member("HEAD")));
    }
    let mut places: Vec<RefsCommit> = Vec::new();
    let (mut packed_refs, mut head) = (None::<Member>, None::<Member>);
    let sum = |member: &Option<Member>| member.map(|m| m.sha256);
    for (seq, time, is_partial, packed_here, head_here) in said.into_iter().rev() {
        // A commit that records no refs has those of the commit before.
        let (packed, head_now) = (packed_here.or(packed_refs), head_here.or(head));
        let is_same = sum(&packed) == sum(&packed_refs) && sum(&head_now) == sum(&head);
        (packed_refs, head) = (packed, head_now);
        if let Some(packed_refs) = packed_refs.filter(|_| !is_same) {
            places.push(RefsCommit { seq, time, is_partial, packed_refs, head });
        }
    }
    Ok(places)
}

/// Returns the names that are gone and the refs that differ, from one `packed-refs` file to the next. Parts
/// that both have alike are compared as bytes and not parsed: of many refs few change.
fn difference(hash: HashKind, before: &[u8], after: &[u8]) -> Result<(Vec<Vec<u8>>, Vec<Ref>)> {
    let (mut removed, mut set) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (before, after);
    // The header lines of both files are alike, or are comments and not refs.
    let mut last: &[u8] = b"";
    loop {
        let same = common_prefix(old, new);
        // If one file ends there, the other may go on with the peeled id of the last ref of both.
        let is_between = same == old.len() && new.get(same) != Some(&b'^');
        let same = if is_between { same } else { ref_before(old, same) };
        (old, new) = (&old[same..], &new[same..]);
        let (a, b) = (first_ref(old), first_ref(new));
        let name = |lines: &'_ [u8]| -> Option<std::ops::Range<usize>> {
            let end = memchr(b'\n', lines).unwrap_or(lines.len());
            (!lines.is_empty() && !lines.starts_with(b"#")).then_some((hash.hex_len() + 1).min(end)..end)
        };
        match (name(a), name(b)) {
            (None, None) if a.is_empty() && b.is_empty() => return Ok((removed, set)),
            // A comment is no ref.
            (None, _) if !a.is_empty() => old = &old[a.len()..],
            (_, None) if !b.is_empty() => new = &new[b.len()..],
            (x, y) => {
                let (x, y) = (x.map(|x| &a[x]), y.map(|y| &b[y]));
                let least = [x, y].into_iter().flatten().min().unwrap_or_default();
                if least < last {
                    return corrupt("packed-refs", "its refs are not in order");
                }
                last = least;
                if y == Some(least) {
                    if x != Some(least) || a != b {
                        set.extend(parse_packed_refs(hash, b)?);
                    }
                    new = &new[b.len()..];
                } else if let Some(x) = x {
                    removed.push(x.to_vec());
                }
                if x == Some(least) {
                    old = &old[a.len()..];
                }
            }
        }
    }
}

/// Returns the lines of the first ref. Its peeled id has a line of its own.
fn first_ref(data: &[u8]) -> &[u8] {
    let next_line = |at: usize| memchr(b'\n', &data[at..]).map_or(data.len(), |n| at + n + 1);
    let mut end = next_line(0);
    while data.get(end) == Some(&b'^') {
        end = next_line(end);
    }
    &data[..end]
}

const COMPARED_BYTES: usize = 4096;

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    for (x, y) in a.chunks(COMPARED_BYTES).zip(b.chunks(COMPARED_BYTES)) {
        if x != y {
            return at + x.iter().zip(y).take_while(|(x, y)| x == y).count();
        }
        at += x.len();
    }
    at
}

/// Returns where the ref begins that ends at `at` or is cut there. A line with its peeled id may follow.
fn ref_before(data: &[u8], at: usize) -> usize {
    let line_before = |at: usize| memrchr(b'\n', &data[..at]).map_or(0, |n| n + 1);
    let mut start = line_before(at);
    loop {
        start = line_before(start.saturating_sub(1));
        if data.get(start) != Some(&b'^') {
            return start;
        }
    }
}

/// Writes the blocks that [`RefStates`] reads from [`HISTORY_MEMBER`]: `state SEQ TIME H C D`, then H bytes
/// of a `HEAD` file, C bytes of a `packed-refs` file and D bytes of names, a line each.
pub(crate) fn encode_state(change: &StateChange, out: &mut Vec<u8>) {
    let head = change.head.as_ref().map_or_else(Vec::new, Head::to_file);
    let mut lines = Vec::new();
    for r in &change.set {
        push_packed_ref(&mut lines, r);
    }
    let removed: usize = change.removed.iter().map(|name| name.len() + 1).sum();
    let time = change.time.map_or("-".to_owned(), |time| time.to_string());
    writeln!(out, "state {} {time} {} {} {removed}", change.seq, head.len(), lines.len()).expect("to memory");
    out.extend_from_slice(&head);
    out.extend_from_slice(&lines);
    for name in &change.removed {
        out.extend_from_slice(name);
        out.push(b'\n');
    }
}

/// Decodes the state at the start of `data`. Returns it and its length in bytes; `None` if it is malformed.
fn decode_block(hash: HashKind, data: &[u8], has_times: bool) -> Result<Option<(StateChange, usize)>> {
    let Some((seq, time, parts, len)) = block(data, has_times) else { return Ok(None) };
    let time = time.map(Timestamp::from);
    let [head, lines, names] = parts;
    let head = if head.is_empty() { None } else { Some(parse_head(hash, head)?) };
    let set = Refs::new(parse_packed_refs(hash, lines)?, Head::default()).list().to_vec();
    let removed = names.split(|&b| b == b'\n').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    Ok(Some((StateChange { seq, time, is_partial: false, head, removed, set }, len)))
}

type Block<'d> = (u64, Option<u64>, [&'d [u8]; 3], usize);

fn block(data: &[u8], has_times: bool) -> Option<Block<'_>> {
    let end = memchr(b'\n', data)?;
    let mut words = std::str::from_utf8(&data[..end]).ok()?.strip_prefix("state ")?.split(' ');
    let seq = words.next()?.parse().ok()?;
    let time = match has_times.then(|| words.next()) {
        None | Some(Some("-")) => None,
        Some(word) => Some(word?.parse().ok()?),
    };
    let mut at = end + 1;
    let mut parts = [&data[..0]; 3];
    for part in &mut parts {
        let len: usize = words.next()?.parse().ok()?;
        *part = data.get(at..at.checked_add(len)?)?;
        at += len;
    }
    words.next().is_none().then_some((seq, time, parts, at))
}

/// Returns the refs as of the commit at `place`.
pub(crate) fn refs_of(archive: &Archive, hash: HashKind, place: &RefsCommit) -> Result<Refs> {
    let list = parse_packed_refs(hash, &archive.read_member("packed-refs", &place.packed_refs)?)?;
    let head = match &place.head {
        Some(member) => parse_head(hash, &archive.read_member("HEAD", member)?)?,
        None => Head::default(),
    };
    Ok(Refs::new(list, head))
}

/// Returns the refs in an archive, if it has any.
pub(crate) fn refs_in(archive: &Archive, hash: HashKind) -> Result<Option<Refs>> {
    let Some(packed) = archive.read("packed-refs")? else { return Ok(None) };
    let head = archive.read("HEAD")?.map_or_else(|| Ok(Head::default()), |h| parse_head(hash, &h))?;
    Ok(Some(Refs::new(parse_packed_refs(hash, &packed)?, head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs(names: &[(&str, u8, Option<u8>)]) -> Refs {
        let oid = |c: u8| Oid::from_bytes(HashKind::Sha1, &[c; 20]).unwrap();
        let list = names
            .iter()
            .map(|(name, c, peeled)| Ref { name: (*name).into(), oid: oid(*c), peeled: peeled.map(oid) })
            .collect();
        Refs::new(list, Head::default())
    }

    #[test]
    fn differences_of_files_are_those_of_refs() {
        // Compares all pairs of some hundred sets of refs: peeled lines, common beginnings and ends of every
        // kind.
        let mut sets = vec![refs(&[])];
        for n in 0..120u32 {
            let names = ["refs/heads/a", "refs/heads/ab", "refs/tags/v1", "refs/tags/v2", "refs/x"];
            let list: Vec<_> = names
                .iter()
                .enumerate()
                .filter(|(i, _)| (n * 7 + 3) >> i & 1 == 1)
                .map(|(i, name)| {
                    (*name, (n >> i & 1) as u8, (n >> (i + 1) & 1 == 1).then_some((n & 3) as u8))
                })
                .collect();
            sets.push(refs(&list));
        }
        for a in &sets {
            let mut followed = FollowedRefs::default();
            followed.apply(&followed.change_to(a, 1, None));
            for b in &sets {
                let expected = followed.change_to(b, 2, None);
                let (removed, set) =
                    difference(HashKind::Sha1, &a.to_packed_refs(), &b.to_packed_refs()).unwrap();
                assert_eq!((&removed, &set), (&expected.removed, &expected.set), "{a:?} {b:?}");
                let change = StateChange {
                    seq: 7,
                    time: Some(Timestamp(9)),
                    is_partial: false,
                    head: Some(Head::Symbolic(b"refs/heads/x".to_vec())),
                    removed,
                    set,
                };
                let mut encoded = Vec::new();
                encode_state(&change, &mut encoded);
                assert_eq!(
                    decode_block(HashKind::Sha1, &encoded, true).unwrap(),
                    Some((change, encoded.len()))
                );
            }
        }
        for bad in ["", "state 1\n", "state 1 - 9 0 0\n", "state 1 x 0 0 0\n", "state 1 - 0 0 0 0\n"] {
            assert_eq!(decode_block(HashKind::Sha1, bad.as_bytes(), true).unwrap(), None, "{bad:?}");
        }
    }
}
