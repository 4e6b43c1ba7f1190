//! Finding the committed state of a file (section 5): the last record that holds, and the chain of those before it.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result, damaged};
use crate::record::{END_BYTES, RECORD_BYTES_MAX, RECORD_NAME, Record, RecordPlace, Sha256Sum};
use crate::storage::Storage;
use crate::tar::{BLOCK_BYTES, walk_members};

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
    /// The record that says so.
    pub record: Record,
    /// Where that record's data starts, its length, and its checksum.
    pub(crate) record_at: RecordPlace,
    /// Live members by name.
    pub members: BTreeMap<String, Member>,
    /// Live attributes.
    pub attributes: BTreeMap<String, String>,
    /// Records that were read to know this: 1 if the last one was full.
    pub chain_len: u32,
}

impl State {
    /// Where the committed part ends: the length the file should have.
    pub fn end(&self) -> u64 {
        self.record_at.0 + self.record_at.1
    }
}

fn read_record(storage: &impl Storage, offset: u64, len: u64) -> Result<Option<(Record, Sha256Sum)>> {
    if !(512..=RECORD_BYTES_MAX).contains(&len) || offset < BLOCK_BYTES {
        return Ok(None);
    }
    let mut data = vec![0; len as usize];
    match storage.read_exact_at(&mut data, offset) {
        Ok(()) => Ok(Record::decode(&data)),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// A record and where it lies.
type Placed = (Record, RecordPlace);

/// The record whose data ends at `end`, with its offset, if one does.
fn record_ending_at(storage: &impl Storage, end: u64) -> Result<Option<Placed>> {
    if end < 2 * BLOCK_BYTES {
        return Ok(None);
    }
    let mut tail = [0; END_BYTES];
    storage.read_exact_at(&mut tail, end - END_BYTES as u64)?;
    let Some(len) = Record::length_from_tail(&tail).filter(|len| *len < end) else { return Ok(None) };
    let found = read_record(storage, end - len, len)?;
    Ok(found.map(|(record, sum)| (record, (end - len, len, sum))))
}

/// Whether the group of a record is all there. The headers are walked from the group's start, and must lead exactly to
/// the record: bytes inside a member that merely look like a record are never taken for one.
fn group_holds(storage: &impl Storage, record: &Record, at: u64) -> Result<bool> {
    let expected_start = record.previous.map_or(0, |(offset, len, _)| offset + len);
    if record.start != expected_start || at < record.start + BLOCK_BYTES {
        return Ok(false);
    }
    let mut frame = Sha256::new();
    let mut own_members = BTreeMap::new();
    let walked = walk_members(storage, record.start, at - BLOCK_BYTES, |member, header| {
        frame.update(header);
        if member.is_file {
            own_members.insert(member.offset, (member.name.clone(), member.len));
        }
        Ok(())
    });
    match walked {
        Ok(()) => {}
        Err(Error::Io(e)) if e.kind() != std::io::ErrorKind::UnexpectedEof => return Err(Error::Io(e)),
        Err(_) => return Ok(false),
    }
    if Sha256Sum::from(frame.finalize()) != record.frame {
        return Ok(false);
    }
    let listed = record.members.iter().filter(|m| m.1 >= record.start);
    let mut listed_count = 0;
    for (name, offset, len, sum) in listed {
        listed_count += 1;
        if own_members.get(offset).is_none_or(|m| (m.0.as_str(), m.1) != (name.as_str(), *len)) {
            return Ok(false);
        }
        // Data that was durable before the record was written needs no second look here; `verify` takes one.
        if !record.synced && !data_holds(storage, *offset, *len, sum)? {
            return Ok(false);
        }
    }
    Ok(listed_count == own_members.len())
}

/// Whether the data at `offset` still has its checksum.
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

/// The committed state of `storage`, of which a torn tail is no part.
///
/// # Errors
/// [`Error::NoCommit`] if nothing was ever committed, [`Error::Damaged`] if the chain of records is broken.
pub(crate) fn find(storage: &impl Storage) -> Result<State> {
    let len = storage.len()?;
    let last_boundary = len - len % BLOCK_BYTES;
    if let Some((record, at)) = record_ending_at(storage, last_boundary)?
        && group_holds(storage, &record, at.0)?
    {
        return assemble(storage, record, at);
    }
    // A torn tail: look back for the last record that holds, many blocks a read.
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut chunk_end = last_boundary;
    let mut buf = vec![0; CHUNK_BYTES as usize];
    while chunk_end > 0 {
        let chunk_start = chunk_end.saturating_sub(CHUNK_BYTES);
        let chunk = &mut buf[..(chunk_end - chunk_start) as usize];
        storage.read_exact_at(chunk, chunk_start)?;
        for block_end in (512..=chunk.len()).rev().step_by(512) {
            let tail: &[u8; END_BYTES] = chunk[block_end - END_BYTES..block_end].try_into().expect("sized");
            if Record::length_from_tail(tail).is_none() {
                continue;
            }
            if let Some((record, at)) = record_ending_at(storage, chunk_start + block_end as u64)?
                && group_holds(storage, &record, at.0)?
            {
                return assemble(storage, record, at);
            }
        }
        chunk_end = chunk_start;
    }
    Err(Error::NoCommit)
}

/// The record before `record`.
pub(crate) fn previous(storage: &impl Storage, record: &Record) -> Result<Option<Placed>> {
    let Some((offset, len, sum)) = record.previous else { return Ok(None) };
    match read_record(storage, offset, len)? {
        Some((older, older_sum)) if older_sum == sum && older.seq < record.seq && older.start < record.start => {
            Ok(Some((older, (offset, len, sum))))
        }
        _ => damaged(offset, format!("the commit record before number {} is not what that one says", record.seq)),
    }
}

/// The state as of `record`: applies the chain from the newest full record on.
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
            if offset.checked_add(*len).is_none_or(|end| end > record_at.0) {
                return damaged(*offset, format!("member '{name}' reaches beyond its commit record"));
            }
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
    Ok(State { record, record_at, members, attributes, chain_len })
}
