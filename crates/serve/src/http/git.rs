//! Smart HTTP (gitprotocol-http).

use std::fmt::Display;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use weir_ground::MinRate;
use weir_upload::{Features, Service, Step, UploadOptions, UploadPack, Version};

use crate::access::locate::BUSY;
use crate::access::opened::Opened;
use crate::http::body::{ResponseBody, Stream};
use crate::http::front::{GIT_PROTOCOL, HttpAsk, HttpRefusal, ok};
use crate::limits::admission::{Party, network_of};
use crate::limits::room::RoomShare;
use crate::server::arriving::send_arriving;
use crate::server::daemon::Daemon;
use crate::server::jobs::Out;

const ADVERTISEMENT: HeaderValue = HeaderValue::from_static("application/x-git-upload-pack-advertisement");
/// The types of requests and answers of upload-pack and of upload-archive.
const PACK_TYPES: RpcTypes = RpcTypes {
    request: HeaderValue::from_static("application/x-git-upload-pack-request"),
    result: HeaderValue::from_static("application/x-git-upload-pack-result"),
};
const ARCHIVE_TYPES: RpcTypes = RpcTypes {
    request: HeaderValue::from_static("application/x-git-upload-archive-request"),
    result: HeaderValue::from_static("application/x-git-upload-archive-result"),
};
/// The lines before the refs in v0 and v1; clients of v2 do not need them.
const PREAMBLE: &[u8] = b"001e# service=git-upload-pack\n0000";
/// Requests longer than this are unpacked and parsed on a thread that may block.
const PARSED_AT_ONCE_BYTES: usize = 64 << 10;
/// Bytes of a request that are parsed at a time, so that it is not held twice.
const FED_BYTES: usize = 64 << 10;
/// What a parsed request takes at most, in multiples of its length: its object ids, and what tells them
/// apart.
const PARSED_TIMES: usize = 2;
/// Bytes that are reserved at most for a body before it comes.
const RESERVED_BYTES_MAX: usize = 16 << 10;
/// Where bundles are found, relative to the repository's URL.
const BUNDLES: &str = "weir";

/// The content types of a service.
struct RpcTypes {
    request: HeaderValue,
    result: HeaderValue,
}

impl Daemon {
    pub(crate) async fn advertise<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        opened: Opened,
        asked: &HttpAsk,
    ) -> Result<Response<ResponseBody>, HttpRefusal> {
        let version = version_asked(request);
        let party = Party::new(asked.client.address, opened.repo.path());
        let options = self.stateless(opened.features, &asked.request.path);
        let machine = UploadPack::new(opened.repo, version, options);
        let before = if version == Version::V2 { Vec::new() } else { PREAMBLE.to_vec() };
        self.run_http(machine, before, ADVERTISEMENT, party, None).await
    }

    fn stateless(&self, features: Option<Features>, path: &str) -> Arc<UploadOptions> {
        let is_archive = features.is_none();
        let mut options = UploadOptions::clone(&self.options_with(features, path));
        options.features.stateless = true;
        if is_archive {
            options.features.bundles = Some(BUNDLES.to_owned());
        }
        Arc::new(options)
    }

    /// Receives the body of a request, which may have at most `bytes_max` bytes once it is unpacked.
    pub(crate) async fn body_of<B>(
        &self,
        request: Request<B>,
        bytes_max: usize,
        peer: Option<SocketAddr>,
    ) -> Result<Received, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let (head, body) = request.into_parts();
        self.receive(&head.headers, body, bytes_max, self.limits.idle_timeout, peer).await
    }

    /// Receives the body of a request with these headers, which may be silent for `idle_timeout`.
    pub(crate) async fn receive<B>(
        &self,
        headers: &HeaderMap,
        mut incoming: B,
        bytes_max: usize,
        idle_timeout: Duration,
        peer: Option<SocketAddr>,
    ) -> Result<Received, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let too_large = || {
            HttpRefusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the request is larger than {bytes_max} bytes"),
            )
        };
        let is_packed = match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(_) => {
                return Err(HttpRefusal::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "the content encoding is unknown; gzip is known",
                ));
            }
        };
        // No more is reserved for what is only announced.
        let announced = usize::try_from(incoming.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > bytes_max {
            return Err(too_large());
        }
        let mut body = Vec::with_capacity(announced.min(RESERVED_BYTES_MAX));
        let mut share = self.request_room.share(peer.map(network_of));
        let busy = |_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY);
        let mut rate = MinRate::new(self.limits.bytes_per_second_min);
        loop {
            match tokio::time::timeout(idle_timeout, incoming.frame()).await {
                Err(_) => {
                    return Err(HttpRefusal::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "the request did not come to its end",
                    ));
                }
                Ok(None) => break,
                Ok(Some(Err(e))) => {
                    return Err(HttpRefusal::new(
                        StatusCode::BAD_REQUEST,
                        format!("the request broke off: {e}"),
                    ));
                }
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        rate.moved(data.len() as u64);
                        body.extend_from_slice(data);
                    }
                }
            }
            if body.len() > bytes_max {
                return Err(too_large());
            }
            share.resize(body.len()).map_err(busy)?;
            if rate.is_too_slow() {
                return Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, "the request comes too slowly"));
            }
        }
        let mut len = body.len();
        if is_packed {
            if !body.starts_with(&[0x1f, 0x8b]) {
                return Err(bad_gzip("it does not begin as gzip does"));
            }
            // The length that gzip states for the unpacked data (RFC 1952, 2.3.1): no more than that is
            // unpacked.
            len = body.last_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
            if len > bytes_max {
                return Err(too_large());
            }
        }
        Ok(Received { body, is_packed, len, share })
    }

    /// Answers one request: at once if the answer is short, otherwise while it is made.
    pub(crate) async fn converse_once<B>(
        self: &Arc<Self>,
        request: Request<B>,
        opened: Opened,
        asked: &HttpAsk,
    ) -> Result<Response<ResponseBody>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let peer = asked.client.address;
        let is_archive = asked.request.service == Service::UploadArchive;
        let types = if is_archive { ARCHIVE_TYPES } else { PACK_TYPES };
        if request.headers().get(CONTENT_TYPE) != Some(&types.request) {
            let words = format!("the content type must be {}", types.request.to_str().unwrap_or_default());
            return Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        let version = version_asked(&request);
        let mut received = self.body_of(request, self.options.limits.request_bytes_max, peer).await?;
        received
            .share
            .resize(received.len * PARSED_TIMES)
            .map_err(|_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY))?;
        let party = Party::new(peer, opened.repo.path());
        let options = self.stateless(opened.features, &asked.request.path);
        let machine = match is_archive {
            true => UploadPack::archiving(opened.repo, options),
            false => UploadPack::answering(opened.repo, version, options),
        };
        let (mut machine, mut received) = parsed(machine, received).await?;
        if machine.lacks_what_is_wanted()
            && let Some(fresh) = self.find_missing_http(asked, machine.is_arriving()).await?
        {
            let options = self.stateless(fresh.features, &asked.request.path);
            machine = UploadPack::answering(fresh.repo, version, options);
            (machine, received) = parsed(machine, received).await?;
        }
        self.run_http(machine, Vec::new(), types.result, party, Some(received.share)).await
    }

    /// Sends `out`, and then the answer to what `machine` was fed. Holds `share` until the request is
    /// answered.
    async fn run_http(
        self: &Arc<Self>,
        mut machine: UploadPack,
        mut out: Vec<u8>,
        content_type: HeaderValue,
        party: Party,
        share: Option<RoomShare>,
    ) -> Result<Response<ResponseBody>, HttpRefusal> {
        loop {
            match machine.step() {
                Step::Send(bytes) => out.extend_from_slice(&bytes),
                // There is no answer to half a request.
                Step::Read if out.is_empty() => {
                    return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "the request ends in the middle"));
                }
                Step::Read | Step::Done => {
                    let mut share = share.unwrap_or_else(|| self.request_room.share(party.address));
                    share
                        .resize(out.len())
                        .map_err(|_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY))?;
                    return Ok(ok(content_type, ResponseBody::from(out).holding(share)));
                }
                step => {
                    let mut next = Next::Step(step);
                    if let Next::Step(Step::Work(work)) = next {
                        let mut started = self.start(work, &party);
                        started.peek().await.map_err(|e| {
                            HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string())
                        })?;
                        if started.is_refused() {
                            return Err(HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY));
                        }
                        next = Next::Started(started);
                    }
                    let (mut stream, answer) = Stream::new(&self.limits);
                    let daemon = self.clone();
                    tokio::spawn(async move {
                        // The room of the request is held until it is answered.
                        let _share = share;
                        if let Err(e) = daemon.drive_http(&mut machine, out, next, &mut stream, &party).await
                        {
                            tracing::debug!("an answer ended early: {e}");
                            stream.fail(e).await;
                        }
                    });
                    return Ok(ok(content_type, answer));
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
                Next::Step(Step::SendArriving(pack, framing)) => {
                    machine.finish(send_arriving(&pack, framing, stream).await?);
                }
                // All of the request was there from the start.
                Next::Step(Step::Read | Step::Done) => return Ok(()),
            }
            next = Next::Step(machine.step());
        }
    }
}

/// The body of a request.
pub(crate) struct Received {
    body: Vec<u8>,
    is_packed: bool,
    /// Bytes of the body once it is unpacked; for gzip, the length that it states.
    len: usize,
    /// The room that it takes.
    share: RoomShare,
}

fn bad_gzip(why: &str) -> HttpRefusal {
    HttpRefusal::new(StatusCode::BAD_REQUEST, format!("bad gzip data: {why}"))
}

impl Received {
    /// Returns the whole body, unpacked, and the room that it takes then.
    ///
    /// # Errors
    /// If there is no room for it, or it cannot be unpacked.
    pub(crate) async fn unpacked(mut self) -> Result<(Vec<u8>, RoomShare), HttpRefusal> {
        if !self.is_packed {
            return Ok((self.body, self.share));
        }
        self.share
            .resize(self.body.len() + self.len)
            .map_err(|_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY))?;
        let is_large = self.len > PARSED_AT_ONCE_BYTES;
        let unpack = move || {
            let mut whole = Vec::with_capacity(self.len);
            self.pieces(&mut |piece| whole.extend_from_slice(piece))?;
            Ok((whole, self.share))
        };
        if is_large { blocking(unpack).await? } else { unpack() }
    }

    /// Feeds the body to `machine` piece by piece: it is never unpacked as a whole.
    fn feed(&self, machine: &mut UploadPack) -> Result<(), HttpRefusal> {
        let mut goes_on = true;
        // A refusal is queued for the client.
        self.pieces(&mut |piece| goes_on = goes_on && machine.feed(piece).is_ok())
    }

    fn pieces(&self, give: &mut dyn FnMut(&[u8])) -> Result<(), HttpRefusal> {
        if !self.is_packed {
            self.body.chunks(FED_BYTES).for_each(give);
            return Ok(());
        }
        let mut reader = sirocco::inflate::Reader::new(sirocco::Format::Gzip, &self.body[..]);
        let (mut piece, mut total) = (vec![0; FED_BYTES], 0);
        loop {
            match reader.read(&mut piece) {
                Ok(0) if total == self.len => return Ok(()),
                Ok(0) => return Err(bad_gzip("it is shorter than it says")),
                Ok(n) => {
                    total += n;
                    if total > self.len {
                        return Err(bad_gzip("it is longer than it says"));
                    }
                    give(&piece[..n]);
                }
                Err(e) => return Err(bad_gzip(&e.to_string())),
            }
        }
    }
}

/// Feeds the body of a request to `machine`; a large one on a thread that may block.
async fn parsed(mut machine: UploadPack, received: Received) -> Result<(UploadPack, Received), HttpRefusal> {
    let is_large = received.len > PARSED_AT_ONCE_BYTES;
    let feed = move || {
        received.feed(&mut machine)?;
        Ok((machine, received))
    };
    if is_large { blocking(feed).await? } else { feed() }
}

/// Runs work that takes long on a thread that may block.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, HttpRefusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
}

/// How an answer goes on.
enum Next {
    Step(Step),
    Started(crate::server::jobs::Started),
}

fn version_asked<B>(request: &Request<B>) -> Version {
    let asked = request.headers().get(GIT_PROTOCOL).and_then(|p| p.to_str().ok()).unwrap_or_default();
    Version::from_protocol(asked)
}
