//! Events from outside, durable before they are acknowledged.
//!
//! An [`EventServer`] takes lines from many senders at its [`EventDoor`]s, and appends them to an
//! [`EventSpool`] in batches. A sender that asks for it is answered once its line is on disk. A
//! [`SpoolReader`] reads the records ([`Received`]) and deletes what is done with.

mod doors;
mod record;
mod spool;

pub use doors::{EventDoor, EventServer, EventServerOptions, IntakeCounts, LINE_BYTES_MAX};
pub use record::Received;
pub use spool::{EventSpool, FrameRecords, SpoolError, SpoolOptions, SpoolReader};
