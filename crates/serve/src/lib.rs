//! Adapters that connect the upload-pack state machine to git://, HTTP, CGI and any blocking stream.
//!
//! A [`Locator`] finds what is served; this crate never makes a path from a name. Open repositories stay open
//! in a bounded [`RepoCache`]. Limits are on by default: on the time to send a request, on the time without
//! progress, and on connections, in all and per address.

mod access;
mod admission;
mod answer_spool;
mod blocking;
mod cache;
mod cgi;
mod clones;
mod daemon;
mod descriptors;
mod git_daemon;
mod handler;
mod hook;
mod http;
mod http_body;
mod http_files;
mod http_git;
mod http_handler;
mod http_lfs;
mod http_route;
mod jobs;
mod lfs_ssh;
mod listen_address;
mod locate;
mod log_limit;
mod mapping;
mod metrics_http;
mod opened;
mod paced;
mod presentation;
mod proxies;
mod request_log;
mod room;
mod send;
mod shards;
mod socket;
mod tls;
mod under_way;

pub use access::{Access, AccessRule, AccessedName, Token};
pub use blocking::serve_blocking;
pub use cache::{OpenError, RepoCache};
pub use cgi::serve_cgi;
pub use daemon::{Daemon, DaemonLimits, Door};
pub use descriptors::raise_descriptor_limit;
pub use handler::{HandlerAnswer, HttpAdmission, HttpHandler};
pub use hook::Hook;
pub use ipnet::IpNet;
pub use lfs_ssh::serve_lfs_ssh;
pub use listen_address::ListenAddress;
pub use locate::{Client, Found, Locator, Refusal};
pub use mapping::{MapRule, map};
pub use metrics_http::{MetricsText, serve_text};
pub use opened::{HttpFeatures, Opened};
pub use presentation::{Presentation, candidates};
pub use proxies::{TrustedProxies, network};
pub use request_log::REQUEST_LOG;
pub use socket::{Address, Listener};
pub use tls::Tls;
