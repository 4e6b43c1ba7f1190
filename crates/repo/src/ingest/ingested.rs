//! The result of taking a pack in.

use weir_git::Oid;

use crate::ingest::spool::PackData;
use crate::ingest::table::PackTable;

/// A pack that was accepted.
pub struct Ingested {
    /// The pack as it will be stored: complete in itself.
    pub data: PackData,
    /// The objects of the pack.
    pub objects: PackTable,
    /// The trailing checksum of the pack.
    pub checksum: Oid,
    /// Where the part that was sent ends; bases added to complete a thin pack follow.
    pub sent_end: u64,
    /// The number of objects in that part.
    pub sent_count: u32,
    /// The ids of sent objects that no other sent object names. All of them are tips, if the pack is exactly
    /// the closure of what was asked for.
    pub unreferenced: Vec<Oid>,
    /// The ids outside the pack that its objects name.
    pub outside: Vec<Oid>,
    /// The longest chain of deltas, or 0 if the pack is too small for a long one.
    pub chain_len: u32,
    /// The tags that were sent, and what each points at.
    pub tags: Vec<(Oid, Oid)>,
}
