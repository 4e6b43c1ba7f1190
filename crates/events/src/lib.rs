//! Events from outside, durable before they are acknowledged.
//!
//! An [`EventSpool`] keeps records on disk until a reader is done with them.

mod spool;

pub use spool::{EventSpool, FrameRecords, SpoolError, SpoolOptions, SpoolReader};
