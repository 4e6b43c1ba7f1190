//! A connection whose client must make progress; HTTP runs on it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use weir_ground::MinRate;

use crate::sockets::socket::Socket;

/// When bytes were last read or written, in milliseconds since `start`.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    start: Instant,
    last: Arc<AtomicU64>,
}

impl Activity {
    fn new() -> Activity {
        Activity { start: Instant::now(), last: Arc::new(AtomicU64::new(0)) }
    }

    fn happens(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the time since then.
    pub(crate) fn quiet(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// A socket that gives up on clients that read nothing, or read too slowly.
pub(crate) struct Paced {
    socket: Socket,
    idle_timeout: Duration,
    /// Set while the client reads nothing.
    blocked: Option<(Instant, Pin<Box<Sleep>>)>,
    /// The client's throughput, by the time that was spent waiting for it.
    rate: MinRate,
    activity: Activity,
}

impl Paced {
    /// Returns the descriptor of the socket.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn new(socket: Socket, idle_timeout: Duration, bytes_per_second_min: u64) -> Paced {
        Paced {
            socket,
            idle_timeout,
            blocked: None,
            rate: MinRate::new(bytes_per_second_min),
            activity: Activity::new(),
        }
    }

    pub(crate) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(result) = result else {
            let idle_timeout = self.idle_timeout;
            let (_, sleep) = self
                .blocked
                .get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(idle_timeout))));
            ready!(sleep.as_mut().poll(context));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")));
        };
        if let Ok(n) = result {
            self.activity.happens();
            self.rate.moved(n as u64);
            if let Some((since, _)) = self.blocked.take()
                && self.rate.is_too_slow_after(since.elapsed())
            {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the client is too slow");
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(result)
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = match &mut this.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buf),
        };
        if buf.filled().len() > before {
            this.activity.happens();
        }
        result
    }
}

impl AsyncWrite for Paced {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = match &mut this.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, buf),
        };
        this.written(context, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = match &mut this.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bufs),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, bufs),
        };
        this.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
