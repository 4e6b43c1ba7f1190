//! Taking a pack in: stream, index with all cores, verify, complete, drop what is here already
//! (gitformat-pack).
//!
//! A pack is accepted whole or not at all. Every object's hash is computed, with SHA-1's collision detection;
//! every link of every object must lead to an object sent or one already here; and limits hold before memory
//! is spent.
//!
//! The work is three passes. `stream` reads the pack once as it arrives: it finds the entries, hashes whole
//! objects (on another thread) and keeps inflated deltas as far as memory allows. `resolve` walks each delta
//! tree once, depth first, smaller branches first, so that few bases are held at a time. `finish` sorts,
//! checks connectivity, drops objects that older bodies have and appends the bases a thin pack left out.

mod buffers;
mod finish;
mod ids;
mod links;
mod resolve;
mod spool;
mod stream;
mod table;

use std::io::Read;

use weir_git::{HashKind, Oid, OidSet};

use crate::error::Result;
use crate::progress::Progress;
use crate::repo::repository::Repo;

pub(crate) use spool::spool_reader;
pub use spool::{PackData, Quota, Share, SpillFn, SpillPlace};
pub use table::PackTable;

/// What a pack from outside may be at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
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

impl Default for Limits {
    fn default() -> Self {
        Limits {
            pack_bytes_max: 64 << 30,
            objects_max: 500_000_000,
            object_bytes_max: 4 << 30,
            held_bytes_max: 1 << 30,
            inflated_bytes_max: 4 << 40,
        }
    }
}

/// How a pack is taken in.
pub struct Options<'a> {
    /// The hash of the repository.
    pub hash: HashKind,
    /// Limits.
    pub limits: Limits,
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

/// Reads a pack from `input` and verifies it. `spill` gives the file it goes to if it outgrows a small
/// buffer. `None` if nothing in it is new.
///
/// # Errors
/// [`crate::Error::BadPack`], [`crate::Error::NotConnected`] or [`crate::Error::Limit`] for what was sent,
/// and of `input` and the disk. Nothing has changed then.
pub fn ingest(input: &mut dyn Read, spill: SpillFn<'_>, options: &Options<'_>) -> Result<Option<Ingested>> {
    let mut streamed = stream::stream(input, spill, options)?;
    let outside_bases = resolve::resolve(&mut streamed, options)?;
    finish::finish(streamed, outside_bases, spill, options)
}
