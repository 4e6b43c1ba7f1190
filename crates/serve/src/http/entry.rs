//! The entries of HTTP requests in the logs.

use std::error::Error;
use std::net::SocketAddr;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, REFERER, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::{Request, StatusCode, Version};

use crate::access::locate::Client;
use crate::counts::RequestKind;
use crate::http::route::{Route, route};
use crate::http::token::token_of;
use crate::request_log::{AccessFields, RequestEntry, next_request_id};
use crate::server::daemon::Daemon;

/// The header with a request's name, which many proxies set.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Bytes of such a name.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// The header with the place of a request in a trace.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

impl Daemon {
    /// Starts the entry of a request in the logs. The path is as sent: percent-encoded.
    pub(crate) fn entry_of<B>(&self, request: &Request<B>, peer: Option<SocketAddr>) -> RequestEntry {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let routed = route(path, query);
        let repository = routed.as_ref().map_or(path, |(name, _)| name);
        let kind = match routed.as_ref().map(|(_, route)| route) {
            None => RequestKind::Handler,
            Some(Route::InfoRefs(_) | Route::UnknownService) => RequestKind::Refs,
            Some(Route::Rpc(_)) => RequestKind::Pack,
            Some(Route::LfsBatch | Route::LfsObject(_)) => RequestKind::Lfs,
            Some(_) => RequestKind::File,
        };
        let asked = path[repository.len()..].trim_start_matches('/');
        let is_https = request.extensions().get::<Scheme>() == Some(&Scheme::HTTPS);
        let protocol = if is_https { "https" } else { "http" };
        let words = format!("{} {asked}", request.method()).trim_end().to_owned();
        let entry =
            RequestEntry::start(self.counts.clone(), kind, peer, protocol, words, repository.to_owned());
        match self.sinks.is_empty() {
            true => entry,
            false => self.with_access(entry, request, peer),
        }
    }

    /// Writes a line of the access log about a request that is no HTTP, and to which hyper has answered so,
    /// if that is what `e` says.
    pub(crate) fn note_malformed(&self, e: &(dyn Error + 'static), peer: Option<SocketAddr>) {
        let Some(log) = &self.sinks.log else { return };
        let Some(e) = e.downcast_ref::<hyper::Error>().filter(|e| e.is_parse()) else { return };
        let status = match e.is_parse_too_large() {
            true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            false => StatusCode::BAD_REQUEST,
        };
        log.malformed("http", status.as_u16(), peer);
    }

    fn with_access<B>(
        &self,
        entry: RequestEntry,
        request: &Request<B>,
        peer: Option<SocketAddr>,
    ) -> RequestEntry {
        let text = |name| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let client = Client { address: peer, token: token_of(request.headers()), known_as: None };
        let fields = AccessFields {
            request_id: request_id_of(request.headers()).unwrap_or_else(next_request_id),
            user: client.token.is_some().then(|| self.repositories.locator.user(&client)).flatten(),
            version: match request.version() {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            method: request.method().to_string(),
            target: match (request.version(), request.uri().path_and_query()) {
                // There the host is a part of it, too.
                (Version::HTTP_2, Some(path)) => path.to_string(),
                _ => request.uri().to_string(),
            },
            status: None,
            referer: text(REFERER),
            user_agent: text(USER_AGENT),
            context: self.sinks.context_of(trace_parent_of(request.headers())),
        };
        entry.with_access(self.sinks.clone(), fields)
    }
}

/// Returns the header `traceparent`, if there is one and no other.
fn trace_parent_of(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(TRACE_PARENT).iter();
    all.next().filter(|_| all.next().is_none()).map(HeaderValue::as_bytes)
}

/// Returns the name that a request has already, if it is one that a log can hold.
fn request_id_of(headers: &HeaderMap) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+/=".contains(&byte);
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_plain);
    fits.then(|| id.to_owned())
}
