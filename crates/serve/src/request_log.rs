//! One line of the log for each request: who asked for what, what the answer was, and what it took. The
//! request is counted, too.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::access_line::AccessLine;
use crate::access_log::AccessLog;
use crate::counts::{RequestKind, RequestResult, ServingCounts};
use crate::trace_context::{RequestTracer, TraceContext};

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
    /// Whether the answer broke off, and not because of the client.
    pub(crate) is_failed: bool,
    started: Instant,
    /// For the access log and for traces, if there are any.
    access: Option<(RequestSinks, AccessFields)>,
}

/// Take requests that have ended, beside the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestSinks {
    pub(crate) log: Option<Arc<AccessLog>>,
    pub(crate) tracer: Option<Arc<dyn RequestTracer>>,
}

impl RequestSinks {
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_none() && self.tracer.is_none()
    }

    /// Returns the context of a request with a header `traceparent`, if the request is traced.
    pub(crate) fn context_of(&self, header: Option<&[u8]>) -> Option<TraceContext> {
        let tracer = self.tracer.as_ref()?;
        Some(TraceContext::of(header)).filter(|context| tracer.wants(*context))
    }
}

/// The fields of a request that only the access log and traces have.
#[derive(Debug, Default)]
pub(crate) struct AccessFields {
    pub(crate) request_id: String,
    pub(crate) user: Option<String>,
    pub(crate) version: &'static str,
    pub(crate) method: String,
    pub(crate) target: String,
    /// The status in the terms of HTTP, if the request's own is another.
    pub(crate) status: Option<u16>,
    pub(crate) referer: Option<String>,
    pub(crate) user_agent: Option<String>,
    pub(crate) context: Option<TraceContext>,
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
            is_failed: false,
            started,
            access: None,
        }
    }

    /// Returns the entry, of which a line with `fields` goes to `sinks`, too.
    pub(crate) fn with_access(mut self, sinks: RequestSinks, fields: AccessFields) -> RequestEntry {
        self.access = Some((sinks, fields));
        self
    }

    /// Returns the name of the request, if it has one.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.access.as_ref().map(|(_, fields)| fields.request_id.as_str())
    }

    /// Sets the status in the terms of HTTP.
    pub(crate) fn set_status_of_http(&mut self, status: u16) {
        if let Some((_, fields)) = &mut self.access {
            fields.status = Some(status);
        }
    }

    fn result(&self) -> RequestResult {
        match self.status.as_bytes() {
            b"refused" | [b'4', ..] => RequestResult::Refused,
            [b'5', ..] => RequestResult::Failed,
            _ if self.is_failed => RequestResult::Failed,
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
        if let Some((sinks, fields)) = self.access.take() {
            let status = fields.status.or_else(|| self.status.parse().ok()).unwrap_or(0);
            let line = AccessLine {
                request_id: fields.request_id,
                user: fields.user,
                protocol: self.protocol,
                version: fields.version,
                method: fields.method,
                target: fields.target,
                repository: (self.kind != RequestKind::Handler).then(|| self.repository.clone()),
                status,
                result: self.result().name(),
                bytes: self.bytes,
                referer: fields.referer,
                user_agent: fields.user_agent,
                trace_id: fields.context.map(|context| format!("{:032x}", context.trace_id)),
                ..AccessLine::ended(self.peer, elapsed)
            };
            if let Some(log) = &sinks.log {
                log.line(line.encode(log.format));
            }
            if let Some((tracer, context)) = sinks.tracer.zip(fields.context) {
                tracer.ended(&line, context);
            }
        }
        let RequestEntry { protocol, request, repository, status, bytes, .. } = self;
        // Text of clients is quoted: it cannot look like another field.
        tracing::info!(
            target: REQUEST_LOG, %peer, protocol, request, repository, %status, bytes, elapsed_ms,
            ended_early = (!self.is_whole).then_some(true), "request"
        );
    }
}

impl AccessLog {
    /// Writes a line about a request that does not follow its protocol, to which the server answered with
    /// `status`, in the terms of HTTP.
    pub(crate) fn malformed(&self, protocol: &'static str, status: u16, peer: Option<SocketAddr>) {
        let line = AccessLine {
            request_id: next_request_id(),
            protocol,
            version: "-",
            method: "-".to_owned(),
            target: "-".to_owned(),
            status,
            result: RequestResult::Refused.name(),
            ..AccessLine::ended(peer, Duration::ZERO)
        };
        self.line(line.encode(self.format));
    }
}

/// Returns a name for a request that no other request has, of this process or another.
pub fn next_request_id() -> String {
    static OF_PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:016x}-{:x}", *OF_PROCESS, NEXT.fetch_add(1, Ordering::Relaxed))
}
