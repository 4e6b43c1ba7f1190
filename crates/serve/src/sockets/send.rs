//! Sends on a socket: bytes, and parts of archives straight from their map, many side-band frames per system
//! call.
//!
//! sendfile was measured, too, and lost: it sends a page at a time and wakes the receiver too often (0.09 s
//! of CPU per clone of git/git, half the throughput).

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use weir_archive::Region;
use weir_ground::MinRate;
use weir_upload::Framing;

use crate::sockets::socket::Socket;

/// Sends to a client, and gives up if the client does not read.
pub(crate) struct Sender<'s> {
    pub(crate) stream: &'s Socket,
    pub(crate) idle_timeout: Duration,
    bytes_per_second_min: u64,
    rate: MinRate,
    pub(crate) sent: u64,
    /// When the client ended its half of the connection, and how many bytes were sent until then.
    pub(crate) ended: Option<(Instant, u64)>,
}

/// Clones under way in this process.
static SENDING: AtomicUsize = AtomicUsize::new(0);

/// A clone that is counted in [`SENDING`] until this is dropped.
pub(crate) struct Sending;

impl Sending {
    /// Counts a clone of `region`. If there are now more than may stay mapped, releases what earlier clones
    /// kept.
    pub(crate) fn start(region: &Region) -> Sending {
        if SENDING.fetch_add(1, Ordering::Relaxed) == KEPT_CLONES_MAX {
            region.release_pages(0..region.len());
        }
        Sending
    }

    pub(crate) fn are_many(&self) -> bool {
        SENDING.load(Ordering::Relaxed) > KEPT_CLONES_MAX
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        SENDING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'s> Sender<'s> {
    pub(crate) fn new(stream: &'s Socket, idle_timeout: Duration, bytes_per_second_min: u64) -> Sender<'s> {
        Sender {
            stream,
            idle_timeout,
            bytes_per_second_min,
            rate: MinRate::new(bytes_per_second_min),
            sent: 0,
            ended: None,
        }
    }

    async fn writable(&mut self) -> io::Result<()> {
        match tokio::time::timeout(self.idle_timeout, self.stream.writable()).await {
            Ok(ready) => ready,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")),
        }
    }

    fn took(&mut self, n: usize) -> io::Result<()> {
        self.sent += n as u64;
        self.rate.moved(n as u64);
        // Checking the clock every megabyte or so, or when the socket was full, is often enough.
        if (self.rate.bytes() >= 1 << 20 || n < 1 << 10) && self.rate.is_too_slow() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client is too slow"));
        }
        Ok(())
    }

    /// Resolves when the client has ended its half of the connection; called again, when the client has gone.
    ///
    /// A client that ended its half may still read its answer. If it hung up instead, what is sent to it is
    /// refused. While there is nothing to send, the client counts as gone after a short time.
    pub(crate) async fn gone(&mut self) -> Gone {
        let Some((since, sent)) = self.ended else {
            self.stream.ended().await;
            self.ended = Some((Instant::now(), self.sent));
            return Gone::Half;
        };
        loop {
            if self.stream.is_reset() || (self.sent == sent && since.elapsed() >= SILENT_AFTER_END_MAX) {
                return Gone::Whole;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Restarts the measurement of the throughput: time in which there was nothing to send is not the
    /// client's.
    pub(crate) fn restart(&mut self) {
        self.rate = MinRate::new(self.bytes_per_second_min);
    }

    async fn run(&mut self, len: usize, mut call: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
        let (mut done, mut pause_at) = (0, YIELD_BYTES);
        while done < len {
            if done >= pause_at {
                // A fast client must not keep the others of this thread waiting.
                pause_at = done + YIELD_BYTES;
                tokio::task::yield_now().await;
            }
            match self.stream.try_io(Interest::WRITABLE, || call(done)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    done += n;
                    self.took(n)?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(crate) async fn bytes(&mut self, data: &[u8]) -> io::Result<()> {
        self.send(data, 0).await
    }

    async fn send(&mut self, data: &[u8], flags: i32) -> io::Result<()> {
        let fd = self.stream.as_raw_fd();
        self.run(data.len(), |done| {
            let rest = &data[done..];
            // SAFETY: `rest` is valid for its length during the call, and the descriptor is open as long as
            // the stream.
            let n = unsafe { libc::send(fd, rest.as_ptr().cast(), rest.len(), flags | libc::MSG_NOSIGNAL) };
            if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
        })
        .await
    }

    /// Sends a region from its map, framed: many frames per system call, without a copy.
    pub(crate) async fn region(&mut self, region: &Region, framing: Framing) -> io::Result<()> {
        let part_max = framing.payload_bytes_max().unwrap_or(1 << 20);
        let head_len = if framing == Framing::Raw { 0 } else { HEAD_BYTES };
        let frame_max = part_max + head_len;
        let data: &[u8] = region;
        let total = data.len() + data.len().div_ceil(part_max) * head_len;
        let full_head = framing.packet_head(part_max);
        let last = data.len() % part_max;
        let last_head = framing.packet_head(if last == 0 { part_max } else { last });
        let fd = self.stream.as_raw_fd();
        let mut released = 0;
        let sending = Sending::start(region);
        self.run(total, |done| {
            // This connection does not need again what it sent a while ago.
            let sent = done - head_len * (done / frame_max);
            if sent >= released + RELEASE_BYTES {
                if sending.are_many() {
                    region.release_pages(released..sent.saturating_sub(head_len));
                }
                released = sent;
            }
            let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2 * FRAMES_A_CALL];
            let mut used = 0;
            let mut at = done;
            while used + 2 <= parts.len() && at < total {
                let (frame, within) = (at / frame_max, at % frame_max);
                let start = frame * part_max;
                let end = (start + part_max).min(data.len());
                let head = if end == data.len() { &last_head } else { &full_head };
                let mut push = |bytes: &[u8]| {
                    parts[used] =
                        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                    used += 1;
                    at += bytes.len();
                };
                if within < head_len {
                    push(&head[within..head_len]);
                    push(&data[start..end]);
                } else {
                    push(&data[start + within - head_len..end]);
                }
            }
            // SAFETY: the first `used` parts point into `data` and the heads, which outlive the call; they
            // are only read.
            let n = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = parts.as_mut_ptr();
                message.msg_iovlen = used as _;
                libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
            };
            if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
        })
        .await?;
        if sending.are_many() {
            region.release_pages(released..data.len());
        }
        region.check()
    }
}

/// How a client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It sends nothing more, and may still read.
    Half,
    /// It reads nothing more.
    Whole,
}

/// Time without anything to send after which a client that ended its half of the connection counts as gone.
const SILENT_AFTER_END_MAX: Duration = Duration::from_secs(2);
/// Time between checks of whether the client has gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const _: () = assert!(
    LOOK_EVERY.as_millis() * 2 < SILENT_AFTER_END_MAX.as_millis(),
    "a silent client is looked at more than once"
);

/// Bytes sent to one client before others get their turn.
const YIELD_BYTES: usize = 4 << 20;
/// Pages are released in steps of this many bytes.
pub(crate) const RELEASE_BYTES: usize = 8 << 20;
const _: () = assert!(YIELD_BYTES <= RELEASE_BYTES, "pages are released between turns");
/// With more clones than this under way, the pages that they have sent are unmapped behind them. With fewer,
/// the pages stay: mapping them again for the next clone costs a quarter of the work of sending it (measured,
/// git/git: 0.06 and 0.075 s of CPU a clone).
const KEPT_CLONES_MAX: usize = 16;
/// Bytes before the pack data in a side-band packet.
const HEAD_BYTES: usize = 5;
/// Frames offered to the socket at a time: about a megabyte.
const FRAMES_A_CALL: usize = 16;
