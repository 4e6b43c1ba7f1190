//! What came of taking a pack in.

use weir_git::Oid;

use crate::ingest::spool::PackData;
use crate::ingest::table::PackTable;

/// A pack that was accepted.
pub struct Ingested {
    /// The pack as it is to be stored: complete in itself.
    pub data: PackData,
    /// Its objects.
    pub objects: PackTable,
    /// Its trailing checksum.
    pub checksum: Oid,
    /// Where the part that was sent ends; bases added to complete a thin pack follow.
    pub sent_end: u64,
    /// Objects in that part.
    pub sent_count: u32,
    /// Ids of sent objects that no other sent object names: all of them are tips, if the pack is exactly the
    /// closure of what was asked for.
    pub unreferenced: Vec<Oid>,
    /// Ids outside the pack that its objects name.
    pub outside: Vec<Oid>,
    /// Tags that were sent, and what each points at.
    pub tags: Vec<(Oid, Oid)>,
}
