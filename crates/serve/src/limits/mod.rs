//! Limits the work that clients cause: turns, memory, kept answers, descriptors, lines of the log.

pub(crate) mod admission;
pub(crate) mod answer_spool;
pub(crate) mod descriptors;
pub(crate) mod log_limit;
pub(crate) mod room;

pub use descriptors::raise_descriptor_limit;
