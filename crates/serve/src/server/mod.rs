//! The server: accepts connections, speaks git://, and runs the work that takes time.

pub(crate) mod daemon;
mod git_daemon;
pub(crate) mod jobs;

pub use daemon::{Daemon, DaemonLimits, Door};
