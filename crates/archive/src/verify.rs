//! Checking every committed byte (`weir fsck`).

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::record::{Record, Sha256Sum};
use crate::state::{self, data_holds};
use crate::storage::Storage;
use crate::tar::{BLOCK_BYTES, walk_members};

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where, in bytes from the start of the archive.
    pub offset: u64,
    /// In which commit.
    pub seq: u64,
    /// What.
    pub what: String,
}

/// Checks all groups of an archive: every record, every header, every member's checksum.
///
/// # Errors
/// Of the system, and [`Error::NoCommit`]. Damage is no error but the answer.
pub fn verify(storage: &impl Storage) -> Result<Vec<Damage>> {
    let state = state::find(storage)?;
    let mut damage = Vec::new();
    let (mut record, mut at) = (state.record, state.record_at.0);
    loop {
        verify_group(storage, &record, at, &mut damage)?;
        match state::previous(storage, &record) {
            Ok(Some((older, older_at))) => (record, at) = (older, older_at.0),
            Ok(None) => break,
            Err(Error::Damaged { offset, what }) => {
                damage.push(Damage { offset, seq: record.seq.saturating_sub(1), what });
                break;
            }
            Err(e) => return Err(e),
        }
    }
    damage.sort_by_key(|d| d.offset);
    Ok(damage)
}

fn verify_group(storage: &impl Storage, record: &Record, at: u64, damage: &mut Vec<Damage>) -> Result<()> {
    let sums: BTreeMap<u64, (&str, Sha256Sum)> =
        record.members.iter().map(|(name, offset, _, sum)| (*offset, (name.as_str(), *sum))).collect();
    let mut frame = Sha256::new();
    let mut found = Vec::new();
    let walked = walk_members(storage, record.start, at - BLOCK_BYTES, |member, header| {
        frame.update(header);
        let Some((name, sum)) = sums.get(&member.offset).filter(|_| member.is_file) else { return Ok(()) };
        if !data_holds(storage, member.offset, member.len, sum)? {
            found.push((member.offset, format!("the content of '{name}' has a wrong checksum")));
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
        Err(Error::Damaged { offset, what }) => found.push((offset, what)),
        Err(e) => return Err(e),
    }
    damage.extend(found.into_iter().map(|(offset, what)| Damage { offset, seq: record.seq, what }));
    Ok(())
}
