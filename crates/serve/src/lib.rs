//! Thin adapters between the upload-pack state machine and the world: git:// over TCP, and any blocking stream.
//!
//! What is served is found by a [`Locator`]; this crate joins no name to a path. Open repositories stay open in a bounded
//! [`RepoCache`]. Limits are on by default: time to ask, time without progress, connections in all and an address.

mod blocking;
mod cache;
mod daemon;
mod directory;
mod http;
mod http_body;
mod send;
mod shards;

pub use blocking::serve_blocking;
pub use cache::{Found, Locator, OpenError, Opened, RepoCache};
pub use daemon::{Daemon, DaemonLimits, Door};
pub use directory::{Presentation, candidates};
