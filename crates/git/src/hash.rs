//! The two hashes git names objects by.

use sha1::Digest;

use crate::sha1dc::{self, HashBatch, Sha1Detect};
use crate::{HashKind, Kind, Oid};

/// SHA-1's collision detection found that the data was made to collide (sha1collisiondetection, C13-S).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("SHA-1 collision attack detected in {0}")]
pub struct CollisionError(pub Oid);

/// Hashes one object: `"<kind> <size>\0"`, then its content. SHA-1 runs with collision detection, as in git.
pub struct ObjectHasher(HashState);

enum HashState {
    /// Hashes many blocks at a time, on processors that can.
    Sha1(Box<Sha1Detect>),
    Sha1Portable(Box<sha1_checked::Sha1>),
    Sha256(sha2::Sha256),
}

impl ObjectHasher {
    /// Returns a hasher fed with the header of an object of `size` bytes.
    pub fn object(hash: HashKind, kind: Kind, size: u64) -> ObjectHasher {
        let mut header = [0u8; 32];
        let len = object_header(&mut header, kind, size);
        let mut h = ObjectHasher(match hash {
            HashKind::Sha1 if sha1dc::is_supported() => HashState::Sha1(Box::new(Sha1Detect::new())),
            HashKind::Sha1 => HashState::Sha1Portable(Box::default()),
            HashKind::Sha256 => HashState::Sha256(sha2::Sha256::new()),
        });
        h.update(&header[..len]);
        h
    }

    /// Adds content.
    pub fn update(&mut self, data: &[u8]) {
        match &mut self.0 {
            HashState::Sha1(h) => h.update(data),
            HashState::Sha1Portable(h) => h.update(data),
            HashState::Sha256(h) => h.update(data),
        }
    }

    /// Returns the id of what was fed.
    ///
    /// # Errors
    /// If SHA-1's collision detection fired.
    pub fn finish(self) -> Result<Oid, CollisionError> {
        match self.0 {
            HashState::Sha1(h) => {
                let (hash, has_collision) = h.finish();
                let oid = Oid::from_bytes(HashKind::Sha1, &hash).expect("20 bytes");
                if has_collision { Err(CollisionError(oid)) } else { Ok(oid) }
            }
            HashState::Sha1Portable(h) => {
                let result = h.try_finalize();
                let oid = Oid::from_bytes(HashKind::Sha1, result.hash()).expect("20 bytes");
                if result.has_collision() { Err(CollisionError(oid)) } else { Ok(oid) }
            }
            HashState::Sha256(h) => Ok(Oid::from_bytes(HashKind::Sha256, &h.finalize()).expect("32 bytes")),
        }
    }

    /// Returns the id of a whole object held in memory.
    ///
    /// # Errors
    /// If SHA-1's collision detection fired.
    pub fn hash(hash: HashKind, kind: Kind, data: &[u8]) -> Result<Oid, CollisionError> {
        let mut h = ObjectHasher::object(hash, kind, data.len() as u64);
        h.update(data);
        h.finish()
    }
}

/// Hashes many objects as [`ObjectHasher::hash`] does. Where the processor can, it hashes sixteen of them at
/// a time, in a quarter of the time. It holds an object until [`BatchHasher::pop`] returns it. Objects do not
/// come out in the order in which they went in.
pub struct BatchHasher<D> {
    hash: HashKind,
    /// Set for SHA-1, on processors that can.
    lanes: Option<Box<HashBatch<D>>>,
    alone: Vec<(D, Result<Oid, CollisionError>)>,
}

/// Larger objects are hashed one by one: sixteen of them at once would take much memory.
const LANE_BYTES_MAX: usize = 1 << 20;

impl<D: AsRef<[u8]>> BatchHasher<D> {
    /// Returns a hasher for objects of a repository with that hash.
    pub fn new(hash: HashKind) -> Self {
        let lanes = (hash == HashKind::Sha1 && sha1dc::is_supported()).then(|| Box::new(HashBatch::new()));
        BatchHasher { hash, lanes, alone: Vec::new() }
    }

    /// Adds an object.
    pub fn push(&mut self, kind: Kind, data: D) {
        let size = data.as_ref().len();
        match &mut self.lanes {
            Some(lanes) if size <= LANE_BYTES_MAX => {
                let mut header = [0u8; 32];
                let len = object_header(&mut header, kind, size as u64);
                lanes.push(&header[..len], data);
            }
            _ => {
                let result = ObjectHasher::hash(self.hash, kind, data.as_ref());
                self.alone.push((data, result));
            }
        }
    }

    /// Hashes all objects that were added.
    pub fn flush(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.flush();
        }
    }

    /// Returns a hashed object, with its id or the attack found in it.
    pub fn pop(&mut self) -> Option<(D, Result<Oid, CollisionError>)> {
        let hashed = self.lanes.as_mut().and_then(|lanes| lanes.pop()).map(|hashed| {
            let oid = Oid::from_bytes(HashKind::Sha1, &hashed.hash).expect("20 bytes");
            (hashed.data, if hashed.has_collision { Err(CollisionError(oid)) } else { Ok(oid) })
        });
        hashed.or_else(|| self.alone.pop())
    }
}

fn object_header(out: &mut [u8; 32], kind: Kind, size: u64) -> usize {
    use std::io::Write;
    let mut cursor = &mut out[..];
    // 32 bytes hold the longest: "commit " and 20 digits and NUL.
    write!(cursor, "{} {size}\0", kind.name()).expect("fits");
    32 - cursor.len()
}

/// The hash at the end of pack, index and bitmap files. It has no collision detection, for it guards against
/// accidents only.
#[derive(Clone)]
pub enum PlainHasher {
    /// SHA-1.
    Sha1(sha1::Sha1),
    /// SHA-256.
    Sha256(sha2::Sha256),
}

/// Returns a running checksum of the kind that is at the end of git's files.
pub fn plain_sha(hash: HashKind) -> PlainHasher {
    match hash {
        HashKind::Sha1 => PlainHasher::Sha1(sha1::Sha1::new()),
        HashKind::Sha256 => PlainHasher::Sha256(sha2::Sha256::new()),
    }
}

impl PlainHasher {
    /// Adds data.
    pub fn update(&mut self, data: &[u8]) {
        match self {
            PlainHasher::Sha1(h) => h.update(data),
            PlainHasher::Sha256(h) => h.update(data),
        }
    }

    /// Returns the checksum.
    pub fn finish(self) -> Oid {
        match self {
            PlainHasher::Sha1(h) => Oid::from_bytes(HashKind::Sha1, &h.finalize()).expect("20 bytes"),
            PlainHasher::Sha256(h) => Oid::from_bytes(HashKind::Sha256, &h.finalize()).expect("32 bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ids() {
        let empty_tree = ObjectHasher::hash(HashKind::Sha1, Kind::Tree, b"").unwrap();
        assert_eq!(empty_tree.to_hex(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        let empty_tree = ObjectHasher::hash(HashKind::Sha256, Kind::Tree, b"").unwrap();
        assert_eq!(empty_tree.to_hex(), "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321");
    }

    #[test]
    fn a_batch_gives_what_one_by_one_gives() {
        let content: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for hash in [HashKind::Sha1, HashKind::Sha256] {
            for count in [0usize, 1, 3, 4, 15, 16, 17, 100, 700] {
                let mut batch = BatchHasher::new(hash);
                let mut found = Vec::new();
                for n in 0..count {
                    // Many lengths around the ends of blocks, and some long ones.
                    let len = if n % 50 == 49 { 60_000 + n } else { (n * 7) % 200 };
                    let kind = [Kind::Blob, Kind::Commit][n % 2];
                    batch.push(kind, content[n..n + len].to_vec());
                    found.extend(std::iter::from_fn(|| batch.pop()));
                }
                batch.flush();
                found.extend(std::iter::from_fn(|| batch.pop()));
                assert_eq!(found.len(), count);
                for (data, oid) in found {
                    let kinds =
                        [Kind::Blob, Kind::Commit].map(|kind| ObjectHasher::hash(hash, kind, &data).unwrap());
                    assert!(kinds.contains(&oid.unwrap()), "{} bytes of {count}", data.len());
                }
            }
        }
    }
}
