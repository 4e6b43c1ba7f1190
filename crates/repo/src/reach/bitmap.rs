//! Reads the reachability bitmaps of one pack (gitformat-bitmap, version 1) in place, and writes them.

use std::collections::HashMap;

use weir_archive::Region;
use weir_git::{HashKind, Oid};

use crate::error::{Result, corrupt};
use crate::objects::bits::Bits;
use crate::objects::index::append_checksum;

fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// Xors the EWAH bitmap at `at` of `data` into `out`. Returns where it ends; `None` if it is malformed or
/// longer than `out`.
fn ewah_xor(data: &[u8], at: usize, out: Option<&mut [u64]>) -> Option<usize> {
    let words = be32(data, at + 4)? as usize;
    let start = at + 8;
    let end = start.checked_add(words.checked_mul(8)?)?;
    let body = data.get(start..end)?;
    data.get(end..end + 4)?;
    if let Some(out) = out {
        let mut at = 0usize;
        let mut input = body.as_chunks::<8>().0.iter().map(|w| u64::from_be_bytes(*w));
        while let Some(marker) = input.next() {
            let run = (marker >> 1 & 0xffff_ffff) as usize;
            let literals = (marker >> 33) as usize;
            let target = out.get_mut(at..at.checked_add(run)?)?;
            if marker & 1 != 0 {
                for word in target {
                    *word ^= !0;
                }
            }
            at += run;
            for word in out.get_mut(at..at.checked_add(literals)?)? {
                *word ^= input.next()?;
            }
            at += literals;
        }
    }
    Some(end + 4)
}

/// Appends the EWAH form of `words`, of which `bits` bits count.
fn push_ewah(out: &mut Vec<u8>, words: &[u64], bits: u32) {
    let mut body: Vec<u64> = Vec::new();
    let mut last_marker = 0;
    let mut i = 0;
    // Trailing zeroes need not be stored, but a bitmap has at least one marker.
    let end = words.iter().rposition(|w| *w != 0).map_or(0, |p| p + 1);
    loop {
        let bit = words.get(i).copied().unwrap_or(0) == !0;
        let fill = if bit { !0 } else { 0 };
        let run = words[i..end].iter().take_while(|w| **w == fill).take(0xffff_ffff).count();
        i += run;
        let literals = words[i..end].iter().take_while(|w| **w != 0 && **w != !0).take(0x7fff_ffff).count();
        last_marker = body.len().max(last_marker);
        body.push(u64::from(bit) | (run as u64) << 1 | (literals as u64) << 33);
        body.extend_from_slice(&words[i..i + literals]);
        i += literals;
        if i >= end {
            break;
        }
    }
    out.extend_from_slice(&bits.to_be_bytes());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    for word in &body {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&(last_marker as u32).to_be_bytes());
}

/// The places of the four kinds, the entries by number, and their numbers by index position of the commit.
type BitmapEntries = ([usize; 4], Vec<(usize, u8)>, HashMap<u32, u32>);

/// The bitmaps of a pack.
#[derive(Debug)]
pub(crate) struct Bitmaps {
    data: Region,
    /// Where the EWAHs of commits, trees, blobs and tags start.
    kinds: [usize; 4],
    /// Where each entry's EWAH starts, and how many entries before it is the entry it is xored with.
    entries: Vec<(usize, u8)>,
    by_position: HashMap<u32, u32>,
    words: usize,
}

impl Bitmaps {
    /// Opens the bitmaps of a pack of `count` objects with the checksum `pack`, and checks their header and
    /// entries.
    pub(crate) fn open(name: &str, data: Region, hash: HashKind, pack: &Oid, count: u32) -> Result<Bitmaps> {
        let parse = || -> Option<BitmapEntries> {
            let head = 12 + hash.len();
            let known = data.get(..6)? == b"BITM\0\x01" && data.get(12..head)? == pack.as_bytes();
            let mut at = head;
            if !known {
                return None;
            }
            let mut kinds = [0; 4];
            for kind in &mut kinds {
                *kind = at;
                at = ewah_xor(&data, at, None)?;
            }
            let entry_count = be32(&data, 8)?;
            let mut entries = Vec::new();
            let mut by_position = HashMap::new();
            for n in 0..entry_count {
                let position = be32(&data, at)?;
                let xor = *data.get(at + 4)?;
                if position >= count || u32::from(xor) > n {
                    return None;
                }
                entries.push((at + 6, xor));
                by_position.insert(position, n);
                at = ewah_xor(&data, at + 6, None)?;
            }
            Some((kinds, entries, by_position))
        };
        match parse() {
            Some((kinds, entries, by_position)) => {
                Ok(Bitmaps { kinds, entries, by_position, words: count.div_ceil(64) as usize, data })
            }
            None => corrupt(name, "not a version 1 bitmap of its pack"),
        }
    }

    /// Returns the ranks in the pack of commits, trees, blobs and tags.
    pub(crate) fn kinds(&self) -> [Vec<u64>; 4] {
        self.kinds.map(|at| {
            let mut out = vec![0; self.words];
            // The bitmap was parsed when the file was opened, so it is complete. If it is longer than the
            // pack, the part that fits counts.
            let _ = ewah_xor(&self.data, at, Some(&mut out));
            out
        })
    }

    /// Returns what is reachable from the commit at index position `position`, as ranks in the pack; `None`
    /// if the commit has no bitmap.
    pub(crate) fn reachable(&self, position: u32) -> Option<Vec<u64>> {
        let mut entry = *self.by_position.get(&position)?;
        let mut out = vec![0; self.words];
        loop {
            let (at, xor) = self.entries[entry as usize];
            ewah_xor(&self.data, at, Some(&mut out))?;
            if xor == 0 {
                return Some(out);
            }
            entry -= u32::from(xor);
        }
    }
}

/// The bitmaps of a pack while they are written, one after the other. All but the last are held compressed.
pub(crate) struct BitmapWriter {
    hash: HashKind,
    /// The number of objects in the pack.
    count: u32,
    out: Vec<u8>,
    last: Vec<u64>,
    /// Where each bitmap begins, and how many before it is the bitmap it is xored with; 0 if it is stored
    /// whole.
    entries: Vec<(usize, u8)>,
}

/// Where the number of bitmaps is stored.
const ENTRY_COUNT_AT: usize = 8;
/// One bitmap in this many is stored whole, so that a chain of xors stays short.
const XORED_MAX: usize = 16;

impl BitmapWriter {
    /// Starts the bitmaps of `pack`, which has `count` objects. `kinds`: ranks of its commits, trees, blobs
    /// and tags.
    pub(crate) fn new(hash: HashKind, pack: &Oid, count: u32, kinds: &[Bits; 4]) -> BitmapWriter {
        let mut out = b"BITM\0\x01\0\x01\0\0\0\0".to_vec();
        out.extend_from_slice(pack.as_bytes());
        for kind in kinds {
            push_ewah(&mut out, &kind.0, count);
        }
        BitmapWriter { hash, count, out, last: Vec::new(), entries: Vec::new() }
    }

    /// Adds what the commit at index position `position` reaches, as ranks. Bitmaps that follow each other
    /// should be alike: each is stored as its difference from the one before, if that is shorter. Returns the
    /// bitmap's number.
    pub(crate) fn push(&mut self, position: u32, reachable: Bits) -> usize {
        let mut bytes = Vec::new();
        push_ewah(&mut bytes, &reachable.0, self.count);
        let mut xor = 0;
        if !self.entries.len().is_multiple_of(XORED_MAX) {
            let difference: Vec<u64> = reachable.0.iter().zip(&self.last).map(|(a, b)| a ^ b).collect();
            let mut shorter = Vec::new();
            push_ewah(&mut shorter, &difference, self.count);
            if shorter.len() < bytes.len() {
                (bytes, xor) = (shorter, 1);
            }
        }
        self.out.extend_from_slice(&position.to_be_bytes());
        self.out.extend_from_slice(&[xor, 0]);
        self.entries.push((self.out.len(), xor));
        self.out.extend_from_slice(&bytes);
        self.last = reachable.0;
        self.entries.len() - 1
    }

    /// Adds all of bitmap `n` to `bits`.
    pub(crate) fn add_to(&self, n: usize, bits: &mut Bits) {
        if n + 1 == self.entries.len() {
            return bits.or(&self.last);
        }
        let mut words = vec![0; self.last.len()];
        let mut entry = n;
        loop {
            let (at, xor) = self.entries[entry];
            ewah_xor(&self.out, at, Some(&mut words)).expect("as it was written");
            if xor == 0 {
                return bits.or(&words);
            }
            entry -= usize::from(xor);
        }
    }

    /// Returns the whole file.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out[ENTRY_COUNT_AT..ENTRY_COUNT_AT + 4]
            .copy_from_slice(&(self.entries.len() as u32).to_be_bytes());
        append_checksum(self.hash, &mut self.out);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ewah_comes_back() {
        for words in [
            vec![],
            vec![0],
            vec![!0],
            vec![0, 0, 5, !0, !0, 7, 0],
            vec![1, 2, 3],
            vec![0, !0, 0, !0],
            vec![!0; 100],
        ] {
            let mut out = Vec::new();
            push_ewah(&mut out, &words, words.len() as u32 * 64);
            let mut back = vec![0; words.len()];
            assert_eq!(ewah_xor(&out, 0, Some(&mut back)), Some(out.len()), "{words:?}");
            assert_eq!(back, words);
            for cut in 0..out.len() {
                assert_eq!(ewah_xor(&out[..cut], 0, Some(&mut back.clone())), None, "cut at {cut}");
            }
        }
        let mut long = Vec::new();
        push_ewah(&mut long, &[!0; 10], 640);
        assert_eq!(ewah_xor(&long, 0, Some(&mut [0; 9])), None, "longer than the pack");
    }
}
