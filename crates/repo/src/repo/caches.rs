//! The results that are computed for an open repository and kept while it is open.

use std::sync::OnceLock;

use weir_git::{Oid, OidSet};

use crate::reach::reachable::Reachable;
use crate::repo::bodies::BodyBundle;

/// The kept results. Each is computed on first use.
#[derive(Default)]
pub(crate) struct Caches {
    /// The checksums of whole clones, of heads and tags and of all refs, if they had to be computed.
    pub(crate) trailers: [OnceLock<Oid>; 2],
    /// The bodies as bundles.
    pub(crate) bundles: OnceLock<Vec<BodyBundle>>,
    /// The checksums of the sent part of each pack, if they had to be computed.
    pub(crate) body_trailers: Vec<OnceLock<Oid>>,
    /// Everything that refs reach; `None` if an object is missing that they should reach.
    pub(crate) reachable: OnceLock<Option<Reachable>>,
    /// The ids of the LFS objects to which the refs lead by pointers.
    pub(crate) lfs_given: OnceLock<OidSet>,
}

impl Caches {
    /// Returns empty caches for a repository with `count` packs.
    pub(crate) fn for_packs(count: usize) -> Caches {
        Caches { body_trailers: (0..count).map(|_| OnceLock::new()).collect(), ..Caches::default() }
    }
}
