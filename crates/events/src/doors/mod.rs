//! The doors: sockets on which events come in as lines.

mod coalescing;
mod connection;
mod gate;
mod idle;
mod intake;
mod lines;
mod server;

pub use gate::DoorGate;
pub use idle::{IdleSweep, LastHeard};
pub use intake::IntakeCounts;
pub use lines::LINE_BYTES_MAX;
pub use server::{EventDoor, EventServer, EventServerOptions};
