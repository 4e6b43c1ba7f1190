//! Tar headers: the subset of ustar that weir writes (section 2), and the walk from header to header.

use crate::error::{Error, Result, damaged};
use crate::storage::Storage;

/// Tar's unit: headers are one block, data is padded to whole blocks.
pub const BLOCK_BYTES: u64 = 512;
/// The alignment of the data of packs, so that it can be reflinked and mapped.
pub const ALIGNMENT_BYTES: u64 = 4096;
/// The longest member name, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

const TYPE_FILE: u8 = b'0';
const TYPE_DIRECTORY: u8 = b'5';
const TYPE_PAX: u8 = b'x';
const SIZE_OCTAL_MAX: u64 = 0o77_777_777_777;

/// Rounds `n` up to whole blocks.
pub(crate) fn padded(n: u64) -> u64 {
    n.next_multiple_of(BLOCK_BYTES)
}

/// Checks whether the format can hold this member name (section 2.1).
pub(crate) fn check_name(name: &str) -> Result<()> {
    let bytes = name.as_bytes();
    let plain = bytes.iter().all(|c| (b'!'..=b'~').contains(c));
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX || !plain || bytes[0] == b'/' {
        return Err(Error::BadName(name.to_owned()));
    }
    Ok(())
}

fn header(name: &str, mode: u32, size: u64, type_flag: u8) -> [u8; 512] {
    let mut h = [0u8; 512];
    h[..name.len()].copy_from_slice(name.as_bytes());
    let mut put = |at: usize, text: &str| h[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    if size <= SIZE_OCTAL_MAX {
        put(124, &format!("{size:011o}"));
    }
    put(136, "00000000000");
    put(148, "        ");
    put(257, "ustar");
    put(263, "00");
    if size > SIZE_OCTAL_MAX {
        // Base-256, which all readers understand. busybox loses what follows a pax size record.
        h[124] = 0x80;
        h[128..136].copy_from_slice(&size.to_be_bytes());
    }
    h[156] = type_flag;
    let sum: u32 = h.iter().map(|&c| u32::from(c)).sum();
    h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    h
}

/// Returns the header of a file member. Packs and their companions are never replaced, so they are read-only.
pub(crate) fn file_header(name: &str, size: u64) -> [u8; 512] {
    let read_only = name.starts_with("objects/pack/");
    header(name, if read_only { 0o444 } else { 0o644 }, size, TYPE_FILE)
}

/// Returns the header of a directory member; `name` ends in a slash.
pub(crate) fn directory_header(name: &str) -> [u8; 512] {
    header(name, 0o755, 0, TYPE_DIRECTORY)
}

/// Returns the pax header that moves the data of the next member, whose headers start at `position`, to a
/// multiple of [`ALIGNMENT_BYTES`] (section 2.3). It is empty if the data lies there anyway.
pub(crate) fn alignment_filler(position: u64) -> Vec<u8> {
    if (position + BLOCK_BYTES).is_multiple_of(ALIGNMENT_BYTES) {
        return Vec::new();
    }
    // Header block, `n` blocks of pax data, then the file's own header block.
    let after = position + 2 * BLOCK_BYTES;
    let n = match (after.next_multiple_of(ALIGNMENT_BYTES) - after) / BLOCK_BYTES {
        0 => ALIGNMENT_BYTES / BLOCK_BYTES,
        n => n,
    };
    let len = (n * BLOCK_BYTES) as usize;
    let mut out = header("weir/align", 0o644, len as u64, TYPE_PAX).to_vec();
    let lead = format!("{len} comment=");
    out.extend_from_slice(lead.as_bytes());
    out.resize(512 + len - 1, b'.');
    out.push(b'\n');
    out
}

/// The fields of a header.
pub(crate) struct Parsed {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) type_flag: u8,
}

fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        // Base-256: the first byte is a mark, and a size needs at most the last eight bytes. A checksum field
        // has no room for it.
        let (high, low) = field.split_at(field.len() - 8);
        let high_is_zero =
            high.split_first().is_some_and(|(&mark, rest)| mark == 0x80 && rest.iter().all(|&b| b == 0));
        return high_is_zero.then(|| u64::from_be_bytes(low.try_into().expect("eight bytes")));
    }
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|c| !(b'0'..=b'7').contains(c)).unwrap_or(digits.len());
    let rest_is_blank = digits[end..].iter().all(|&c| c == 0 || c == b' ');
    if end == 0 || !rest_is_blank {
        return None;
    }
    digits[..end].iter().try_fold(0u64, |n, c| n.checked_mul(8)?.checked_add(u64::from(c - b'0')))
}

pub(crate) fn parse_header(h: &[u8; 512]) -> Option<Parsed> {
    let sum: u32 =
        h.iter().enumerate().map(|(i, &c)| if (148..156).contains(&i) { 32 } else { u32::from(c) }).sum();
    if number(&h[148..156]) != Some(u64::from(sum)) || &h[257..262] != b"ustar" {
        return None;
    }
    let name_len = h[..100].iter().position(|&c| c == 0).unwrap_or(100);
    let name = std::str::from_utf8(&h[..name_len]).ok()?.to_owned();
    Some(Parsed { name, size: number(&h[124..136])?, type_flag: h[156] })
}

/// A member met while walking from header to header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedMember {
    /// Its name.
    pub name: String,
    /// Where its header block starts, or the pax header before it, if there is one.
    pub start: u64,
    /// Where its data starts.
    pub offset: u64,
    /// Bytes of data.
    pub len: u64,
    /// Whether it is a file rather than a directory.
    pub is_file: bool,
}

impl WalkedMember {
    /// Returns where the next header starts.
    pub fn end(&self) -> u64 {
        self.offset + padded(self.len)
    }
}

/// A walk from header to header.
pub(crate) struct Headers<'s, S> {
    storage: &'s S,
    position: u64,
    end: u64,
}

impl<'s, S: Storage> Headers<'s, S> {
    /// Starts a walk over the headers in `start..end`.
    pub(crate) fn new(storage: &'s S, start: u64, end: u64) -> Headers<'s, S> {
        Headers { storage, position: start, end }
    }

    /// Returns the next member, together with the frame bytes before its data: its pax header, if any, and
    /// its own header. Returns `None` at the end. It skips the data of members and does not read the padding
    /// after it.
    ///
    /// # Errors
    /// If a header is malformed or a member reaches beyond the end.
    pub(crate) fn next(&mut self) -> Result<Option<(WalkedMember, Vec<u8>)>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let mut frame = Vec::with_capacity(512);
        let mut at = self.position;
        let parsed = loop {
            if self.end - at < BLOCK_BYTES {
                return damaged(at, "a header is cut off");
            }
            let mut block = [0u8; 512];
            self.storage.read_exact_at(&mut block, at)?;
            let Some(parsed) = parse_header(&block) else { return damaged(at, "not a tar header") };
            frame.extend_from_slice(&block);
            at += BLOCK_BYTES;
            if parsed.type_flag != TYPE_PAX {
                break parsed;
            }
            // Only the alignment filler is ever written: one per member, of at most 8 blocks.
            if parsed.size > ALIGNMENT_BYTES || parsed.size > self.end - at || frame.len() > 512 {
                return damaged(at - BLOCK_BYTES, "unexpected pax header");
            }
            let from = frame.len();
            frame.resize(from + padded(parsed.size) as usize, 0);
            self.storage.read_exact_at(&mut frame[from..], at)?;
            at += padded(parsed.size);
        };
        let fits = parsed.size.checked_next_multiple_of(BLOCK_BYTES).is_some_and(|n| n <= self.end - at);
        if !fits {
            return damaged(at - BLOCK_BYTES, format!("member '{}' reaches beyond the end", parsed.name));
        }
        let is_file = match parsed.type_flag {
            TYPE_FILE => true,
            TYPE_DIRECTORY => false,
            t => return damaged(at - BLOCK_BYTES, format!("unexpected member type {t:#x}")),
        };
        let member =
            WalkedMember { name: parsed.name, start: self.position, offset: at, len: parsed.size, is_file };
        self.position = member.end();
        Ok(Some((member, frame)))
    }
}

/// Walks the members in `start..end` and gives each to `visit`, together with the frame bytes before its
/// data.
///
/// # Errors
/// If a header is malformed or a member reaches beyond `end`.
pub fn walk_members(
    storage: &impl Storage,
    start: u64,
    end: u64,
    mut visit: impl FnMut(&WalkedMember, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut headers = Headers::new(storage, start, end);
    while let Some((member, frame)) = headers.next()? {
        visit(&member, &frame)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_every_magnitude_come_back() {
        for size in [0, 1, 511, SIZE_OCTAL_MAX, SIZE_OCTAL_MAX + 1, 1 << 40, u64::MAX / 2] {
            let parsed = parse_header(&file_header("a", size)).unwrap();
            assert_eq!((parsed.size, parsed.name.as_str(), parsed.type_flag), (size, "a", TYPE_FILE));
        }
        let mut broken = file_header("a", 1);
        broken[0] ^= 1;
        assert!(parse_header(&broken).is_none());
        // A base-256 mark in a field that has no room for the number, found by fuzzing.
        for field in [124, 148] {
            let mut marked = file_header("a", 1);
            marked[field] |= 0x80;
            assert!(parse_header(&marked).is_none());
        }
    }

    #[test]
    fn filler_aligns_from_anywhere() {
        for blocks in 0..64 {
            let position = blocks * BLOCK_BYTES;
            let filler = alignment_filler(position).len() as u64;
            assert_eq!((position + filler + BLOCK_BYTES) % ALIGNMENT_BYTES, 0, "from block {blocks}");
            assert!(filler <= ALIGNMENT_BYTES + BLOCK_BYTES);
        }
    }

    #[test]
    fn names_are_checked() {
        for bad in ["", "/a", "a b", "a\n", &"x".repeat(101)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name(&format!("objects/pack/pack-{}.bitmap", "0".repeat(64))).is_ok());
    }
}
