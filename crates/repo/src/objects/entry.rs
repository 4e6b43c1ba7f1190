//! Pack entries and deltas (gitformat-pack).

use weir_git::{HashKind, Kind};

/// The largest object that is read into memory, in bytes.
pub(crate) const OBJECT_BYTES_MAX: u64 = 4 << 30;

/// The longest chain of deltas that is written or kept: the longest that git writes (git-pack-objects,
/// `--depth`). Longer ones are read.
pub const DELTA_CHAIN_MAX: u16 = 4095;

/// How an entry stores its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Whole.
    Whole(Kind),
    /// As a delta against the entry this many bytes before it in the same pack.
    OfsDelta(u64),
    /// As a delta against the object whose raw id starts at this offset from the entry's start.
    RefDelta(usize),
}

/// The head of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead {
    /// How the object is stored.
    pub stored: Stored,
    /// The size in bytes of the inflated object or delta.
    pub size: u64,
    /// The length in bytes of the head; the zlib stream follows.
    pub len: usize,
}

/// The longest head: type and size 10, distance 10 or an id of 32.
pub const HEAD_BYTES_MAX: usize = 10 + 32;

impl EntryHead {
    /// Parses the head at the start of `data`. Returns `None` if it is malformed, or cut off within
    /// `HEAD_BYTES_MAX`.
    pub fn parse(hash: HashKind, data: &[u8]) -> Option<EntryHead> {
        let mut c = *data.first()?;
        let mut p = 1;
        let type_number = (c >> 4) & 7;
        let mut size = u64::from(c & 15);
        let mut shift = 4;
        while c & 0x80 != 0 {
            c = *data.get(p)?;
            p += 1;
            if shift > 57 {
                return None;
            }
            size |= u64::from(c & 0x7f) << shift;
            shift += 7;
        }
        let stored = match type_number {
            6 => {
                c = *data.get(p)?;
                p += 1;
                let mut distance = u64::from(c & 0x7f);
                while c & 0x80 != 0 {
                    c = *data.get(p)?;
                    p += 1;
                    distance = distance.checked_add(1)?.checked_mul(128)? | u64::from(c & 0x7f);
                }
                Stored::OfsDelta(distance)
            }
            7 => {
                let at = p;
                p += hash.len();
                if data.len() < p {
                    return None;
                }
                Stored::RefDelta(at)
            }
            n => Stored::Whole(Kind::from_pack_type(n)?),
        };
        Some(EntryHead { stored, size, len: p })
    }
}

fn push_type_and_size(out: &mut Vec<u8>, type_number: u8, mut size: u64) {
    let mut byte = (type_number << 4) | (size & 15) as u8;
    size >>= 4;
    while size > 0 {
        out.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    out.push(byte);
}

/// Appends the head of a whole object.
pub fn push_whole_head(out: &mut Vec<u8>, kind: Kind, size: u64) {
    push_type_and_size(out, kind as u8, size);
}

/// Appends the head of a delta against the entry `distance` bytes before.
pub fn push_ofs_delta_head(out: &mut Vec<u8>, distance: u64, size: u64) {
    push_type_and_size(out, 6, size);
    let mut digits = [0u8; 10];
    let mut at = digits.len() - 1;
    digits[at] = (distance & 0x7f) as u8;
    let mut rest = distance >> 7;
    while rest > 0 {
        rest -= 1;
        at -= 1;
        digits[at] = 0x80 | (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the head of a delta against the object with the raw id `base`.
pub fn push_ref_delta_head(out: &mut Vec<u8>, base: &[u8], size: u64) {
    push_type_and_size(out, 7, size);
    out.extend_from_slice(base);
}

fn delta_size(delta: &[u8], p: &mut usize) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let c = *delta.get(*p)?;
        *p += 1;
        if shift > 63 {
            return None;
        }
        value |= u64::from(c & 0x7f).checked_shl(shift)?;
        shift += 7;
        if c & 0x80 == 0 {
            return Some(value);
        }
    }
}

/// Returns the two sizes in a delta's head: of its base and of its result.
pub fn delta_sizes(delta: &[u8]) -> Option<(u64, u64)> {
    let mut p = 0;
    Some((delta_size(delta, &mut p)?, delta_size(delta, &mut p)?))
}

/// An instruction of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOp<'d> {
    /// Copies `len` bytes of the base from `offset` on.
    Copy {
        /// Where the bytes start in the base.
        offset: usize,
        /// The number of bytes.
        len: usize,
    },
    /// Inserts these bytes.
    Insert(&'d [u8]),
}

/// Reads the instruction of `delta` at `p`, and moves `p` behind it. Returns `None` if it is malformed.
#[inline]
fn delta_op<'d>(delta: &'d [u8], p: &mut usize) -> Option<DeltaOp<'d>> {
    let op = *delta.get(*p)?;
    *p += 1;
    if op & 0x80 == 0 {
        let len = usize::from(op);
        let bytes = delta.get(*p..*p + len).filter(|bytes| !bytes.is_empty())?;
        *p += len;
        return Some(DeltaOp::Insert(bytes));
    }
    let (mut offset, mut len) = (0usize, 0usize);
    for bit in 0..4 {
        if op & (1 << bit) != 0 {
            offset |= usize::from(*delta.get(*p)?) << (8 * bit);
            *p += 1;
        }
    }
    for bit in 0..3 {
        if op & (0x10 << bit) != 0 {
            len |= usize::from(*delta.get(*p)?) << (8 * bit);
            *p += 1;
        }
    }
    Some(DeltaOp::Copy { offset, len: if len == 0 { 0x10000 } else { len } })
}

/// Iterates over the instructions of a well-formed delta. Ends where it is malformed.
pub fn delta_ops(delta: &[u8]) -> impl Iterator<Item = DeltaOp<'_>> {
    let mut p = 0;
    let has_head = delta_size(delta, &mut p).is_some() && delta_size(delta, &mut p).is_some();
    std::iter::from_fn(move || if has_head { delta_op(delta, &mut p) } else { None })
}

/// Applies `delta` to `base` and writes the result, of at most `result_bytes_max`, to `out`. Returns `None`
/// if the delta is malformed, made for another base, or its result does not have the size in its head.
pub fn apply_delta(base: &[u8], delta: &[u8], result_bytes_max: u64, out: &mut Vec<u8>) -> Option<()> {
    let mut p = 0;
    let base_size = delta_size(delta, &mut p)?;
    let result_size = delta_size(delta, &mut p)?;
    if base_size != base.len() as u64 || result_size > result_bytes_max {
        return None;
    }
    let result_size = usize::try_from(result_size).ok()?;
    out.clear();
    // A delta can claim a larger result than it makes. So reserve in step with the base, and grow as needed.
    out.reserve(result_size.min(base.len().saturating_mul(2).saturating_add(delta.len()).saturating_add(64)));
    while p < delta.len() {
        let bytes = match delta_op(delta, &mut p)? {
            DeltaOp::Copy { offset, len } => base.get(offset..offset.checked_add(len)?)?,
            DeltaOp::Insert(bytes) => bytes,
        };
        if out.len() + bytes.len() > result_size {
            return None;
        }
        out.extend_from_slice(bytes);
    }
    (out.len() == result_size).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for size in [0u64, 15, 16, 127, 128, 1 << 20, u64::MAX >> 4] {
            let mut whole = Vec::new();
            push_whole_head(&mut whole, Kind::Blob, size);
            let head = EntryHead::parse(HashKind::Sha1, &whole).unwrap();
            assert_eq!(head, EntryHead { stored: Stored::Whole(Kind::Blob), size, len: whole.len() });
            assert_eq!(EntryHead::parse(HashKind::Sha1, &whole[..whole.len() - 1]), None);
            for distance in [1u64, 127, 128, 16_511, 16_512, 1 << 40] {
                let mut delta = Vec::new();
                push_ofs_delta_head(&mut delta, distance, size);
                let head = EntryHead::parse(HashKind::Sha1, &delta).unwrap();
                assert_eq!(
                    (head.stored, head.size, head.len),
                    (Stored::OfsDelta(distance), size, delta.len())
                );
            }
        }
        assert_eq!(EntryHead::parse(HashKind::Sha1, &[0x80; 40]), None, "an endless size");
        assert_eq!(EntryHead::parse(HashKind::Sha1, &[0x50]), None, "type 5 is not used");
    }

    #[test]
    fn deltas_apply_or_are_refused() {
        let base = b"hello world";
        let mut out = Vec::new();
        let delta = [11, 8, 0x90 | 1, 6, 5, 3, b'!', b'?', b'!'];
        assert_eq!(apply_delta(base, &delta, 100, &mut out), Some(()));
        assert_eq!(out, b"world!?!");
        assert_eq!(apply_delta(base, &delta, 7, &mut out), None, "over the limit");
        assert_eq!(apply_delta(&base[1..], &delta, 100, &mut out), None, "another base");
        for cut in 0..delta.len() {
            assert_eq!(apply_delta(base, &delta[..cut], 100, &mut out), None, "cut at {cut}");
        }
        assert_eq!(apply_delta(base, &[11, 8, 0], 100, &mut out), None, "the reserved instruction");
        assert_eq!(apply_delta(base, &[11, 5, 0x91, 8, 5], 100, &mut out), None, "a copy beyond the base");
    }
}
