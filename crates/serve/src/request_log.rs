//! One line of the log for each request: who asked for what, what the answer was, and what it took. The
//! request is counted, too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::counts::{RequestKind, RequestResult, ServingCounts};

/// The target of these lines. Clients decide how many there are: a program should log them only if somebody
/// wants them.
pub const REQUEST_LOG: &str = "weir_serve::requests";

/// A request that is under way. It is logged when this is dropped.
#[derive(Debug)]
pub(crate) struct RequestEntry {
    counts: Arc<ServingCounts>,
    kind: RequestKind,
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
        counts: Arc<ServingCounts>,
        kind: RequestKind,
        peer: Option<SocketAddr>,
        protocol: &'static str,
        request: String,
        repository: String,
    ) -> RequestEntry {
        let (status, started) = (String::new(), Instant::now());
        RequestEntry {
            counts,
            kind,
            peer,
            protocol,
            request,
            repository,
            status,
            bytes: 0,
            is_whole: true,
            started,
        }
    }

    fn result(&self) -> RequestResult {
        match self.status.as_bytes() {
            b"refused" | [b'4', ..] => RequestResult::Refused,
            [b'5', ..] => RequestResult::Failed,
            _ if self.is_whole => RequestResult::Answered,
            _ => RequestResult::BrokenOff,
        }
    }
}

impl Drop for RequestEntry {
    fn drop(&mut self) {
        let peer = self.peer.map_or_else(|| "this machine".to_owned(), |peer| peer.to_string());
        let elapsed = self.started.elapsed();
        let elapsed_ms = elapsed.as_millis() as u64;
        self.counts.count(self.kind, self.result(), self.bytes, elapsed);
        let RequestEntry { protocol, request, repository, status, bytes, .. } = self;
        // Text of clients is quoted: it cannot look like another field.
        tracing::info!(
            target: REQUEST_LOG, %peer, protocol, request, repository, %status, bytes, elapsed_ms,
            ended_early = (!self.is_whole).then_some(true), "request"
        );
    }
}
