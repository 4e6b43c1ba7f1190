//! What was worked out for an open repository and is kept as long as it is open.

use std::sync::OnceLock;

use weir_git::{Oid, OidSet};

use crate::reach::reachable::Reachable;
use crate::repo::bodies::BodyBundle;

/// What is kept, each once somebody asked for it.
#[derive(Default)]
pub(crate) struct Caches {
    /// Checksums of whole clones, of heads and tags and of all refs, where they had to be computed.
    pub(crate) trailers: [OnceLock<Oid>; 2],
    /// Its bodies as bundles.
    pub(crate) bundles: OnceLock<Vec<BodyBundle>>,
    /// Checksums of what was sent of each pack, where they had to be computed.
    pub(crate) body_trailers: Vec<OnceLock<Oid>>,
    /// All that refs reach; `None` where they do not lead to all they should.
    pub(crate) reachable: OnceLock<Option<Reachable>>,
    /// Ids of the LFS objects that its refs lead to pointers to.
    pub(crate) lfs_given: OnceLock<OidSet>,
}

impl Caches {
    /// Returns those of a repository with so many packs; nothing is known yet.
    pub(crate) fn for_packs(count: usize) -> Caches {
        Caches { body_trailers: (0..count).map(|_| OnceLock::new()).collect(), ..Caches::default() }
    }
}
