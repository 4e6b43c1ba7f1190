//! git's vocabulary: object ids and their hashes, parsing of commits, trees and tags, ref names, pkt-lines.
//!
//! This crate is pure: it opens no file and no socket, reads no clock and no environment. Everything here
//! takes bytes from outside, so nothing here may panic on any input.

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
