//! git's vocabulary: object ids and their hashes, parsing of commits, trees and tags, ref names, pkt-lines.
//!
//! This crate is pure: it opens no file and no socket, reads no clock and no environment. Everything here
//! takes bytes from outside, so nothing here may panic on any input.
//!
//! ```
//! use weir_git::{HashKind, Kind, ObjectHasher, TreeIter, commit_links};
//!
//! let id = ObjectHasher::hash(HashKind::Sha1, Kind::Blob, b"hello\n").unwrap();
//! assert_eq!(id.to_hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
//!
//! let mut tree = b"100644 greeting\0".to_vec();
//! tree.extend(id.as_bytes());
//! let entry = TreeIter::new(HashKind::Sha1, &tree).next().unwrap().unwrap();
//! assert_eq!((entry.mode, entry.name), (0o100644, &b"greeting"[..]));
//!
//! assert!(commit_links(HashKind::Sha1, b"parent of nothing").is_err());
//! ```

mod environment;
mod hash;
mod hash_kind;
mod object;
mod oid;
pub mod pktline;
pub mod refname;
mod sha1dc;

pub use environment::LOCAL_ENVIRONMENT;
pub use hash::{BatchHasher, CollisionError, ObjectHasher, PlainHasher, plain_sha};
pub use hash_kind::HashKind;
pub use object::{
    CommitLinks, Kind, ObjectError, TreeEntry, TreeIter, commit_links, commit_time, link_targets, tag_target,
    tree_entry_len,
};
pub use oid::{Oid, OidBuildHasher, OidMap, OidSet};
