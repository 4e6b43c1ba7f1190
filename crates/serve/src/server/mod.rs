//! The server: accepts connections, speaks git://, runs the work that takes time, and lends repositories and
//! threads to handlers of other requests.

pub(crate) mod arriving;
pub(crate) mod daemon;
mod git_daemon;
pub(crate) mod handler;
pub(crate) mod jobs;

pub use daemon::{Daemon, DaemonLimits, Door};
pub use handler::{
    BodyWriter, Effort, HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission, HttpHandler,
};
