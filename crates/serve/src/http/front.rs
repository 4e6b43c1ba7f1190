//! HTTP on hyper: HTTP/1.1, and HTTP/2 with clients that know that the server speaks it; plain, or over TLS.
//!
//! Each request is a conversation of its own. The status codes are those of git-http-backend: 403 for
//! services that are off, 404 for what does not exist or is hidden, 405 and 415 for wrong methods and types,
//! 413 for requests over their limit. In addition, 401 asks the client to authenticate, and 503 to come back
//! later.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body::Body;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, EXPIRES, HOST, HeaderMap, HeaderName, HeaderValue, PRAGMA,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::http::uri::{Authority, Scheme};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version as HttpVersion};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use weir_ground::printable;
use weir_upload::{DaemonRequest, Service, Version};

use crate::access::locate::{AwaitedFor, Client, Refusal};
use crate::access::opened::Opened;
use crate::http::body::ResponseBody;
use crate::http::entry::REQUEST_ID;
use crate::http::hang_up::HangUp;
use crate::http::route::{Route, route};
use crate::http::token::token_of;
use crate::http::under_way::UnderWay;
use crate::server::daemon::Daemon;
use crate::sockets::paced::Paced;
use crate::sockets::socket::Socket;
use crate::sockets::tls::{Tls, handshake};

pub(crate) const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes that are read at first: most heads are shorter.
const FIRST_READ_BYTES: usize = 1024;
/// The refusal of a client behind a proxy that has too many requests under way.
const TOO_MANY: &str = "too many requests at once; try again in a minute";
/// Streams of one HTTP/2 connection that a client takes back before they are begun, and those that the server
/// resets for errors of the client, until the connection ends (CVE-2023-44487, CVE-2025-8671).
const RESETS_MAX: usize = 20;
const ERRORS_MAX: usize = 100;
/// Streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 32;
/// Bytes of one stream that wait for its client.
const STREAM_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(FIRST_READ_BYTES < HEAD_BYTES_MAX, "the head may be longer than the first read");

/// The time that a server which is to stop waits for the request of a connection that has none: it may be on
/// its way.
const LAST_REQUEST_MAX: Duration = Duration::from_secs(1);

/// The requests of a connection: when its server is to stop, the next one is the last.
#[derive(Default)]
struct LastRequest {
    /// Whether there was a request.
    is_any: AtomicBool,
    is_awaited: AtomicBool,
    begun: Notify,
}

impl LastRequest {
    fn begins(&self) {
        self.is_any.store(true, Ordering::Relaxed);
        if self.is_awaited.load(Ordering::Relaxed) {
            self.begun.notify_one();
        }
    }

    /// Resolves when the last request has come, or none is on its way.
    async fn comes(&self) {
        let _ = tokio::time::timeout(LAST_REQUEST_MAX, self.begun.notified()).await;
    }
}

/// Why a request gets no answer.
#[derive(Debug)]
pub(crate) struct HttpRefusal {
    pub(crate) status: StatusCode,
    pub(crate) words: String,
    /// Methods that are allowed, if the method was the reason.
    allow: Option<&'static str>,
}

impl HttpRefusal {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> HttpRefusal {
        HttpRefusal { status, words: words.into(), allow: None }
    }

    fn method(version: HttpVersion, allow: &'static str) -> HttpRefusal {
        // As in git-http-backend: before HTTP/1.1 there was no such status.
        let status = if version < HttpVersion::HTTP_11 {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::METHOD_NOT_ALLOWED
        };
        HttpRefusal { status, words: format!("only {allow}"), allow: Some(allow) }
    }

    fn into_response(self) -> Response<ResponseBody> {
        let shown = printable(&self.words);
        let mut response = Response::new(ResponseBody::from(format!("{shown}\n").into_bytes()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, TEXT);
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"weir\""));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("60"));
            }
            _ => {}
        }
        uncached(response)
    }
}

impl From<Refusal> for HttpRefusal {
    fn from(refusal: Refusal) -> HttpRefusal {
        HttpRefusal::new(refusal.status(), refusal.words())
    }
}

impl Daemon {
    pub(crate) async fn converse_http(
        self: Arc<Self>,
        socket: Socket,
        peer: Option<SocketAddr>,
    ) -> io::Result<()> {
        let paced = Paced::new(socket, self.limits.idle_timeout, self.limits.bytes_per_second_min);
        let hang_up = HangUp::new(paced.fd(), paced.activity());
        self.serve_http(paced, hang_up, peer, Scheme::HTTP).await
    }

    pub(crate) async fn converse_https(
        self: Arc<Self>,
        socket: Socket,
        peer: Option<SocketAddr>,
        tls: &Tls,
    ) -> io::Result<()> {
        let paced = Paced::new(socket, self.limits.idle_timeout, self.limits.bytes_per_second_min);
        let hang_up = HangUp::new(paced.fd(), paced.activity());
        let accepting = TlsAcceptor::from(tls.config()).accept(paced);
        let stream = match tokio::time::timeout(self.limits.init_timeout, accepting).await {
            Ok(stream) => stream.map_err(handshake)?,
            Err(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "TLS: the handshake did not come to its end",
                ));
            }
        };
        self.serve_http(stream, hang_up, peer, Scheme::HTTPS).await
    }

    /// Returns what makes connections of both versions of HTTP, with their limits.
    fn http_builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // A client may end its half of the connection after its request. If it has hung up instead, sending
        // to it fails.
        builder
            .http1()
            .half_close(true)
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.init_timeout)
            .max_buf_size(64 << 10);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_local_error_reset_streams(ERRORS_MAX)
            .keep_alive_interval(self.limits.idle_timeout)
            .keep_alive_timeout(self.limits.init_timeout)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            // A client may read nothing on all streams of all its connections: hyper would hold 400 KiB for
            // each stream.
            .max_send_buf_size(STREAM_BYTES_MAX);
        builder
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        hang_up: HangUp,
        peer: Option<SocketAddr>,
        scheme: Scheme,
    ) -> io::Result<()> {
        let idle_timeout = self.limits.idle_timeout;
        let under_way = Arc::new(AtomicUsize::new(0));
        let activity = hang_up.activity().clone();
        let last = Arc::new(LastRequest::default());
        let service = {
            let (daemon, under_way, last) = (self.clone(), under_way.clone(), last.clone());
            service_fn(move |mut request: Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(scheme.clone());
                hang_up.note_in(&mut request);
                let daemon = daemon.clone();
                last.begins();
                // The clients of a proxy are counted here; other clients were counted when they connected.
                let client = daemon.proxies.client(request.headers(), peer);
                let counted =
                    if daemon.proxies.trusts(peer) { daemon.count(client).map(Some) } else { Ok(None) };
                let admitted = counted.map(|counted| UnderWay::start(&under_way, counted));
                async move {
                    let Ok(guard) = admitted else {
                        daemon.counts.refused.fetch_add(1, Ordering::Relaxed);
                        daemon.notices.say(client.map(|c| c.ip()), "refused", &TOO_MANY);
                        let mut entry = daemon.entry_of(&request, client);
                        let status = StatusCode::SERVICE_UNAVAILABLE;
                        entry.status = status.as_u16().to_string();
                        let refused = HttpRefusal::new(status, TOO_MANY).into_response();
                        return Ok(refused.map(|body| body.logged(entry, false)));
                    };
                    Ok::<_, Infallible>(
                        daemon.answer_http(request, client).await.map(|body| body.guarded(guard)),
                    )
                }
            })
        };
        let builder = self.http_builder();
        // hyper reads the first 24 bytes by themselves, to see which version of HTTP the client speaks.
        let stream = TokioIo::new(BufReader::with_capacity(FIRST_READ_BYTES, stream));
        let mut connection = pin!(builder.serve_connection(stream, service));
        let mut stopping = self.stopping.subscribe();
        let (mut is_stopping, mut is_ending) = (false, false);
        let look = idle_timeout.min(Duration::from_secs(3600));
        loop {
            tokio::select! {
                ended = connection.as_mut() => return match ended {
                    // It was told to end before it said anything.
                    Err(_) if is_ending && !last.is_any.load(Ordering::Relaxed) => Ok(()),
                    ended => ended.map_err(|e| {
                        self.note_malformed(&*e, peer);
                        plain(e)
                    }),
                },
                _ = stopping.wait_for(|stopping| *stopping), if !is_stopping => {
                    is_stopping = true;
                    last.is_awaited.store(true, Ordering::Relaxed);
                    if under_way.load(Ordering::Relaxed) > 0 {
                        last.begins();
                    }
                }
                () = last.comes(), if is_stopping && !is_ending => {
                    // The client learns with its answer that there is no other.
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = tokio::time::sleep(look) => {
                    // Pings of HTTP/2 do not keep a connection open that has no requests.
                    if under_way.load(Ordering::Relaxed) == 0 && activity.quiet() >= idle_timeout / 2 {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }

    /// Answers one request of a client at `peer`.
    pub(crate) async fn answer_http<B>(
        self: Arc<Self>,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Display,
    {
        let path = request.uri().path().to_owned();
        let mut entry = self.entry_of(&request, peer);
        let request_id = entry.request_id().map(str::to_owned);
        let is_head = request.method() == Method::HEAD;
        let mut response = match self.try_answer_http(request, peer).await {
            Ok(response) => response,
            Err(refusal) => {
                let told = format_args!(
                    "{} {} {}",
                    refusal.status.as_u16(),
                    path.escape_default(),
                    refusal.words.escape_default()
                )
                .to_string();
                self.notices.say(peer.map(|p| p.ip()), "refused", &told);
                refusal.into_response()
            }
        };
        if let Some(id) = request_id.and_then(|id| HeaderValue::try_from(id).ok()) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        entry.status = response.status().as_u16().to_string();
        response.map(|body| body.logged(entry, is_head))
    }

    async fn try_answer_http<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Result<Response<ResponseBody>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Display,
    {
        // RFC 9112, section 3.2. What a web server hands on as CGI need not have it, and has no scheme here.
        let hosts = request.headers().get_all(HOST).iter().count();
        let is_own = request.extensions().get::<Scheme>().is_some();
        if hosts > 1 || (hosts == 0 && is_own && request.version() == HttpVersion::HTTP_11) {
            return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "a request needs one Host"));
        }
        if let Some(handler) = self.reserved(request.uri().path()) {
            return Ok(self.hand_to(&*handler, request, peer).await);
        }
        let path = percent_decode(request.uri().path())
            .ok_or_else(|| HttpRefusal::new(StatusCode::BAD_REQUEST, "a malformed path"))?;
        let query = request.uri().query().unwrap_or("").to_owned();
        let Some((name, route)) = route(&path, &query) else {
            let not_found = || HttpRefusal::new(StatusCode::NOT_FOUND, "not a git URL");
            return self.hand_on(request, peer).await?.ok_or_else(not_found);
        };
        let is_post = matches!(route, Route::Rpc(_) | Route::LfsBatch);
        match *request.method() {
            Method::POST if is_post => {}
            Method::GET | Method::HEAD if !is_post => {}
            _ => {
                return Err(HttpRefusal::method(
                    request.version(),
                    if is_post { "POST" } else { "GET, HEAD" },
                ));
            }
        }
        let service = match route {
            // git asks upload-pack which version of the protocol is spoken, for upload-archive, too.
            Route::UnknownService | Route::InfoRefs(Some(Service::UploadArchive)) => {
                return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "unsupported service"));
            }
            Route::InfoRefs(Some(service)) | Route::Rpc(service) => service,
            _ => Service::UploadPack,
        };
        let asked = asked_by(&request, name, service, peer);
        // Boxed: a future is as large as its largest part, and hyper moves the future of each request.
        let answer = async move {
            let opened = self.find_http(&asked, &route).await?;
            match route {
                Route::InfoRefs(Some(_)) => self.advertise(&request, opened, &asked).await,
                Route::Rpc(_) => self.converse_once(request, opened, &asked).await,
                Route::LfsBatch => self.lfs_batch(request, opened, peer).await,
                route => self.file(&request, opened, route).await,
            }
        };
        Box::pin(answer).await
    }

    /// Finds and opens what a client asks for after a visit to the upstream, because the copy lacks what it
    /// wants, or `was_arriving`. Returns `None` if there is no such visit.
    pub(crate) async fn find_missing_http(
        self: &Arc<Self>,
        asked: &HttpAsk,
        was_arriving: bool,
    ) -> Result<Option<Opened>, HttpRefusal> {
        let HttpAsk { request, client } = asked;
        let found = self.repositories.find_missing(request, client.clone(), was_arriving).await?;
        let Some(found) = found else {
            return Ok(None);
        };
        Ok(Some(self.repositories.open(found, &request.path, client.address).await?))
    }

    /// Finds and opens what a client asks for. If it begins to read, it may wait for a visit to the upstream.
    async fn find_http(self: &Arc<Self>, asked: &HttpAsk, route: &Route) -> Result<Opened, HttpRefusal> {
        let HttpAsk { request, client } = asked;
        // In version 2 a request does not depend on the one before: the next may find the archive.
        let takes_arriving =
            matches!(route, Route::InfoRefs(Some(Service::UploadPack)) | Route::Rpc(Service::UploadPack))
                && Version::from_protocol(&request.protocol) == Version::V2;
        let why = match route {
            Route::InfoRefs(_) if takes_arriving => Some(AwaitedFor::Arriving),
            Route::InfoRefs(_) | Route::Clone => Some(AwaitedFor::Begin),
            Route::LfsBatch | Route::Rpc(Service::UploadArchive) => Some(AwaitedFor::First),
            _ => None,
        };
        let found = self.repositories.find_fresh(request, client.clone(), why, takes_arriving).await?;
        match self.repositories.open_found(found, &request.path, client.address).await {
            Ok(opened) if !opened.http.upload_pack => {
                Err(HttpRefusal::new(StatusCode::FORBIDDEN, "service not enabled: upload-pack"))
            }
            Ok(opened) => Ok(opened),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// A request for a repository, and its client.
pub(crate) struct HttpAsk {
    pub(crate) request: DaemonRequest,
    pub(crate) client: Client,
}

fn asked_by<B>(request: &Request<B>, name: &str, service: Service, peer: Option<SocketAddr>) -> HttpAsk {
    let protocol = request.headers().get(GIT_PROTOCOL).and_then(|p| p.to_str().ok()).unwrap_or_default();
    HttpAsk {
        request: DaemonRequest {
            service,
            path: name.to_owned(),
            host: host_of(request.headers(), request.uri()),
            version: 0,
            protocol: protocol.to_owned(),
        },
        client: Client { address: peer, token: token_of(request.headers()), known_as: None },
    }
}

/// Returns the host that a client names.
pub(crate) fn host_of(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| uri.authority().map(Authority::as_str)).map(str::to_ascii_lowercase)
}

/// Returns the socket's error if it is the cause of hyper's error.
fn plain(e: Box<dyn std::error::Error + Send + Sync>) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*e);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            // A client that ends TLS by hanging up is none that breaks off.
            return match error.kind() {
                io::ErrorKind::UnexpectedEof => io::ErrorKind::ConnectionReset.into(),
                kind => io::Error::new(kind, error.to_string()),
            };
        }
        // A client that hangs up in the middle of a request wants nothing more.
        if error.downcast_ref::<hyper::Error>().is_some_and(|e| e.is_incomplete_message() || e.is_closed()) {
            return io::ErrorKind::ConnectionReset.into();
        }
        cause = error.source();
    }
    io::Error::other(e)
}

pub(crate) fn ok(content_type: HeaderValue, answer: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    uncached(response)
}

/// Adds the headers by which git-http-backend forbids caching.
fn uncached(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    headers.insert(EXPIRES, HeaderValue::from_static("Fri, 01 Jan 1980 00:00:00 GMT"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, max-age=0, must-revalidate"));
    response
}

fn percent_decode(path: &str) -> Option<String> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(c) = bytes.next() {
        if c == b'%' {
            let digit = |c: u8| (c as char).to_digit(16);
            out.push((digit(bytes.next()?)? << 4 | digit(bytes.next()?)?) as u8);
        } else {
            out.push(c);
        }
    }
    String::from_utf8(out).ok().filter(|p| !p.chars().any(char::is_control))
}
