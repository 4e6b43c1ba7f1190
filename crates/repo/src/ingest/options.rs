//! How a pack is taken in, and what it may be at most.

use weir_git::{HashKind, Oid, OidSet};

use crate::progress::Progress;
use crate::repo::repository::Repo;

/// What a pack from outside may be at most.
#[derive(Clone, Copy, Debug)]
pub struct IngestLimits {
    /// Bytes of the pack as sent.
    pub pack_bytes_max: u64,
    /// Objects in it.
    pub objects_max: u32,
    /// Bytes of one object, inflated.
    pub object_bytes_max: u64,
    /// Bytes of objects that deltas are worked out with at a time.
    pub held_bytes_max: u64,
    /// Bytes of all objects, inflated.
    pub inflated_bytes_max: u64,
}

impl Default for IngestLimits {
    fn default() -> Self {
        IngestLimits {
            pack_bytes_max: 64 << 30,
            objects_max: 500_000_000,
            object_bytes_max: 4 << 30,
            held_bytes_max: 1 << 30,
            inflated_bytes_max: 4 << 40,
        }
    }
}

/// How a pack is taken in.
pub struct IngestOptions<'a> {
    /// The hash of the repository.
    pub hash: HashKind,
    /// Limits.
    pub limits: IngestLimits,
    /// Threads to resolve deltas with.
    pub threads: usize,
    /// What is here already: bases of a thin pack, targets of links, objects not to be kept twice.
    pub base: Option<&'a Repo>,
    /// What was asked for: must be here afterwards.
    pub wanted: &'a [Oid],
    /// Commits whose parents are not expected (shallow upstreams).
    pub shallow: &'a OidSet,
    /// Objects that are known to be nowhere, and are missed by nobody.
    pub lost: &'a OidSet,
    /// Bytes of inflated deltas kept in memory between the passes.
    pub delta_bytes_max: usize,
    /// Where it says how far it has come.
    pub progress: &'a Progress,
}
