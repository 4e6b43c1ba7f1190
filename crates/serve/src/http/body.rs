//! Bodies of answers: bytes, or parts of archives straight from their map, many side-band frames at a time.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use weir_archive::Region;
use weir_upload::Framing;

use crate::http::under_way::UnderWay;
use crate::limits::room::RoomShare;
use crate::request_log::RequestEntry;
use crate::server::daemon::DaemonLimits;
use crate::server::handler::{HandlerBody, HandlerContent};
use crate::server::jobs::Out;
use crate::sockets::send::{Gone, RELEASE_BYTES, Sending};

/// Side-band frames in one piece of a body: about a megabyte.
const FRAMES_A_PIECE: usize = 16;
/// Bytes of a body in memory that the connection takes at a time.
const WHOLE_PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait between their producer and the connection.
const PIECES_MAX: usize = 2;

/// Several byte strings that are sent one after the other.
pub(crate) struct Pieces {
    parts: VecDeque<Bytes>,
    left: usize,
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Pieces {
        Pieces { left: bytes.len(), parts: VecDeque::from([bytes]) }
    }
}

impl Pieces {
    /// Takes the first bytes off, at most and about `max`; returns them, and whether they are the last.
    fn take_first(&mut self, max: usize) -> (Pieces, bool) {
        let (mut parts, mut left) = (VecDeque::new(), 0);
        while left < max
            && let Some(mut part) = self.parts.pop_front()
        {
            if left + part.len() > max {
                self.parts.push_front(part.split_off(max - left));
            }
            left += part.len();
            parts.push_back(part);
        }
        self.left -= left;
        (Pieces { parts, left }, self.left == 0)
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let used = self.parts.len().min(out.len());
        for (slot, part) in out.iter_mut().zip(&self.parts) {
            *slot = IoSlice::new(part);
        }
        used
    }

    fn advance(&mut self, mut n: usize) {
        self.left -= n;
        while let Some(part) = self.parts.front_mut() {
            if n < part.len() {
                part.advance(n);
                return;
            }
            n -= part.len();
            self.parts.pop_front();
        }
    }
}

/// The body of an answer.
pub(crate) struct ResponseBody {
    content: Content,
    /// Held until the whole body is sent.
    _guard: Option<UnderWay>,
    /// The room that the body takes until then.
    _share: Option<RoomShare>,
    /// The entry of the request in the log.
    entry: Option<RequestEntry>,
}

/// A piece of a body, if it is there.
type Polled = Poll<Option<io::Result<Pieces>>>;

enum Content {
    Whole(Option<Pieces>),
    /// With the number of bytes that are left, if known.
    Stream(mpsc::Receiver<io::Result<Pieces>>, Option<u64>),
    /// The same of a handler.
    Handed(mpsc::Receiver<io::Result<Bytes>>),
}

impl From<HandlerBody> for ResponseBody {
    fn from(body: HandlerBody) -> ResponseBody {
        match body.0 {
            HandlerContent::Whole(bytes) => bytes.into(),
            HandlerContent::Stream(pieces) => Content::Handed(pieces).into(),
        }
    }
}

impl From<Content> for ResponseBody {
    fn from(content: Content) -> ResponseBody {
        ResponseBody { content, _guard: None, _share: None, entry: None }
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> ResponseBody {
        Bytes::from(bytes).into()
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> ResponseBody {
        Content::Whole((!bytes.is_empty()).then(|| bytes.into())).into()
    }
}

impl ResponseBody {
    pub(crate) fn guarded(self, guard: UnderWay) -> ResponseBody {
        ResponseBody { _guard: Some(guard), ..self }
    }

    pub(crate) fn holding(self, share: RoomShare) -> ResponseBody {
        ResponseBody { _share: Some(share), ..self }
    }

    /// Sets the number of bytes of a stream.
    pub(crate) fn of_length(mut self, len: u64) -> ResponseBody {
        if let Content::Stream(_, left) = &mut self.content {
            *left = Some(len);
        }
        self
    }

    /// Logs `entry` when the body is sent, or dropped before. No body is sent to a HEAD request.
    pub(crate) fn logged(mut self, mut entry: RequestEntry, is_head: bool) -> ResponseBody {
        entry.is_whole = is_head || self.is_end_stream();
        self.entry = Some(entry);
        self
    }
}

impl Body for ResponseBody {
    type Data = Pieces;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Pieces>>>> {
        let ResponseBody { content, entry, .. } = self.get_mut();
        let (polled, is_last) = match content {
            // In pieces, so that what is counted as sent is about what was sent.
            Content::Whole(whole) => {
                let first = whole.as_mut().map(|pieces| pieces.take_first(WHOLE_PIECE_BYTES));
                let is_last = first.as_ref().is_none_or(|(_, is_last)| *is_last);
                if is_last {
                    *whole = None;
                }
                (Poll::Ready(first.map(|(piece, _)| Ok(piece))), is_last)
            }
            Content::Stream(receiver, left) => count(receiver.poll_recv(context), left),
            Content::Handed(receiver) => {
                let polled = receiver.poll_recv(context);
                count(polled.map(|piece| piece.map(|piece| piece.map(Pieces::from))), &mut None)
            }
        };
        if let (Some(entry), Poll::Ready(piece)) = (entry, &polled) {
            entry.bytes += piece.as_ref().and_then(|p| p.as_ref().ok()).map_or(0, |p| p.left as u64);
            entry.is_whole |= is_last && !matches!(piece, Some(Err(_)));
            let clients = [io::ErrorKind::BrokenPipe, io::ErrorKind::TimedOut];
            entry.is_failed |= matches!(piece, Some(Err(e)) if !clients.contains(&e.kind()));
        }
        polled.map(|piece| piece.map(|pieces| pieces.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(pieces) => SizeHint::with_exact(pieces.as_ref().map_or(0, |p| p.left as u64)),
            Content::Stream(_, left) => left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Content::Handed(_) => SizeHint::default(),
        }
    }
}

/// Takes the bytes of a piece off those that are left, if their number is known. Returns it, and whether it
/// is the last.
fn count(polled: Polled, left: &mut Option<u64>) -> (Polled, bool) {
    if let (Poll::Ready(Some(Ok(pieces))), Some(left)) = (&polled, left.as_mut()) {
        *left = left.saturating_sub(pieces.left as u64);
    }
    let is_last = *left == Some(0) || matches!(polled, Poll::Ready(None));
    (polled, is_last)
}

/// The end of a body to which an answer is written while it is sent.
pub(crate) struct Stream {
    sender: mpsc::Sender<io::Result<Pieces>>,
    idle_timeout: Duration,
    bytes_per_second_min: u64,
}

impl Stream {
    /// Returns a stream, and the body that yields what is written to it. The connection watches the client,
    /// too.
    pub(crate) fn new(limits: &DaemonLimits) -> (Stream, ResponseBody) {
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        let DaemonLimits { idle_timeout, bytes_per_second_min, .. } = *limits;
        (Stream { sender, idle_timeout, bytes_per_second_min }, Content::Stream(receiver, None).into())
    }

    async fn pieces(&mut self, pieces: Pieces) -> io::Result<()> {
        // The connection below detects a client that reads nothing, but not an HTTP/2 stream that stands
        // still while others flow.
        let time =
            self.idle_timeout + Duration::from_secs(pieces.left as u64 / self.bytes_per_second_min.max(1));
        match tokio::time::timeout(time, self.sender.send(Ok(pieces))).await {
            Ok(sent) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")),
        }
    }

    /// Breaks the answer off, so that the client does not take it for whole.
    pub(crate) async fn fail(self, e: io::Error) {
        let _ = tokio::time::timeout(self.idle_timeout, self.sender.send(Err(e))).await;
    }

    /// Sends a region from its map, framed.
    pub(crate) async fn region(&mut self, region: Region, framing: Framing) -> io::Result<()> {
        struct Owner(Region);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let part_max = framing.payload_bytes_max().unwrap_or(64 << 10);
        let sending = Sending::start(&region);
        let data = Bytes::from_owner(Owner(region.clone()));
        let full_head = Bytes::copy_from_slice(&framing.packet_head(part_max));
        let (mut at, mut released) = (0, 0);
        while at < data.len() {
            let mut pieces = Pieces { parts: VecDeque::with_capacity(2 * FRAMES_A_PIECE), left: 0 };
            for _ in 0..FRAMES_A_PIECE {
                let end = (at + part_max).min(data.len());
                if at == end {
                    break;
                }
                if framing != Framing::Raw {
                    let is_full = end - at == part_max;
                    pieces.parts.push_back(if is_full {
                        full_head.clone()
                    } else {
                        Bytes::copy_from_slice(&framing.packet_head(end - at))
                    });
                    pieces.left += full_head.len();
                }
                pieces.parts.push_back(data.slice(at..end));
                pieces.left += end - at;
                at = end;
            }
            self.pieces(pieces).await?;
            region.check()?;
            // Pages of pieces that are still under way are not released: they would have to be read again.
            let sent = at.saturating_sub((PIECES_MAX + 2) * FRAMES_A_PIECE * part_max);
            if sending.are_many() && sent >= released + RELEASE_BYTES {
                region.release_pages(released..sent);
                released = sent;
            }
        }
        Ok(())
    }
}

impl Out for Stream {
    async fn give(&mut self, bytes: Bytes) -> io::Result<()> {
        if bytes.is_empty() { Ok(()) } else { self.pieces(bytes.into()).await }
    }
    async fn gone(&mut self) -> Gone {
        self.sender.closed().await;
        Gone::Whole
    }
}
