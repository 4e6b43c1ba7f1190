//! Smart HTTP (gitprotocol-http) on hyper: HTTP/1.1, and HTTP/2 with those who know that we speak it.
//!
//! Each request is a conversation of its own. Status codes are git-http-backend's: 403 for services that are off, 404 for
//! what is not there or not shown, 405 and 415 for wrong methods and types, 413 for requests over their limit.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPIRES, HOST, HeaderName, HeaderValue, PRAGMA};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use weir_upload::{DaemonRequest, Service, Step, UploadPack, Version};

use crate::cache::{OpenError, Opened};
use crate::daemon::Daemon;
use crate::http_body::{Answer, Stream};

const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
const ADVERTISEMENT: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-advertisement");
const REQUEST: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-request");
const RESULT: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-result");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// Before the refs in v0 and v1; clients of v2 do without.
const PREAMBLE: &[u8] = b"001e# service=git-upload-pack\n0000";
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 32;

/// Why a request gets no answer: the status, and in words.
type Refusal = (StatusCode, String);

impl Daemon {
    pub(crate) async fn converse_http(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let init_timeout = self.limits.init_timeout;
        let service = service_fn(move |request| {
            let daemon = self.clone();
            async move { Ok::<_, Infallible>(daemon.answer_http(request, peer).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(init_timeout).max_buf_size(HEAD_BYTES_MAX.max(64 << 10));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .keep_alive_interval(init_timeout)
            .max_header_list_size(HEAD_BYTES_MAX as u32);
        builder.serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
    }

    async fn answer_http(self: Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Response<Answer> {
        match self.try_answer_http(request, peer).await {
            Ok(response) => response,
            Err((status, words)) => {
                let shown: String = words.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
                let mut response = Response::new(Answer::Whole(Some(format!("{shown}\n").into_bytes().into())));
                *response.status_mut() = status;
                response.headers_mut().insert(CONTENT_TYPE, TEXT);
                if status == StatusCode::METHOD_NOT_ALLOWED {
                    response
                        .headers_mut()
                        .insert(ALLOW, HeaderValue::from_static(if words.contains("POST") { "POST" } else { "GET, HEAD" }));
                }
                uncached(response)
            }
        }
    }

    async fn try_answer_http(self: &Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Result<Response<Answer>, Refusal> {
        let path = percent_decode(request.uri().path()).ok_or((StatusCode::BAD_REQUEST, "a malformed path".to_owned()))?;
        let version = version_asked(&request);
        if let Some(name) = path.strip_suffix("/info/refs") {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD".to_owned()));
            }
            let service = request.uri().query().unwrap_or("").split('&').find_map(|p| p.strip_prefix("service="));
            let service = match service {
                Some("git-upload-pack") => Service::UploadPack,
                Some("git-receive-pack") => Service::ReceivePack,
                Some(_) => return Err((StatusCode::FORBIDDEN, "unsupported service".to_owned())),
                None => return Err((StatusCode::FORBIDDEN, "dumb HTTP is not served; use git 1.6.6 or newer".to_owned())),
            };
            let Opened { repo, features } = self.find_http(&request, name, service, peer).await?;
            let mut machine = UploadPack::new(repo, version, self.stateless(features));
            let mut out = if version == Version::V2 { Vec::new() } else { PREAMBLE.to_vec() };
            if let Step::Send(bytes) = machine.step() {
                out.extend_from_slice(&bytes);
            }
            return Ok(ok(ADVERTISEMENT, Answer::Whole(Some(out.into()))));
        }
        let routes = [("/git-upload-pack", Service::UploadPack), ("/git-receive-pack", Service::ReceivePack)];
        let found = routes.into_iter().find_map(|(suffix, service)| Some((path.strip_suffix(suffix)?, service)));
        let Some((name, service)) = found else { return Err((StatusCode::NOT_FOUND, "not a git URL".to_owned())) };
        if *request.method() != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only POST".to_owned()));
        }
        let opened = self.find_http(&request, name, service, peer).await?;
        if request.headers().get(CONTENT_TYPE) != Some(&REQUEST) {
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the content type must be {}", REQUEST.to_str().unwrap_or_default())));
        }
        let body = self.body_of(request).await?;
        self.converse_once(opened, version, &body).await
    }

    fn stateless(&self, features: Option<weir_upload::Features>) -> Arc<weir_upload::Options> {
        let mut options = weir_upload::Options::clone(&self.options_with(features));
        options.features.stateless = true;
        Arc::new(options)
    }

    async fn find_http(
        self: &Arc<Self>,
        request: &Request<Incoming>,
        name: &str,
        service: Service,
        peer: SocketAddr,
    ) -> Result<Opened, Refusal> {
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok()).or_else(|| request.uri().authority().map(|a| a.as_str()));
        let asked = DaemonRequest {
            service,
            path: name.to_owned(),
            host: host.map(str::to_ascii_lowercase),
            version: 0,
            protocol: request.headers().get(GIT_PROTOCOL).and_then(|p| p.to_str().ok()).unwrap_or_default().to_owned(),
        };
        let not_there = || (StatusCode::NOT_FOUND, format!("no such repository: {name}"));
        let off = if service == Service::UploadPack { StatusCode::NOT_FOUND } else { StatusCode::FORBIDDEN };
        let found = self.locator.find(&asked, peer).map_err(|why| (off, why))?;
        match self.opened(found).await {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(OpenError::NotFound)) => Err(not_there()),
            Ok(Err(OpenError::Broken(e))) => {
                tracing::error!(path = name, "cannot open: {e}");
                Err((StatusCode::INTERNAL_SERVER_ERROR, "the repository cannot be read; its keeper finds the reason in the log".to_owned()))
            }
            Err(e) => Err((StatusCode::INTERNAL_SERVER_ERROR, e.to_string())),
        }
    }

    /// The whole body of a request, unpacked.
    async fn body_of(&self, request: Request<Incoming>) -> Result<Vec<u8>, Refusal> {
        let bytes_max = self.options.limits.request_bytes_max;
        let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the request is larger than {bytes_max} bytes"));
        let is_packed = match request.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(_) => return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content encoding is unknown; gzip is known".to_owned())),
        };
        let mut incoming = request.into_body();
        let mut body = Vec::new();
        loop {
            match tokio::time::timeout(self.limits.idle_timeout, incoming.frame()).await {
                Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the request did not come to its end".to_owned())),
                Ok(None) => break,
                Ok(Some(Err(e))) => return Err((StatusCode::BAD_REQUEST, format!("the request broke off: {e}"))),
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        body.extend_from_slice(data);
                    }
                }
            }
            if body.len() > bytes_max {
                return Err(too_large());
            }
        }
        if !is_packed {
            return Ok(body);
        }
        sirocco::decompress(sirocco::Format::Gzip, &body, bytes_max).map_err(|e| match e {
            sirocco::inflate::Error::InsufficientSpace => too_large(),
            e => (StatusCode::BAD_REQUEST, format!("bad gzip data: {e}")),
        })
    }

    /// Answers one request: at once if it is short, else as it is made.
    async fn converse_once(self: &Arc<Self>, opened: Opened, version: Version, body: &[u8]) -> Result<Response<Answer>, Refusal> {
        let mut machine = UploadPack::answering(opened.repo, version, self.stateless(opened.features));
        // A refusal is queued for the client.
        let _ = machine.feed(body);
        let mut out = Vec::new();
        loop {
            match machine.step() {
                Step::Send(bytes) => out.extend_from_slice(&bytes),
                Step::Read | Step::Done => return Ok(ok(RESULT, Answer::Whole((!out.is_empty()).then(|| out.into())))),
                step => {
                    let (mut stream, answer) = Stream::new(self.limits.idle_timeout);
                    let daemon = self.clone();
                    tokio::spawn(async move {
                        if let Err(e) = daemon.drive_http(&mut machine, out, step, &mut stream).await {
                            tracing::debug!("an answer ended early: {e}");
                            stream.fail(e).await;
                        }
                    });
                    return Ok(ok(RESULT, answer));
                }
            }
        }
    }

    async fn drive_http(&self, machine: &mut UploadPack, before: Vec<u8>, first: Step, stream: &mut Stream) -> io::Result<()> {
        use crate::daemon::Out;
        stream.give(before).await?;
        let mut step = first;
        loop {
            match step {
                Step::Send(bytes) => stream.give(bytes).await?,
                Step::SendRegion(region, framing) => stream.region(region, framing).await?,
                Step::Work(work) => {
                    let outcome = self.work(work, stream).await?;
                    machine.finish(outcome);
                }
                // All of the request was there from the start.
                Step::Read | Step::Done => return Ok(()),
            }
            step = machine.step();
        }
    }
}

fn ok(content_type: HeaderValue, answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    uncached(response)
}

/// As git-http-backend says it.
fn uncached(mut response: Response<Answer>) -> Response<Answer> {
    let headers = response.headers_mut();
    headers.insert(EXPIRES, HeaderValue::from_static("Fri, 01 Jan 1980 00:00:00 GMT"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, max-age=0, must-revalidate"));
    response
}

fn version_asked(request: &Request<Incoming>) -> Version {
    let asked = request.headers().get(GIT_PROTOCOL).and_then(|p| p.to_str().ok()).unwrap_or_default();
    Version::from_protocol(asked)
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
