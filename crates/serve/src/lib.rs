//! Adapters that connect the upload-pack state machine to git://, HTTP, CGI and any blocking stream.
//!
//! A [`Locator`] finds what is served; of those here, only [`PathLocator`] makes a path from a name. Open
//! repositories stay open in a bounded [`RepoCache`]. Limits are on by default: on the time to send a
//! request, on the time without progress, and on connections, in all and per address.
//!
//! ```no_run
//! # async fn serve(locator: std::sync::Arc<dyn weir_serve::Locator>) -> std::io::Result<()> {
//! use std::sync::Arc;
//!
//! use weir_serve::{Address, Daemon, DaemonLimits, Door, Listener, Presentation};
//! use weir_upload::UploadOptions;
//!
//! let options = UploadOptions::default();
//! let daemon = Daemon::new(locator, options, DaemonLimits::default(), Presentation::default())?;
//! let listener = Listener::bind(&Address::Tcp(([127, 0, 0, 1], 9418).into()))?;
//! Arc::new(daemon).run(listener, Door::Git, std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod access;
mod access_line;
mod access_log;
mod blocking;
mod counts;
mod http;
mod limits;
mod request_log;
mod server;
mod sockets;
mod stdio;
mod trace_context;

pub use access::{
    Access, AccessRule, AccessedName, AwaitedFor, AwaitedVisit, Client, Found, Hook, HookDenial,
    HttpFeatures, Locator, LogLine, MapError, MapRule, OpenError, Opened, PathLocator, Presentation, Refusal,
    RepoCache, Token, candidates, map,
};
pub use access_line::AccessLine;
pub use access_log::{AccessLog, AccessLogFormat, append_access_line};
pub use blocking::serve_blocking;
pub use counts::{Histogram, KindCounts, RequestKind, RequestResult, ServingCounts};
pub use http::{MetricsText, WantedPart, serve_cgi, serve_lfs_ssh, serve_text};
pub use ipnet::IpNet;
pub use limits::raise_descriptor_limit;
pub use request_log::{REQUEST_LOG, next_request_id};
pub use server::{
    BodyWriter, Daemon, DaemonLimits, Door, Effort, HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission,
    HttpHandler,
};
pub use sockets::{
    Address, CertificateError, ListenAddress, ListenAddressError, Listener, NoProxy, Tls, TrustedProxies,
    network,
};
pub use stdio::{
    GiveUp, ShellAnswer, ShellLimits, ShellRequest, SilentClient, serve_inetd, serve_shell, serve_stdio,
};
pub use trace_context::{RequestTracer, TraceContext, new_id};
