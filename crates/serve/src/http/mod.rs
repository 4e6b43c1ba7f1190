//! HTTP and CGI: git's smart and dumb protocols, Git LFS (over ssh, too), and requests that another handler
//! answers.

pub(crate) mod body;
mod cgi;
mod conditional;
mod entry;
mod files;
pub(crate) mod front;
mod git;
mod handler;
mod hang_up;
mod lfs;
mod lfs_ssh;
mod metrics;
mod route;
mod token;
mod under_way;

pub use cgi::serve_cgi;
pub use conditional::WantedPart;
pub use lfs_ssh::serve_lfs_ssh;
pub use metrics::{MetricsText, serve_text};
