//! The server: its connections, the conversations of git:// and the work that takes time.

pub(crate) mod daemon;
mod git_daemon;
pub(crate) mod jobs;

pub use daemon::{Daemon, DaemonLimits, Door};
