//! The spool: a log of records on disk. What was appended is there after a crash of the process or of the
//! machine. Records have numbers that grow; one reader follows, and what it is done with is deleted.
//!
//! The format is in `docs/event-spool.md`.

mod committer;
mod error;
mod frame;
mod reader;
mod segment;
mod shared;
mod writer;

pub use committer::{EventCommitter, EventIntake, NotCommitted};
pub use error::SpoolError;
pub use frame::FrameRecords;
pub use reader::SpoolReader;
pub use writer::{EventSpool, SpoolOptions};
