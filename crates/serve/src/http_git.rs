//! Smart HTTP (gitprotocol-http).

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use weir_upload::{Features, Options, Step, UploadPack, Version};

use crate::cache::Opened;
use crate::computing::{BUSY, Out};
use crate::daemon::{Daemon, REQUEST_PIECE_BYTES};
use crate::http::{GIT_PROTOCOL, Refusal, ok};
use crate::http_body::{Answer, Stream};
use crate::turns::Party;

const ADVERTISEMENT: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-advertisement");
const REQUEST: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-request");
const RESULT: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-result");
/// Before the refs in v0 and v1; clients of v2 do without.
const PREAMBLE: &[u8] = b"001e# service=git-upload-pack\n0000";
/// Where bundles are found, from the repository's URL on.
const BUNDLES: &str = "weir";

impl Daemon {
    pub(crate) fn advertise<B>(&self, request: &Request<B>, opened: Opened) -> Result<Response<Answer>, Refusal> {
        let version = version_asked(request);
        let mut machine = UploadPack::new(opened.repo, version, self.stateless(opened.features));
        let mut out = if version == Version::V2 { Vec::new() } else { PREAMBLE.to_vec() };
        if let Step::Send(bytes) = machine.step() {
            out.extend_from_slice(&bytes);
        }
        Ok(ok(ADVERTISEMENT, Answer::from(out)))
    }

    fn stateless(&self, features: Option<Features>) -> Arc<Options> {
        let is_archive = features.is_none();
        let mut options = Options::clone(&self.options_with(features));
        options.features.stateless = true;
        if is_archive {
            options.features.bundles = Some(BUNDLES.to_owned());
        }
        Arc::new(options)
    }

    /// The whole body of a request, unpacked.
    pub(crate) async fn body_of<B>(&self, request: Request<B>) -> Result<Vec<u8>, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let bytes_max = self.options.limits.request_bytes_max;
        let too_large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the request is larger than {bytes_max} bytes"));
        let is_packed = match request.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(_) => return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content encoding is unknown; gzip is known")),
        };
        let mut incoming = request.into_body();
        let mut body = Vec::new();
        let started = tokio::time::Instant::now();
        // Held until all of the body is there: what follows waits for nobody.
        let mut room = Vec::new();
        loop {
            match tokio::time::timeout(self.limits.idle_timeout, incoming.frame()).await {
                Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not come to its end")),
                Ok(None) => break,
                Ok(Some(Err(e))) => return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the request broke off: {e}"))),
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        body.extend_from_slice(data);
                    }
                }
            }
            if body.len() > bytes_max {
                return Err(too_large());
            }
            while room.len() < body.len() / REQUEST_PIECE_BYTES {
                let piece = self.request_room.try_acquire();
                room.push(piece.map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY))?);
            }
            let elapsed = started.elapsed();
            if elapsed > 2 * self.limits.idle_timeout && (body.len() as u64) / elapsed.as_secs().max(1) < self.limits.bytes_per_second_min {
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request comes too slowly"));
            }
        }
        if !is_packed {
            return Ok(body);
        }
        sirocco::decompress(sirocco::Format::Gzip, &body, bytes_max).map_err(|e| match e {
            sirocco::inflate::Error::InsufficientSpace => too_large(),
            e => Refusal::new(StatusCode::BAD_REQUEST, format!("bad gzip data: {e}")),
        })
    }

    /// Answers one request: at once if it is short, else as it is made.
    pub(crate) async fn converse_once<B>(
        self: &Arc<Self>,
        request: Request<B>,
        opened: Opened,
        peer: Option<SocketAddr>,
    ) -> Result<Response<Answer>, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        if request.headers().get(CONTENT_TYPE) != Some(&REQUEST) {
            let words = format!("the content type must be {}", REQUEST.to_str().unwrap_or_default());
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        let version = version_asked(&request);
        let body = self.body_of(request).await?;
        let party = Party { address: peer.map(|p| p.ip()), repository: opened.repo.path().to_owned() };
        let mut machine = UploadPack::answering(opened.repo, version, self.stateless(opened.features));
        // A refusal is queued for the client.
        let _ = machine.feed(&body);
        drop(body);
        let mut out = Vec::new();
        loop {
            match machine.step() {
                Step::Send(bytes) => out.extend_from_slice(&bytes),
                // Nothing can be said to half a request.
                Step::Read if out.is_empty() => return Err(Refusal::new(StatusCode::BAD_REQUEST, "the request ends in the middle")),
                Step::Read | Step::Done => return Ok(ok(RESULT, Answer::from(out))),
                step => {
                    let mut next = Next::Step(step);
                    if let Next::Step(Step::Work(work)) = next {
                        let mut started = self.start(work, &party);
                        started.peek().await.map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
                        if started.is_refused() {
                            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY));
                        }
                        next = Next::Started(started);
                    }
                    let (mut stream, answer) = Stream::new(&self.limits);
                    let daemon = self.clone();
                    tokio::spawn(async move {
                        if let Err(e) = daemon.drive_http(&mut machine, out, next, &mut stream, &party).await {
                            tracing::debug!("an answer ended early: {e}");
                            stream.fail(e).await;
                        }
                    });
                    return Ok(ok(RESULT, answer));
                }
            }
        }
    }

    async fn drive_http(
        self: &Arc<Self>,
        machine: &mut UploadPack,
        before: Vec<u8>,
        mut next: Next,
        stream: &mut Stream,
        party: &Party,
    ) -> io::Result<()> {
        stream.give(before.into()).await?;
        loop {
            match next {
                Next::Started(started) => {
                    let outcome = self.follow(started, stream).await?;
                    machine.finish(outcome);
                }
                Next::Step(Step::Work(work)) => {
                    next = Next::Started(self.start(work, party));
                    continue;
                }
                Next::Step(Step::Send(bytes)) => stream.give(bytes.into()).await?,
                Next::Step(Step::SendRegion(region, framing)) => stream.region(region, framing).await?,
                // All of the request was there from the start.
                Next::Step(Step::Read | Step::Done) => return Ok(()),
            }
            next = Next::Step(machine.step());
        }
    }
}

/// What an answer goes on with.
enum Next {
    Step(Step),
    Started(crate::computing::Started),
}

fn version_asked<B>(request: &Request<B>) -> Version {
    let asked = request.headers().get(GIT_PROTOCOL).and_then(|p| p.to_str().ok()).unwrap_or_default();
    Version::from_protocol(asked)
}
