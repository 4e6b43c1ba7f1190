//! Options of a visit.

use std::sync::Arc;

use weir_repo::Progress;
use weir_repo::ingest::IngestLimits;
use weir_transport::TransportOptions;

use crate::Space;
use crate::arrivals::Arrivals;
use crate::refs_wanted::RefsWanted;
use crate::scratch::Scratch;
use crate::store::StoreMark;

/// Options of a visit.
#[derive(Clone)]
pub struct VisitOptions {
    /// Options of the connection.
    pub transport: TransportOptions,
    /// Limits of a pack.
    pub limits: IngestLimits,
    /// The place for packs while they are verified.
    pub scratch: Scratch,
    /// The number of threads for one pack.
    pub threads: usize,
    /// The refs that are mirrored.
    pub refs: RefsWanted,
    /// The bytes of inflated deltas that are kept while a pack is verified.
    pub delta_bytes_max: usize,
    /// Whether Git LFS objects are fetched.
    pub lfs: bool,
    /// The room for archives.
    pub space: Arc<Space>,
    /// The conditions for compacting an archive after an update.
    pub compacting: Compacting,
    /// Whether the refs are dropped if the upstream has none any more.
    pub accepts_empty: bool,
    /// The file that shows that the store is mounted, if there is one.
    pub store: Option<Arc<StoreMark>>,
    /// Where a first copy is listed while it arrives.
    pub arrivals: Arrivals,
    /// The progress of the visit with these options; there is one at a time.
    pub progress: Arc<Progress>,
}

/// The conditions for compacting an archive.
#[derive(Clone, Copy, Debug)]
pub struct Compacting {
    /// The number of packs above which it is compacted.
    pub packs_max: usize,
    /// The unused part above which it is compacted, in percent of its length.
    pub unused_percent_max: u32,
}

/// Options that the workers share.
pub(crate) type SharedOptions = Arc<VisitOptions>;
