//! Object ids of either hash, in one small copyable type.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher as StdHasher, RandomState};
use std::sync::OnceLock;

use crate::HashKind;

/// The id of a git object: the hash of its header and content, sha1 (20 bytes) or sha256 (32 bytes).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Oid {
    bytes: [u8; 32],
    kind: HashKind,
}

impl Oid {
    /// Returns the id with the raw bytes `bytes`; `None` if they are more or fewer than `kind` has.
    pub fn from_bytes(kind: HashKind, bytes: &[u8]) -> Option<Oid> {
        if bytes.len() != kind.len() {
            return None;
        }
        let mut b = [0; 32];
        b[..bytes.len()].copy_from_slice(bytes);
        Some(Oid { bytes: b, kind })
    }

    /// Parses lower- or upper-case hexadecimal of exactly the length of `kind`.
    pub fn from_hex(kind: HashKind, hex: &[u8]) -> Option<Oid> {
        if hex.len() != kind.hex_len() {
            return None;
        }
        let (mut bytes, mut all) = ([0; 32], 0);
        for (byte, pair) in bytes.iter_mut().zip(hex.as_chunks::<2>().0) {
            let [high, low] = pair.map(|c| NIBBLES[usize::from(c)]);
            *byte = (high << 4) | (low & 15);
            all |= high | low;
        }
        (all != NOT_HEX).then_some(Oid { bytes, kind })
    }

    /// Parses hexadecimal of either hash; the length tells which.
    pub fn from_hex_any(hex: &[u8]) -> Option<Oid> {
        Oid::from_hex(if hex.len() == 64 { HashKind::Sha256 } else { HashKind::Sha1 }, hex)
    }

    /// The id of all zeroes, which names no object.
    pub fn null(kind: HashKind) -> Oid {
        Oid { bytes: [0; 32], kind }
    }

    /// Whether this is the id of all zeroes.
    pub fn is_null(&self) -> bool {
        self.bytes == [0; 32]
    }

    /// The hash this id belongs to.
    pub fn kind(&self) -> HashKind {
        self.kind
    }

    /// The raw bytes: 20 or 32.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.kind.len()]
    }

    /// Lower-case hexadecimal: 40 or 64 characters.
    pub fn to_hex(&self) -> String {
        let mut s = String::with_capacity(self.kind.hex_len());
        for b in self.as_bytes() {
            s.push(HEX[usize::from(b >> 4)] as char);
            s.push(HEX[usize::from(b & 15)] as char);
        }
        s
    }

    /// Appends the lower-case hexadecimal to `out`.
    pub fn push_hex(&self, out: &mut Vec<u8>) {
        for b in self.as_bytes() {
            out.push(HEX[usize::from(b >> 4)]);
            out.push(HEX[usize::from(b & 15)]);
        }
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Stands in [`NIBBLES`] for characters that are no hexadecimal digits.
const NOT_HEX: u8 = 0xff;

/// The value of each hexadecimal digit. Parsing that branches takes a tenth of the time of mining commits.
static NIBBLES: [u8; 256] = {
    let mut values = [NOT_HEX; 256];
    let mut n = 0;
    while n < 16 {
        values[HEX[n] as usize] = n as u8;
        values[HEX[n].to_ascii_uppercase() as usize] = n as u8;
        n += 1;
    }
    values
};

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Ord for Oid {
    /// Compares the raw bytes. The first eight nearly always decide.
    #[inline]
    fn cmp(&self, other: &Oid) -> Ordering {
        let first = |oid: &Oid| u64::from_be_bytes(oid.bytes[..8].try_into().expect("eight bytes"));
        first(self)
            .cmp(&first(other))
            .then_with(|| self.bytes.cmp(&other.bytes))
            .then_with(|| self.kind.cmp(&other.kind))
    }
}

impl PartialOrd for Oid {
    #[inline]
    fn partial_cmp(&self, other: &Oid) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Oid {
    fn hash<H: StdHasher>(&self, state: &mut H) {
        state.write(&self.bytes);
    }
}

/// A hasher for maps keyed by [`Oid`]. An id is a hash already, but the sender of a pack chooses the ids that
/// trees and deltas name, of objects that need not exist. So all bytes count, with keys that only this
/// process knows.
pub struct OidHasher {
    state: u64,
    keys: [u64; 3],
}

/// Folds both halves of a product: each bit of the result depends on all bits of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl StdHasher for OidHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for (pair, key) in bytes.chunks(16).zip(self.keys[1..].iter().cycle()) {
            let mut words = [0; 16];
            words[..pair.len()].copy_from_slice(pair);
            let [first, second] = [&words[..8], &words[8..]]
                .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
            self.state = fold(self.state ^ first, key ^ second);
        }
    }
}

/// Builds hashers for maps keyed by [`Oid`], with keys of this process.
#[derive(Clone, Copy)]
pub struct OidBuildHasher([u64; 3]);

impl Default for OidBuildHasher {
    fn default() -> Self {
        static KEYS: OnceLock<[u64; 3]> = OnceLock::new();
        OidBuildHasher(*KEYS.get_or_init(|| {
            let random = RandomState::new();
            [0, 1, 2].map(|n| random.hash_one(n))
        }))
    }
}

impl BuildHasher for OidBuildHasher {
    type Hasher = OidHasher;

    #[inline]
    fn build_hasher(&self) -> OidHasher {
        OidHasher { state: self.0[0], keys: self.0 }
    }
}

/// A map keyed by object id.
pub type OidMap<V> = HashMap<Oid, V, OidBuildHasher>;
/// A set of object ids.
pub type OidSet = HashSet<Oid, OidBuildHasher>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_share_bytes_do_not_share_places() {
        let builder = OidBuildHasher::default();
        for varying in [8, 12, 16, 28] {
            let mut places = HashSet::new();
            for n in 0..10_000u32 {
                let mut bytes = [0x5a; 32];
                bytes[varying..varying + 4].copy_from_slice(&n.to_le_bytes());
                places.insert(builder.hash_one(Oid::from_bytes(HashKind::Sha256, &bytes).unwrap()) >> 40);
            }
            assert!(
                places.len() > 9_900,
                "{} places of ids that differ in byte {varying} and after it",
                places.len()
            );
        }
    }

    #[test]
    fn hex_goes_both_ways_and_rejects_what_is_not_hex() {
        let hex = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let oid = Oid::from_hex(HashKind::Sha1, hex.as_bytes()).unwrap();
        assert_eq!(oid.to_string(), hex);
        assert!(Oid::from_hex(HashKind::Sha256, hex.as_bytes()).is_none());
        assert!(Oid::from_hex(HashKind::Sha1, &[b'g'; 40]).is_none());
        assert!(Oid::from_hex(HashKind::Sha1, b"").is_none());
        assert!(Oid::null(HashKind::Sha1).is_null() && !oid.is_null());
    }
}
