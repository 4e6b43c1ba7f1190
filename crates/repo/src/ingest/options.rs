//! The options and limits for taking in a pack.

use weir_git::{HashKind, Oid, OidSet};

use crate::arriving::ArrivingPack;
use crate::progress::Progress;
use crate::repo::repository::Repo;

/// The limits for a pack from outside.
#[derive(Clone, Copy, Debug)]
pub struct IngestLimits {
    /// The bytes of the pack as sent.
    pub pack_bytes_max: u64,
    /// The number of objects in the pack.
    pub objects_max: u32,
    /// The bytes of one object, inflated.
    pub object_bytes_max: u64,
    /// The bytes of objects held at a time while deltas are resolved.
    pub held_bytes_max: u64,
    /// The bytes of all objects, inflated.
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

/// The options for taking in a pack.
pub struct IngestOptions<'a> {
    /// The hash of the repository.
    pub hash: HashKind,
    /// The limits of the pack.
    pub limits: IngestLimits,
    /// The number of threads that resolve deltas.
    pub threads: usize,
    /// The repository as it is: bases of a thin pack, targets of links, objects not to be kept twice.
    pub base: Option<&'a Repo>,
    /// The ids that were asked for; they must be here afterwards.
    pub wanted: &'a [Oid],
    /// Commits whose parents are not expected (shallow upstreams).
    pub shallow: &'a OidSet,
    /// Objects that are known to be lost; they are not reported as missing.
    pub lost: &'a OidSet,
    /// The most bytes of inflated deltas that are kept in memory between the passes.
    pub delta_bytes_max: usize,
    /// Where the progress is reported.
    pub progress: &'a Progress,
    /// The pack, for those who send it on while it arrives.
    pub arriving: Option<&'a ArrivingPack>,
}
