//! One line of the log for each request: who asked for what, what the answer was, and what it took.

use std::net::SocketAddr;
use std::time::Instant;

/// The target of these lines. Clients decide how many there are: a program should log them only if somebody
/// wants them.
pub const REQUEST_LOG: &str = "weir_serve::requests";

/// A request that is under way. It is logged when this is dropped.
#[derive(Debug)]
pub(crate) struct RequestEntry {
    peer: Option<SocketAddr>,
    protocol: &'static str,
    request: String,
    repository: String,
    /// The status of HTTP; for git://, `ok` or `refused`.
    pub(crate) status: String,
    /// Bytes of the answer that were sent.
    pub(crate) bytes: u64,
    /// Whether all of the answer was sent.
    pub(crate) is_whole: bool,
    started: Instant,
}

impl RequestEntry {
    /// Starts the entry of a request for `repository`, as the client named it.
    pub(crate) fn start(
        peer: Option<SocketAddr>,
        protocol: &'static str,
        request: String,
        repository: String,
    ) -> RequestEntry {
        let (status, started) = (String::new(), Instant::now());
        RequestEntry { peer, protocol, request, repository, status, bytes: 0, is_whole: true, started }
    }
}

impl Drop for RequestEntry {
    fn drop(&mut self) {
        let peer = self.peer.map_or_else(|| "this machine".to_owned(), |peer| peer.to_string());
        let elapsed_ms = self.started.elapsed().as_millis() as u64;
        let RequestEntry { protocol, request, repository, status, bytes, .. } = self;
        // Text of clients is quoted: it cannot look like another field.
        tracing::info!(
            target: REQUEST_LOG, %peer, protocol, request, repository, %status, bytes, elapsed_ms,
            ended_early = (!self.is_whole).then_some(true), "request"
        );
    }
}
