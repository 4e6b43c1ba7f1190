//! Takes a pack in: streams it, indexes it with all cores, verifies it, completes it, and drops what is here
//! already (gitformat-pack).
//!
//! A pack is accepted whole or not at all. Every object's hash is computed, with SHA-1's collision detection.
//! Every link of every object must lead to an object that is sent or already here. Limits are checked before
//! memory is used.
//!
//! The work has three passes. `stream` reads the pack once as it arrives: it finds the entries, hashes whole
//! objects (on another thread) and keeps inflated deltas as far as memory allows. `resolve` walks each delta
//! tree once, depth first, smaller branches first, so that few bases are held at a time. `finish` sorts,
//! checks connectivity, drops objects that older bodies have and appends the bases that a thin pack lacks.

mod buffers;
mod finish;
mod ids;
mod ingested;
mod input;
mod links;
mod options;
mod resolve;
mod spool;
mod stream;
mod table;

use std::io::Read;

use weir_ground::thread::giving_way;

use crate::error::Result;

pub use ingested::Ingested;
pub use options::{IngestLimits, IngestOptions};
pub(crate) use spool::spool_reader;
pub use spool::{PackData, Quota, QuotaShare, SpillFn, SpillPlace};
pub use table::PackTable;

/// Reads a pack from `input` and verifies it. `spill` returns the file for a pack that outgrows a small
/// buffer. Returns `None` if nothing in the pack is new.
///
/// # Errors
/// [`crate::Error::BadPack`], [`crate::Error::NotConnected`] or [`crate::Error::Limit`] if the pack is
/// refused. Other errors if `input` or the disk fails. Then nothing has changed.
pub fn ingest(
    input: &mut dyn Read,
    spill: SpillFn<'_>,
    options: &IngestOptions<'_>,
) -> Result<Option<Ingested>> {
    let streamed = stream::stream(input, spill, options);
    if let Some(arriving) = options.arriving {
        arriving.end(streamed.is_ok());
    }
    let mut streamed = streamed?;
    let rest = move || {
        let outside_bases = resolve::resolve(&mut streamed, options)?;
        finish::finish(streamed, outside_bases, spill, options)
    };
    if options.arriving.is_some_and(|pack| pack.is_read()) { giving_way("ingest", rest) } else { rest() }
}
