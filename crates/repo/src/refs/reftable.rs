//! Reads refs from a reftable (reftable.adoc of git's technical documentation): a stack of tables of sorted
//! blocks. Later tables override earlier ones. Only refs are read. Logs, and indices that serve single
//! lookups, are skipped.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use weir_git::{HashKind, Oid};

use crate::error::{Error, Result, corrupt};
use crate::files::read_if_there;

/// The most bytes of one table.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// The most bytes of the list of tables.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of a name, or of the target of a symbolic ref.
const NAME_BYTES_MAX: usize = 64 << 10;
/// How often the list is read again because a table that it names was merged into another meanwhile.
const TRIES_MAX: usize = 20;

const MAGIC: &[u8] = b"REFT";
/// The size of the header in bytes: version 2 adds the hash.
const HEADER_BYTES: [usize; 2] = [24, 28];
/// The bytes of the footer besides a copy of the header: five positions and a checksum.
const FOOTER_REST_BYTES: usize = 5 * 8 + 4;
/// The bytes of the type and length of a block.
const BLOCK_HEAD_BYTES: usize = 4;
const RESTART_BYTES: usize = 3;
const RESTART_COUNT_BYTES: usize = 2;

/// The value of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefValue {
    /// An object, and its peeled id if the table has it.
    Direct(Oid, Option<Oid>),
    /// Another ref.
    Symbolic(Vec<u8>),
}

/// Refs by name, including `HEAD` and the like.
pub type RefValues = BTreeMap<Vec<u8>, RefValue>;

/// Reads the stack of tables in `folder`.
///
/// # Errors
/// If the stack is missing, or a table is damaged.
pub(crate) fn read_stack(folder: &Path, hash: HashKind) -> Result<RefValues> {
    let mut tries = 0;
    'again: loop {
        tries += 1;
        let list = folder.join("tables.list");
        let Some(list) = read_if_there(&list, LIST_BYTES_MAX)? else {
            return corrupt(list.display().to_string(), "it is missing");
        };
        let mut refs = RefValues::new();
        for name in list.split(|&c| c == b'\n').filter(|name| !name.is_empty()) {
            let name = std::str::from_utf8(name)
                .ok()
                .filter(|name| !name.contains('/') && *name != ".." && *name != ".");
            let Some(name) = name else {
                return corrupt(
                    folder.join("tables.list").display().to_string(),
                    "a name of a table leads elsewhere",
                );
            };
            let path = folder.join(name);
            match read_if_there(&path, TABLE_BYTES_MAX)? {
                Some(table) => read_table(&table, hash, &path.display().to_string(), &mut refs)?,
                None if tries < TRIES_MAX => continue 'again,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("'{}' is missing", path.display()),
                    )
                    .into());
                }
            }
        }
        return Ok(refs);
    }
}

/// Reads the refs of one table, called `name` in errors, into `refs`. They override what is there.
///
/// # Errors
/// If the table is damaged, or of another hash.
pub fn read_table(table: &[u8], hash: HashKind, name: &str, refs: &mut RefValues) -> Result<()> {
    let header_bytes = match table {
        _ if !table.starts_with(MAGIC) => return corrupt(name, "no reftable"),
        [_, _, _, _, version @ (1 | 2), ..] => HEADER_BYTES[usize::from(*version) - 1],
        _ => {
            return Err(Error::Unsupported(format!(
                "'{name}' is a reftable of a version that weir does not know"
            )));
        }
    };
    let Some(footer_at) =
        table.len().checked_sub(header_bytes + FOOTER_REST_BYTES).filter(|at| *at >= header_bytes)
    else {
        return corrupt(name, "cut short");
    };
    let (header, footer) = (&table[..header_bytes], &table[footer_at..]);
    let sum = u32::from_be_bytes(footer[footer.len() - 4..].try_into().expect("four bytes"));
    if !footer.starts_with(header) || crc32fast::hash(&footer[..footer.len() - 4]) != sum {
        return corrupt(name, "its footer has a wrong checksum");
    }
    let is_right_hash = match (header.get(24..28), hash) {
        (None, HashKind::Sha1) => true,
        (Some(id), HashKind::Sha1) => id == b"sha1",
        (Some(id), HashKind::Sha256) => id == b"s256",
        (None, HashKind::Sha256) => false,
    };
    if !is_right_hash {
        return corrupt(name, format!("its ids are not of {}", hash.name()));
    }
    let block_bytes = be24(&header[5..8]);
    let mut at = 0;
    while at < footer_at {
        // The first block begins with the header.
        let head = if at == 0 { header_bytes } else { at };
        let Some(&[kind, ref len @ ..]) = table[..footer_at].get(head..head + BLOCK_HEAD_BYTES) else {
            break;
        };
        if kind != b'r' {
            break;
        }
        let len = be24(len);
        let Some(block) =
            table[..footer_at].get(at..at + len).filter(|block| block.len() > head - at + BLOCK_HEAD_BYTES)
        else {
            return corrupt(name, format!("the block at {at} is cut short"));
        };
        read_block(&block[head - at + BLOCK_HEAD_BYTES..], hash, refs)
            .map_or_else(|| corrupt(name, format!("the block at {at} is damaged")), Ok)?;
        at += if block_bytes == 0 { len } else { len.next_multiple_of(block_bytes) };
    }
    Ok(())
}

/// Reads the refs of a block without its head.
fn read_block(block: &[u8], hash: HashKind, refs: &mut RefValues) -> Option<()> {
    let restarts = u16::from_be_bytes(block.last_chunk().copied()?);
    let mut rest =
        block.get(..block.len().checked_sub(RESTART_COUNT_BYTES + usize::from(restarts) * RESTART_BYTES)?)?;
    let mut name: Vec<u8> = Vec::new();
    while !rest.is_empty() {
        let shared = varint(&mut rest)?;
        let suffix_and_kind = varint(&mut rest)?;
        if shared > name.len() {
            return None;
        }
        name.truncate(shared);
        let suffix = take(&mut rest, suffix_and_kind >> 3)?;
        if name.len() + suffix.len() > NAME_BYTES_MAX {
            return None;
        }
        name.extend_from_slice(suffix);
        // The update index: when the ref was written.
        varint(&mut rest)?;
        let mut id = || Oid::from_bytes(hash, take(&mut rest, hash.len())?);
        let value = match suffix_and_kind & 7 {
            0 => None,
            1 => Some(RefValue::Direct(id()?, None)),
            2 => Some(RefValue::Direct(id()?, Some(id()?))),
            3 => {
                let len = varint(&mut rest).filter(|len| *len <= NAME_BYTES_MAX)?;
                Some(RefValue::Symbolic(take(&mut rest, len)?.to_vec()))
            }
            _ => return None,
        };
        match value {
            Some(value) => refs.insert(name.clone(), value),
            None => refs.remove(&name),
        };
    }
    Some(())
}

fn be24(bytes: &[u8]) -> usize {
    bytes.iter().take(3).fold(0, |n, b| n << 8 | usize::from(*b))
}

/// Reads a number in the encoding of delta offsets.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut n: usize = 0;
    loop {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        n = n.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(n);
        }
        n = n.checked_add(1)?;
    }
}

fn take<'d>(rest: &mut &'d [u8], len: usize) -> Option<&'d [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables that git 2.55 wrote: a table of several blocks, with an index and a log, and a second table
    /// that deletes and adds.
    fn folder(hash: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/reftable").join(hash)
    }

    #[test]
    fn tables_of_git_are_read() {
        let mut refs = read_stack(&folder("sha1"), HashKind::Sha1).unwrap();
        assert_eq!(refs.remove(&b"HEAD"[..]), Some(RefValue::Symbolic(b"refs/heads/main".to_vec())));
        // The output of 'git for-each-ref': name, id, peeled id, target.
        let list = std::fs::read_to_string(folder("sha1.refs")).unwrap();
        let mut count = 0;
        for line in list.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let oid = |hex: &str| Oid::from_hex(HashKind::Sha1, hex.as_bytes());
            let value = match words[3] {
                "" => RefValue::Direct(oid(words[1]).unwrap(), oid(words[2])),
                target => RefValue::Symbolic(target.as_bytes().to_vec()),
            };
            assert_eq!(refs.get(words[0].as_bytes()), Some(&value), "{line}");
            count += 1;
        }
        assert_eq!(refs.len(), count);
        let refs = read_stack(&folder("sha256"), HashKind::Sha256).unwrap();
        let head = refs.get(&b"HEAD"[..]).cloned();
        assert!(
            matches!(head, Some(RefValue::Direct(..))) && refs.get(&b"refs/heads/trunk"[..]).cloned() == head
        );
        assert!(read_stack(&folder("sha256"), HashKind::Sha1).is_err());
    }

    #[test]
    fn damaged_tables_are_refused() {
        let list = std::fs::read_to_string(folder("sha1/tables.list")).unwrap();
        let table = std::fs::read(folder("sha1").join(list.lines().next().unwrap())).unwrap();
        let read = |table: &[u8]| read_table(table, HashKind::Sha1, "t", &mut RefValues::new());
        read(&table).unwrap();
        for len in [0, 3, 5, 24, 90, table.len() - 1] {
            assert!(read(&table[..len]).is_err(), "{len}");
        }
        // No flipped bit may panic or take long.
        for at in 0..table.len().min(5000) {
            let mut bad = table.clone();
            bad[at] ^= 1 << (at % 8);
            let _ = read(&bad);
        }
        let missing = read_stack(&folder("none"), HashKind::Sha1).unwrap_err().to_string();
        assert!(missing.contains("tables.list"), "{missing}");
    }
}
