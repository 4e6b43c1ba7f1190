//! The identity of a repository's refs, as Software Heritage defines it: `swh:1:snp:...` (SWHID, ISO/IEC
//! 18670, section 5.8).

use weir_git::{HashKind, Kind, Oid, plain_sha};

use crate::error::Result;
use crate::refs::list::{Head, Refs};
use crate::repo::repository::Repo;

/// The prefix of a snapshot's SHA-1 in hexadecimal.
pub const SNAPSHOT_SWHID: &str = "swh:1:snp:";

impl Repo {
    /// Returns the SHA-1 of `refs` with HEAD as a snapshot; they need not be the repository's present refs.
    /// Returns `None` for SHA-256 repositories, and if a ref points at an object that is missing.
    ///
    /// # Errors
    /// If a pack is corrupt.
    pub fn snapshot_id(&self, refs: &Refs) -> Result<Option<Oid>> {
        if self.hash() != HashKind::Sha1 {
            return Ok(None);
        }
        let mut reader = self.reader();
        let mut branches: Vec<(&[u8], &'static str, &[u8])> = Vec::with_capacity(refs.list().len() + 1);
        let detached = match &refs.head {
            Head::Detached(oid) => Some((b"HEAD".as_slice(), oid)),
            // An unborn branch is no branch of the snapshot.
            Head::Symbolic(name) => {
                branches.extend(refs.get(name).map(|_| (b"HEAD".as_slice(), "alias", name.as_slice())));
                None
            }
        };
        for (name, oid) in refs.list().iter().map(|r| (r.name.as_slice(), &r.oid)).chain(detached) {
            let kind = match reader.kind_and_size(oid)? {
                Some((Kind::Commit, _)) => "revision",
                Some((Kind::Tag, _)) => "release",
                Some((Kind::Tree, _)) => "directory",
                Some((Kind::Blob, _)) => "content",
                None => return Ok(None),
            };
            branches.push((name, kind, oid.as_bytes()));
        }
        branches.sort_unstable();
        // The manifest of a million refs is not built in memory: its length is hashed first.
        let count_of = |target: &[u8]| format!("\0{}:", target.len());
        let bytes = |(name, kind, target): &(&[u8], &str, &[u8])| {
            kind.len() + 1 + name.len() + count_of(target).len() + target.len()
        };
        let manifest_bytes: usize = branches.iter().map(bytes).sum();
        let mut hasher = plain_sha(HashKind::Sha1);
        hasher.update(format!("snapshot {manifest_bytes}\0").as_bytes());
        for (name, kind, target) in branches {
            hasher.update(&[kind.as_bytes(), b" ", name, count_of(target).as_bytes(), target].concat());
        }
        Ok(Some(hasher.finish()))
    }
}
