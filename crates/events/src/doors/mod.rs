//! The doors: sockets on which events come in as lines, and the way in for other threads.

mod coalescing;
mod connection;
mod intake;
mod lines;
mod offers;
mod server;

pub use intake::IntakeCounts;
pub(crate) use intake::now_ms;
pub use lines::LINE_BYTES_MAX;
pub use offers::{EventIntake, ServerEnded};
pub use server::{EventDoor, EventServer, EventServerOptions};
