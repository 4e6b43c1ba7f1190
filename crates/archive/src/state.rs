//! Finding the committed state of a file (section 5). A walk goes forward from the last known record, from
//! header to header, to the last valid record. The records before it form a chain.
//!
//! The walk never searches the data of members: an upstream chose those bytes, and they decide nothing about
//! commits.
//!
//! Invariants of a state. The writer checks them before it commits, and the reader when it opens an archive
//! ([`State::violation`]):
//! - The record is the last part of its group, and ends on a block boundary.
//! - A group starts where the previous record ends. The first group starts at byte 0.
//! - Live members start on block boundaries, end before the record, and do not overlap.
//! - The member that holds the record is not a live member.
//! - If the last record is full, no other record counts.
//!
//! Each commit has a higher number than the one before. Nothing ever changes committed bytes.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::end::EndMark;
use crate::error::{Error, Result, damaged};
use crate::record::{END_BYTES, MAGIC, RECORD_BYTES_MAX, RECORD_NAME, Record, RecordPlace};
use crate::storage::Storage;
use crate::sum::Sha256Sum;
use crate::tail::{Tail, TailKind};
use crate::tar::{BLOCK_BYTES, Headers};

/// A live member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Where its data starts, in bytes from the start of the archive.
    pub offset: u64,
    /// Bytes of data.
    pub len: u64,
    /// Checksum of the data.
    pub sha256: Sha256Sum,
}

/// Everything that is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The record of the commit.
    pub record: Record,
    /// Where that record lies.
    pub(crate) record_at: RecordPlace,
    /// Live members by name.
    pub members: BTreeMap<String, Member>,
    /// Live attributes.
    pub attributes: BTreeMap<String, String>,
    /// The number of records that were read to build this state: 1 if the last one is full.
    pub chain_len: u32,
}

impl State {
    /// Returns the checksum of the record: no other state of any archive has the same.
    pub fn sum(&self) -> Sha256Sum {
        self.record_at.sum
    }

    /// Returns where the committed part ends: the length that the file should have.
    pub fn end(&self) -> u64 {
        self.record_at.end()
    }

    /// Returns a description of the first invariant (see the head of this file) that the state breaks.
    pub(crate) fn violation(&self) -> Option<String> {
        let RecordPlace { offset: record_offset, len: record_len, .. } = self.record_at;
        let start = self.record.start;
        let end = record_offset.checked_add(record_len);
        if !end.is_some_and(|end| end.is_multiple_of(BLOCK_BYTES)) || record_offset <= start {
            return Some(format!(
                "the record at {record_offset} does not end its group, which starts at {start}"
            ));
        }
        let previous_end =
            self.record.previous.map_or(Some(0), |previous| previous.offset.checked_add(previous.len));
        if previous_end != Some(start) {
            return Some(format!("its group starts at {start}, not where the one before ends"));
        }
        if self.record.full && self.chain_len != 1 {
            return Some(format!("its record is full, and the last of {} that count", self.chain_len));
        }
        if self.members.contains_key(RECORD_NAME) {
            return Some(format!("'{RECORD_NAME}' is a live member"));
        }
        let mut members: Vec<(u64, u64, &str)> =
            self.members.iter().map(|(name, member)| (member.offset, member.len, name.as_str())).collect();
        members.sort_unstable();
        let mut free_from = 0;
        for (offset, len, name) in members {
            let end = offset.checked_add(len).filter(|end| *end <= record_offset);
            let Some(end) = end else {
                return Some(format!("member '{name}' reaches beyond its commit record"));
            };
            if !offset.is_multiple_of(BLOCK_BYTES) || offset < free_from {
                return Some(format!("member '{name}' at {offset} starts inside of another or of a block"));
            }
            free_from = end;
        }
        None
    }

    /// Returns the end mark of this state. Writers store it beside the data, and readers start from it.
    pub(crate) fn end_mark(&self, seq_max: u64) -> EndMark {
        EndMark { end: self.end(), sum: self.record_at.sum, seq_max: seq_max.max(self.record.seq) }
    }
}

/// A record and where it lies.
type Placed = (Record, RecordPlace);

/// The state of the last valid commit, and the bytes that follow it in the file.
pub(crate) struct FoundState {
    pub(crate) state: State,
    pub(crate) tail: Option<Tail>,
    /// The highest number that a commit was given.
    pub(crate) seq_max: u64,
}

fn read_record(storage: &impl Storage, offset: u64, len: u64) -> Result<Option<(Record, Sha256Sum)>> {
    Ok(read_record_data(storage, offset, len)?.and_then(|data| Record::decode(&data)))
}

fn read_record_data(storage: &impl Storage, offset: u64, len: u64) -> Result<Option<Vec<u8>>> {
    if !(512..=RECORD_BYTES_MAX).contains(&len) || offset < BLOCK_BYTES {
        return Ok(None);
    }
    let mut data = vec![0; len as usize];
    match storage.read_exact_at(&mut data, offset) {
        Ok(()) => Ok(Some(data)),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Returns the record that `mark` points to, if it is there. The checksum in the mark identifies the record.
fn record_at_mark(storage: &impl Storage, mark: &EndMark, len: u64) -> Result<Option<Placed>> {
    if mark.end < 2 * BLOCK_BYTES || mark.end > len {
        return Ok(None);
    }
    let mut tail = [0; END_BYTES];
    storage.read_exact_at(&mut tail, mark.end - END_BYTES as u64)?;
    let Some(len) = Record::length_from_tail(&tail).filter(|len| *len < mark.end) else { return Ok(None) };
    let offset = mark.end - len;
    let found = read_record(storage, offset, len)?.filter(|(_, sum)| *sum == mark.sum);
    Ok(found.map(|(record, sum)| (record, RecordPlace { offset, len, sum })))
}

/// The result of a walk over the headers of a group.
enum GroupRecord {
    /// A valid record at the end of its group.
    Whole(Box<Placed>),
    /// A record that is invalid, or does not match its group.
    Broken,
    /// No record.
    Open,
}

/// Walks the headers of the group that starts at `start`, behind the record at `previous`, to its record. It
/// does not read the data of members.
fn group_at(
    storage: &impl Storage,
    start: u64,
    previous: Option<RecordPlace>,
    len: u64,
) -> Result<GroupRecord> {
    let mut headers = Headers::new(storage, start, len);
    let mut frame = Sha256::new();
    let mut own_members = BTreeMap::new();
    let record_at = loop {
        match headers.next() {
            Ok(Some((member, _))) if member.is_file && member.name == RECORD_NAME => break member,
            Ok(Some((member, header))) => {
                frame.update(header);
                if member.is_file {
                    own_members.insert(member.offset, (member.name, member.len));
                }
            }
            Ok(None) | Err(Error::Damaged { .. }) => return Ok(GroupRecord::Open),
            Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Ok(GroupRecord::Open);
            }
            Err(e) => return Err(e),
        }
    };
    let Some(data) = read_record_data(storage, record_at.offset, record_at.len)? else {
        return Ok(GroupRecord::Broken);
    };
    let Some((record, sum)) = Record::decode(&data) else {
        return Record::later_version(&data).map_or(Ok(GroupRecord::Broken), |v| Err(Error::Newer(v)));
    };
    let place = RecordPlace { offset: record_at.offset, len: record_at.len, sum };
    let is_right = record.start == start
        && record.previous == previous
        && record.frame == Sha256Sum::from(frame.finalize())
        && members_fit(&record, &own_members);
    Ok(if is_right { GroupRecord::Whole(Box::new((record, place))) } else { GroupRecord::Broken })
}

/// Checks whether the members of its own group that `record` lists are exactly those that the headers lead
/// to.
fn members_fit(record: &Record, own_members: &BTreeMap<u64, (String, u64)>) -> bool {
    let mut listed = record.members.iter().filter(|m| m.1 >= record.start);
    let all_are_there = listed
        .clone()
        .all(|(name, offset, len, _)| own_members.get(offset).is_some_and(|m| (&m.0, m.1) == (name, *len)));
    all_are_there && listed.by_ref().count() == own_members.len()
}

/// Checks whether the data of the group of `record` is unchanged. Data that was durable before the record was
/// written is not read here; [`crate::verify()`] reads it.
fn data_of_group_holds(storage: &impl Storage, record: &Record) -> Result<bool> {
    if record.synced {
        return Ok(true);
    }
    for (_, offset, len, sum) in record.members.iter().filter(|m| m.1 >= record.start) {
        if !data_holds(storage, *offset, *len, sum)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks whether the data at `offset` still has the checksum `sum`.
pub(crate) fn data_holds(storage: &impl Storage, offset: u64, len: u64, sum: &Sha256Sum) -> Result<bool> {
    let mut hasher = Sha256::new();
    let mut buf = vec![0; len.min(1 << 20) as usize];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(buf.len() as u64) as usize;
        match storage.read_exact_at(&mut buf[..n], offset + done) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        hasher.update(&buf[..n]);
        done += n as u64;
    }
    Ok(Sha256Sum::from(hasher.finalize()) == *sum)
}

/// The result of a walk from header to header.
struct Last {
    /// The last valid record.
    placed: Option<Placed>,
    /// Whether commits that the end mark records are lost.
    is_lost: bool,
    /// Whether an invalid record follows.
    is_broken: bool,
}

/// Walks forward from the record that the end mark points to. If `reads_group`, checks the group of that
/// record first.
fn last_from_mark(
    storage: &impl Storage,
    (record, place): Placed,
    len: u64,
    reads_group: bool,
) -> Result<Last> {
    let is_whole = !reads_group
        || match group_at(storage, record.start, record.previous, place.end())? {
            GroupRecord::Whole(found) => found.1 == place && data_of_group_holds(storage, &record)?,
            GroupRecord::Broken | GroupRecord::Open => false,
        };
    if is_whole {
        return last_from(storage, Some((record, place)), len);
    }
    Ok(Last { placed: previous(storage, &record)?, is_lost: true, is_broken: true })
}

/// Walks forward from the valid record `known`, or from the first byte if there is none.
fn last_from(storage: &impl Storage, known: Option<Placed>, len: u64) -> Result<Last> {
    let known_at = known.as_ref().map(|(_, place)| *place);
    let mut last = known;
    let mut is_broken = loop {
        let (start, previous, seq) =
            last.as_ref().map_or((0, None, 0), |(record, place)| (place.end(), Some(*place), record.seq));
        match group_at(storage, start, previous, len)? {
            GroupRecord::Whole(found) if previous.is_none() || found.0.seq > seq => last = Some(*found),
            GroupRecord::Whole(_) | GroupRecord::Broken => break true,
            GroupRecord::Open => break false,
        }
    };
    // Check from the end: a group was durable before the next one was written.
    while let Some((record, place)) = &last
        && Some(*place) != known_at
        && !data_of_group_holds(storage, record)?
    {
        is_broken = true;
        last = previous(storage, record)?;
    }
    Ok(Last { placed: last, is_lost: false, is_broken })
}

/// Finds the committed state of `storage`, and what lies behind it. Starts at the end mark, or at the first
/// byte if there is no mark, and walks from header to header.
///
/// # Errors
/// [`Error::NoCommit`] if nothing was ever committed, [`Error::Damaged`] if the chain of records is broken.
pub(crate) fn find(storage: &impl Storage) -> Result<FoundState> {
    let Located { record, place, tail, seq_max } = locate(storage, true)?;
    Ok(FoundState { state: assemble(storage, record, place)?, tail, seq_max })
}

/// Finds the last valid record and what lies behind it, without the chain of records before it. Of the group
/// that the end mark points to, it reads only the record: that group was durable before the mark was written.
/// So a check of the ends of ten million archives reads no groups.
///
/// # Errors
/// [`Error::NoCommit`] if nothing was ever committed.
pub(crate) fn find_last(storage: &impl Storage) -> Result<(Record, Option<Tail>)> {
    locate(storage, false).map(|located| (located.record, located.tail))
}

struct Located {
    record: Record,
    place: RecordPlace,
    tail: Option<Tail>,
    seq_max: u64,
}

fn locate(storage: &impl Storage, reads_group: bool) -> Result<Located> {
    let len = storage.len()?;
    let mark = storage.end_mark()?;
    let marked = match &mark {
        Some(mark) => record_at_mark(storage, mark, len)?,
        None => None,
    };
    let last = match marked {
        Some(marked) => last_from_mark(storage, marked, len, reads_group)?,
        None => {
            let last = last_from(storage, None, len)?;
            // If the content has higher numbers than the mark, another program put it there, and the mark is
            // that of another file.
            let seq = last.placed.as_ref().map_or(0, |(record, _)| record.seq);
            Last { is_lost: mark.is_some_and(|mark| mark.seq_max > seq), ..last }
        }
    };
    let Some((record, place)) = last.placed else { return Err(Error::NoCommit) };
    let mut seq_max = mark.map_or(0, |mark| mark.seq_max).max(record.seq);
    let mut tail = None;
    if last.is_lost || len > place.end() {
        let ending = seq_in_ending(storage, place.end(), len)?;
        let is_doubtful = last.is_broken || ending.is_some();
        if is_doubtful {
            // An upstream may have chosen these bytes, so they may name any number. But each commit takes at
            // least two blocks.
            let room = len.saturating_sub(place.end()) / (2 * BLOCK_BYTES);
            let possible = record.seq.saturating_add(1)..=record.seq.saturating_add(room.max(1));
            seq_max = seq_max.max(ending.filter(|seq| possible.contains(seq)).unwrap_or(*possible.start()));
        }
        let kind = match (last.is_lost, is_doubtful) {
            (true, _) => TailKind::Committed,
            (false, true) => TailKind::Doubtful,
            (false, false) => TailKind::Unfinished,
        };
        tail = Some(Tail {
            offset: place.end(),
            len: len.saturating_sub(place.end()),
            seq: record.seq,
            seq_max,
            kind,
        });
    }
    Ok(Located { record, place, tail, seq_max })
}

/// Returns the number in the record that the file ends in, 0 if there is none in it; `None` if the file does
/// not end as a record does.
fn seq_in_ending(storage: &impl Storage, start: u64, len: u64) -> Result<Option<u64>> {
    let end = len - len % BLOCK_BYTES;
    if end < start + BLOCK_BYTES {
        return Ok(None);
    }
    let mut tail = [0; END_BYTES];
    storage.read_exact_at(&mut tail, end - END_BYTES as u64)?;
    let Some(len) = Record::length_from_tail(&tail) else { return Ok(None) };
    let mut head = [0; 64];
    let from = end.saturating_sub(len).max(start);
    storage.read_exact_at(&mut head, from)?;
    let text = String::from_utf8_lossy(&head);
    let seq =
        text.strip_prefix(MAGIC).and_then(|text| text.lines().nth(1)?.strip_prefix("seq ")?.parse().ok());
    Ok(Some(seq.unwrap_or(0)))
}

/// Reads the record before `record`.
pub(crate) fn previous(storage: &impl Storage, record: &Record) -> Result<Option<Placed>> {
    let Some(place @ RecordPlace { offset, len, sum }) = record.previous else { return Ok(None) };
    if offset.checked_add(len) != Some(record.start) {
        return damaged(offset, format!("commit {} does not start where the one before ends", record.seq));
    }
    match read_record(storage, offset, len)? {
        Some((older, older_sum))
            if older_sum == sum && older.seq < record.seq && older.start < record.start =>
        {
            Ok(Some((older, place)))
        }
        _ => damaged(
            offset,
            format!("the commit record before number {} is not what that one says", record.seq),
        ),
    }
}

/// Builds the state as of `record`: applies the chain from the newest full record on.
pub(crate) fn assemble(storage: &impl Storage, record: Record, record_at: RecordPlace) -> Result<State> {
    let mut chain = vec![record];
    while !chain[chain.len() - 1].full {
        match previous(storage, &chain[chain.len() - 1])? {
            Some((older, _)) => chain.push(older),
            None => break,
        }
    }
    let chain_len = chain.len() as u32;
    let mut members = BTreeMap::new();
    let mut attributes = BTreeMap::new();
    for r in chain.iter().rev() {
        for name in &r.dropped {
            members.remove(name);
        }
        for (name, offset, len, sha256) in &r.members {
            members.insert(name.clone(), Member { offset: *offset, len: *len, sha256: *sha256 });
        }
        for key in &r.unset {
            attributes.remove(key);
        }
        for (key, value) in &r.set {
            attributes.insert(key.clone(), value.clone());
        }
    }
    // Every group holds a record member of its own; it is not one of the live members.
    members.remove(RECORD_NAME);
    let record = chain.swap_remove(0);
    let state = State { record, record_at, members, attributes, chain_len };
    match state.violation() {
        Some(what) => damaged(record_at.offset, format!("commit {}: {what}", state.record.seq)),
        None => Ok(state),
    }
}

#[cfg(test)]
mod tests {
    use weir_ground::{Epoch, Timestamp};

    use super::*;
    use crate::record::VERSION;

    fn place(offset: u64, len: u64) -> RecordPlace {
        RecordPlace { offset, len, sum: [0; 32] }
    }

    /// Returns a valid state: two members, in the second group of an archive.
    fn sample() -> State {
        let record = Record {
            version: VERSION,
            seq: 2,
            epoch: Epoch::NONE,
            time: Timestamp(1),
            start: 2048,
            previous: Some(place(1024, 1024)),
            full: false,
            synced: false,
            frame: [0; 32],
            members: Vec::new(),
            dropped: Vec::new(),
            set: Vec::new(),
            unset: Vec::new(),
        };
        let member = |offset, len| Member { offset, len, sha256: [0; 32] };
        let members = [("a", member(512, 512)), ("b", member(2560, 700))];
        State {
            record,
            record_at: place(4096, 1024),
            members: members.map(|(name, member)| (name.to_owned(), member)).into(),
            attributes: BTreeMap::new(),
            chain_len: 2,
        }
    }

    #[test]
    fn what_does_not_hold_of_a_state_is_told() {
        assert_eq!(sample().violation(), None);
        type Breaks = fn(&mut State);
        let broken: [(&str, Breaks); 9] = [
            ("does not end its group", |s| s.record_at.len = 1000),
            ("does not end its group", |s| s.record_at.offset = 2048),
            ("does not end its group", |s| s.record_at.offset = u64::MAX),
            ("not where the one before ends", |s| s.record.previous = None),
            ("not where the one before ends", |s| s.record.start = 2560),
            ("is full", |s| s.record.full = true),
            ("beyond its commit record", |s| s.members.get_mut("b").unwrap().len = 2000),
            ("inside of another", |s| s.members.get_mut("b").unwrap().offset = 512),
            ("inside of another or of a block", |s| s.members.get_mut("b").unwrap().offset = 2600),
        ];
        for (what, breaks) in broken {
            let mut state = sample();
            breaks(&mut state);
            let said = state.violation().unwrap_or_default();
            assert!(said.contains(what), "{what}: {said}");
        }
    }
}
