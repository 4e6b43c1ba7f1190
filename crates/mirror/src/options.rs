//! How upstreams are visited.

use std::sync::Arc;

use weir_repo::Progress;
use weir_repo::ingest::IngestLimits;
use weir_transport::TransportOptions;

use crate::Space;
use crate::refs_wanted::RefsWanted;
use crate::scratch::Scratch;
use crate::store::StoreMark;

/// How upstreams are visited.
#[derive(Clone)]
pub struct VisitOptions {
    /// How they are talked to.
    pub transport: TransportOptions,
    /// What a pack may be.
    pub limits: IngestLimits,
    /// Where packs lie while they are verified.
    pub scratch: Scratch,
    /// Threads for one pack.
    pub threads: usize,
    /// Which refs.
    pub refs: RefsWanted,
    /// Bytes of inflated deltas kept while a pack is verified.
    pub delta_bytes_max: usize,
    /// Whether the files that Git LFS keeps beside are fetched.
    pub lfs: bool,
    /// Room for them.
    pub space: Arc<Space>,
    /// When archives are compacted after an update.
    pub compacting: Compacting,
    /// Whether an upstream that has no refs any more is followed.
    pub accepts_empty: bool,
    /// What says that the store is there, where something does.
    pub store: Option<Arc<StoreMark>>,
    /// Where visits with these options, one at a time, say how far they have come.
    pub progress: Arc<Progress>,
}

/// When archives are compacted.
#[derive(Clone, Copy, Debug)]
pub struct Compacting {
    /// With more packs than this.
    pub packs_max: usize,
    /// With more of it unused than this, in percent of its length.
    pub unused_percent_max: u32,
}

/// Shared with the workers.
pub(crate) type SharedOptions = Arc<VisitOptions>;
