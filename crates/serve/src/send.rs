//! Sending on a TCP socket: bytes, and parts of files without mapping or copying them (sendfile).

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::net::TcpStream;
use weir_archive::Region;
use weir_upload::Framing;

/// Sends, and gives up on clients that do not take it.
pub(crate) struct Sender<'s> {
    pub(crate) stream: &'s TcpStream,
    pub(crate) idle_timeout: Duration,
    pub(crate) bytes_per_second_min: u64,
    pub(crate) window: (Instant, u64),
    pub(crate) sent: u64,
}

/// Time over which the minimum throughput is measured.
const WINDOW: Duration = Duration::from_secs(30);

impl<'s> Sender<'s> {
    pub(crate) fn new(stream: &'s TcpStream, idle_timeout: Duration, bytes_per_second_min: u64) -> Sender<'s> {
        Sender { stream, idle_timeout, bytes_per_second_min, window: (Instant::now(), 0), sent: 0 }
    }

    async fn writable(&mut self) -> io::Result<()> {
        match tokio::time::timeout(self.idle_timeout, self.stream.writable()).await {
            Ok(ready) => ready,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")),
        }
    }

    fn took(&mut self, n: usize) -> io::Result<()> {
        self.sent += n as u64;
        self.window.1 += n as u64;
        // A look at the clock every megabyte or so, or when the socket was full, is often enough.
        if self.window.1 >= 1 << 20 || n < 1 << 10 {
            let elapsed = self.window.0.elapsed();
            if elapsed >= WINDOW {
                if self.window.1 / elapsed.as_secs().max(1) < self.bytes_per_second_min {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the client is too slow"));
                }
                self.window = (Instant::now(), 0);
            }
        }
        Ok(())
    }

    /// Starts the throughput's window anew: time in which there was nothing to send is not the client's.
    pub(crate) fn restart(&mut self) {
        self.window = (Instant::now(), 0);
    }

    async fn run(&mut self, len: usize, mut call: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
        let mut done = 0;
        while done < len {
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
            // SAFETY: `rest` is valid for its length during the call, and the descriptor is open as long as the stream.
            let n = unsafe { libc::send(fd, rest.as_ptr().cast(), rest.len(), flags | libc::MSG_NOSIGNAL) };
            if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
        })
        .await
    }

    /// Sends a region from its file, wrapped. The file cannot shrink under it (see [`Region`]); if it did, the call would
    /// end short and the connection be closed, without a fault.
    pub(crate) async fn region(&mut self, region: &Region, framing: Framing) -> io::Result<()> {
        let part_max = framing.payload_bytes_max();
        let mut at = 0;
        while at < region.len() {
            let part = part_max.unwrap_or(1 << 30).min(region.len() - at);
            if part_max.is_some() {
                self.send(&Framing::packet_head(part), libc::MSG_MORE).await?;
            }
            let (out, file) = (self.stream.as_raw_fd(), region.file().as_raw_fd());
            let start = region.file_offset() + at as u64;
            self.run(part, |done| {
                let mut offset = (start + done as u64) as libc::off_t;
                // SAFETY: both descriptors are open for the call, and `offset` is a valid place to write back to.
                let n = unsafe { libc::sendfile(out, file, &mut offset, part - done) };
                if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
            })
            .await?;
            at += part;
        }
        Ok(())
    }
}
