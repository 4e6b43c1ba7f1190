//! Checking every committed byte (`weir fsck`).

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::record::{RECORD_NAME, Record, RecordPlace};
use crate::state::{self, data_holds};
use crate::storage::Storage;
use crate::sum::Sha256Sum;
use crate::tail::{TailKind, tail_is};
use crate::tar::{self, BLOCK_BYTES, walk_members};

/// A place where an archive is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The place, in bytes from the start of the archive.
    pub offset: u64,
    /// The number of the commit.
    pub seq: u64,
    /// A description of the damage for a person.
    pub what: String,
    /// Whether these are bytes behind the last commit that no commit covers: normal after a kill.
    pub is_unfinished: bool,
}

/// Checks all groups of an archive: every record, every header, every member's checksum, and that nothing
/// lies behind the last commit. Reports blocks that cannot be read, and goes on behind them.
///
/// # Errors
/// If a system call fails; [`Error::NoCommit`]. Damage is not an error: it is returned.
pub fn verify(storage: &impl Storage) -> Result<Vec<Damage>> {
    let found = state::find(storage)?;
    let mut damage = Vec::new();
    if let Some(tail) = &found.tail {
        damage.push(Damage {
            offset: tail.offset,
            seq: tail.seq_max,
            what: tail_is(tail),
            is_unfinished: tail.kind == TailKind::Unfinished,
        });
    }
    let (mut record, mut at) = (found.state.record, found.state.record_at);
    loop {
        verify_group(storage, &record, &at, &mut damage)?;
        match state::previous(storage, &record) {
            Ok(Some(older)) => (record, at) = older,
            Ok(None) => break,
            Err(e) => {
                let (offset, what) = told(e, at.offset)?;
                damage.push(Damage { offset, seq: record.seq.saturating_sub(1), what, is_unfinished: false });
                break;
            }
        }
    }
    damage.sort_by_key(|d| d.offset);
    Ok(damage)
}

/// Returns where something is damaged according to `e`, and what. What cannot be read is taken to be at
/// `offset`.
fn told(e: Error, offset: u64) -> Result<(u64, String)> {
    match e {
        Error::Damaged { offset, what } => Ok((offset, what)),
        e if e.is_unreadable() => Ok((offset, format!("it cannot be read: {e}"))),
        e => Err(e),
    }
}

fn verify_group(
    storage: &impl Storage,
    record: &Record,
    at: &RecordPlace,
    damage: &mut Vec<Damage>,
) -> Result<()> {
    let sums: BTreeMap<u64, (&str, Sha256Sum)> =
        record.members.iter().map(|(name, offset, _, sum)| (*offset, (name.as_str(), *sum))).collect();
    let mut frame = Sha256::new();
    let mut found = Vec::new();
    let header_at = at.offset - BLOCK_BYTES;
    let walked = walk_members(storage, record.start, header_at, |member, header| {
        frame.update(header);
        let Some((name, sum)) = sums.get(&member.offset).filter(|_| member.is_file) else { return Ok(()) };
        match data_holds(storage, member.offset, member.len, sum) {
            Ok(true) => {}
            Ok(false) => found.push((member.offset, format!("the content of '{name}' has a wrong checksum"))),
            Err(e) => {
                let (offset, what) = told(e, member.offset)?;
                found.push((offset, format!("'{name}': {what}")));
                return Ok(());
            }
        }
        let padding = (member.end() - member.offset - member.len) as usize;
        let mut bytes = [0; 512];
        storage.read_exact_at(&mut bytes[..padding], member.offset + member.len)?;
        if bytes[..padding].iter().any(|b| *b != 0) {
            found.push((member.offset + member.len, format!("the padding after '{name}' is not zero")));
        }
        Ok(())
    });
    match walked {
        Ok(()) if Sha256Sum::from(frame.finalize()) != record.frame => {
            found.push((record.start, "a header of this group has changed".to_owned()));
        }
        Ok(()) => {}
        Err(e) => found.push(told(e, record.start)?),
    }
    // The record's own header is not part of the frame, because the record holds the sum of the frame.
    let mut header = [0; 512];
    match storage.read_exact_at(&mut header, header_at).map_err(Error::from) {
        Ok(()) if header == tar::file_header(RECORD_NAME, at.len) => {}
        Ok(()) => found.push((header_at, "the header of the commit record has changed".to_owned())),
        Err(e) => found.push(told(e, header_at)?),
    }
    damage.extend(found.into_iter().map(|(offset, what)| Damage {
        offset,
        seq: record.seq,
        what,
        is_unfinished: false,
    }));
    Ok(())
}
