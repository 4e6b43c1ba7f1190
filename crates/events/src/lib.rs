//! Events from outside, durable before they are acknowledged.
//!
//! An [`EventServer`] takes lines from many senders at its [`EventDoor`]s, and appends them to an
//! [`EventSpool`] in batches. A sender that asks for it is answered once its line is on disk. A
//! [`SpoolReader`] reads the records ([`ReceivedLine`]) and deletes what is done with; a [`Notice`] is what a
//! line says.
//!
//! ```
//! use weir_events::Notice;
//!
//! let notice = Notice::parse(br#"{"url":"https://example.org/project.git"}"#).unwrap();
//! assert_eq!(notice.subject(), "https://example.org/project.git");
//! assert!(Notice::parse(br#"{"nothing":1}"#).is_err());
//! ```

mod doors;
mod error;
mod line_stream;
mod load;
mod notice;
mod record;
mod spool;
mod webhooks;

pub use doors::{
    DoorGate, EventDoor, EventServer, EventServerOptions, IdleSweep, IntakeCounts, LINE_BYTES_MAX, LastHeard,
};
pub use error::{EventError, SecretError, WrongSecret};
pub use load::{LineLoad, LoadError, LoadReport, LoadTarget};
pub use notice::Notice;
pub use record::{ReceivedLine, now_ms};
pub use spool::{
    EventCommitter, EventIntake, EventSpool, FrameRecords, NotCommitted, SpoolError, SpoolOptions,
    SpoolReader,
};
pub use webhooks::{
    StreamLine, WebhookAnswer, WebhookCounts, WebhookDoors, WebhookForge, WebhookOptions, WebhookResult,
    WebhookSigner, gerrit_line,
};
