//! How similar two files are, counted as git counts it (diffcore-delta.c).
//!
//! A file is cut into pieces, each of which ends at a line break or after 64 bytes. A piece is known by a
//! hash of 17 bits. The similarity is the share of bytes in pieces that both files have.

use std::collections::HashMap;
use std::rc::Rc;

use memchr::memchr;
use weir_git::{Kind, Oid};
use weir_repo::{Inflate, ObjectReader};

use crate::ids::ObjectNumbers;
use crate::tree_steps::TreeItem;

/// The score of equal files.
pub(crate) const SCORE_MAX: u64 = 60_000;
/// git looks for a NUL in this many bytes to tell binary files from text.
const BINARY_PROBE_BYTES: usize = 8000;
/// The longest piece.
const PIECE_BYTES_MAX: u32 = 64;
/// The number of hashes.
const HASH_COUNT: u32 = 107_927;
/// The most bytes of piece counts that are remembered, and how many of them files that are compared with many
/// others may take.
const REMEMBERED_BYTES_MAX: usize = 96 << 20;
const GROUP_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(GROUP_BYTES_MAX <= REMEMBERED_BYTES_MAX, "a group can be remembered");

/// Returns whether git takes `data` for binary, if no attribute says otherwise.
pub fn is_binary(data: &[u8]) -> bool {
    memchr(0, &data[..data.len().min(BINARY_PROBE_BYTES)]).is_some()
}

/// The bytes of each piece, by hash, ascending.
type PieceCounts = Rc<[(u32, u32)]>;

/// Objects that have numbers.
pub(crate) trait NumberedObjects<'o> {
    /// Returns a reader of objects.
    fn reader(&self) -> ObjectReader<'o>;

    /// Returns the size of an object; `None` if it is not here or cannot be read.
    fn size(&self, object: u32, inflate: &mut Inflate) -> Option<u64>;

    /// Returns the id of an object.
    fn oid(&self, object: u32) -> Oid;
}

impl<'o> NumberedObjects<'o> for ObjectNumbers<'_, 'o> {
    fn reader(&self) -> ObjectReader<'o> {
        self.forest().objects().reader()
    }

    fn size(&self, object: u32, inflate: &mut Inflate) -> Option<u64> {
        self.is_here(object).then(|| self.forest().size(object, inflate).ok())?
    }

    fn oid(&self, object: u32) -> Oid {
        ObjectNumbers::oid(self, object)
    }
}

/// Compares files. Has caches of its own, for one thread.
pub(crate) struct Similarity<'c, 'o> {
    ids: &'c dyn NumberedObjects<'o>,
    reader: ObjectReader<'o>,
    inflate: Inflate,
    sizes: HashMap<u32, Option<u64>>,
    pieces: HashMap<u32, Option<PieceCounts>>,
    pieces_bytes: usize,
    /// Whether the bytes behind the last line break count, as they do since git 2.44.
    counts_last_line: bool,
}

impl<'c, 'o> Similarity<'c, 'o> {
    pub(crate) fn new(ids: &'c dyn NumberedObjects<'o>, counts_last_line: bool) -> Self {
        Similarity {
            ids,
            reader: ids.reader(),
            inflate: Inflate::default(),
            sizes: HashMap::new(),
            pieces: HashMap::new(),
            pieces_bytes: 0,
            counts_last_line,
        }
    }

    /// Returns how similar two files are, 0 if less than `minimum` for their sizes alone, or if one of them
    /// is no file or cannot be read.
    pub(crate) fn score(&mut self, old: TreeItem, new: TreeItem, minimum: u64) -> u64 {
        if !old.mode.is_file() || !new.mode.is_file() {
            return 0;
        }
        let (Some(old_size), Some(new_size)) = (self.size(old.object), self.size(new.object)) else {
            return 0;
        };
        let (most, least) = (old_size.max(new_size), old_size.min(new_size));
        if most * (SCORE_MAX - minimum) < (most - least) * SCORE_MAX || new_size == 0 {
            return 0;
        }
        let (Some(a), Some(b)) = (self.pieces(old.object), self.pieces(new.object)) else { return 0 };
        let common = common_bytes(&a, &b);
        debug_assert!(common <= least, "{common} bytes are common, and one file has {least}");
        common * SCORE_MAX / most
    }

    /// Returns how many of `files`, from the first one on, can be remembered at once, beside a few others.
    pub(crate) fn remembered_together(&mut self, files: impl Iterator<Item = TreeItem>) -> usize {
        let mut bytes = 0;
        files
            .take_while(|file| {
                // A piece of a text is a line, mostly of more than eight bytes.
                bytes += 64
                    + self.size(file.object).map_or(0, |size| (size as usize).min(HASH_COUNT as usize * 8));
                bytes <= GROUP_BYTES_MAX
            })
            .count()
    }

    fn size(&mut self, object: u32) -> Option<u64> {
        let (ids, inflate) = (self.ids, &mut self.inflate);
        *self.sizes.entry(object).or_insert_with(|| ids.size(object, inflate))
    }

    fn pieces(&mut self, object: u32) -> Option<PieceCounts> {
        if let Some(pieces) = self.pieces.get(&object) {
            return pieces.clone();
        }
        let read = self.reader.read(&self.ids.oid(object)).ok().flatten().filter(|o| o.kind == Kind::Blob);
        let pieces = read.map(|object| pieces_of(&object.data, self.counts_last_line));
        let bytes = 64 + pieces.as_ref().map_or(0, |p| p.len() * 8);
        if self.pieces_bytes + bytes > REMEMBERED_BYTES_MAX {
            self.pieces.clear();
            self.pieces_bytes = 0;
        }
        self.pieces_bytes += bytes;
        self.pieces.insert(object, pieces.clone());
        pieces
    }
}

fn pieces_of(data: &[u8], counts_last_line: bool) -> PieceCounts {
    let is_text = !is_binary(data);
    let mut pieces = Vec::with_capacity(data.len() / 24 + 1);
    // git keeps two words of 32 bits that turn through each other: one word of 64.
    let (mut state, mut len) = (0u64, 0u32);
    let hash =
        |state: u64| ((state >> 32) as u32).wrapping_add((state as u32).wrapping_mul(0x61)) % HASH_COUNT;
    for (at, &byte) in data.iter().enumerate() {
        if is_text && byte == b'\r' && data.get(at + 1) == Some(&b'\n') {
            continue;
        }
        state = state.rotate_left(7);
        let high = ((state >> 32) as u32).wrapping_add(u32::from(byte));
        state = (u64::from(high) << 32) | u64::from(state as u32);
        len += 1;
        if len == PIECE_BYTES_MAX || byte == b'\n' {
            pieces.push((hash(state), len));
            (state, len) = (0, 0);
        }
    }
    if counts_last_line && len > 0 {
        pieces.push((hash(state), len));
    }
    pieces.sort_unstable();
    pieces.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.wrapping_add(next.1);
        }
        is_same
    });
    debug_assert!(pieces.is_sorted_by(|a, b| a.0 < b.0), "a hash is there twice");
    pieces.into()
}

/// Returns the number of bytes in pieces that both have.
fn common_bytes(a: &[(u32, u32)], b: &[(u32, u32)]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.0 == y.0 {
            sum += u64::from(x.1.min(y.1));
        }
        i += usize::from(x.0 <= y.0);
        j += usize::from(y.0 <= x.0);
    }
    sum
}
