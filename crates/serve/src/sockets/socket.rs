//! Listening sockets and connections: TCP sockets, Unix sockets, and sockets that were passed to us open.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};

const BACKLOG: i32 = 4096;
/// The first descriptor that is passed to us (sd_listen_fds).
const FIRST_HANDED: RawFd = 3;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system, written `unix:PATH`.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket, which does not block. It belongs to no runtime.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Binds a listening socket. A Unix socket on which no process listens is
    /// replaced.
    ///
    /// # Errors
    /// If the socket cannot be bound; most often, the address is in use.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(address) => {
                let socket =
                    RawSocket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
                socket.set_reuse_address(true)?;
                socket.set_nonblocking(true)?;
                socket.bind(&(*address).into())?;
                socket.listen(BACKLOG)?;
                Listener::of_tcp(socket)
            }
            Address::Unix(path) => {
                if is_left_over(path) {
                    fs::remove_file(path)?;
                }
                let socket = RawSocket::from(UnixListener::bind(path)?);
                socket.set_nonblocking(true)?;
                Ok(Listener::Unix(socket.into()))
            }
        }
    }

    /// Makes the kernel send data of all connections at once, and detect peers that are gone for good: they
    /// inherit it.
    fn of_tcp(socket: RawSocket) -> io::Result<Listener> {
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        Ok(Listener::Tcp(socket.into()))
    }

    /// Returns the sockets that the parent process opened for us (sd_listen_fds: `LISTEN_FDS` in
    /// `environment`), with their names (`LISTEN_FDNAMES`).
    ///
    /// # Errors
    /// If one of the descriptors is not a socket, or cannot be set up.
    ///
    /// # Safety
    /// The function takes ownership of the descriptors that `LISTEN_FDS` counts. Call it once, and only if
    /// nothing else in the process owns one of them.
    pub unsafe fn handed_over(
        environment: impl Fn(&str) -> Option<String>,
    ) -> io::Result<Vec<(String, Listener)>> {
        let is_ours = environment("LISTEN_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let count: RawFd = environment("LISTEN_FDS").and_then(|n| n.parse().ok()).unwrap_or(0);
        if !is_ours || count <= 0 {
            return Ok(Vec::new());
        }
        let names = environment("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        (FIRST_HANDED..FIRST_HANDED.saturating_add(count.min(1024)))
            .map(|fd| {
                // SAFETY: the process that set LISTEN_FDS opened this descriptor for us, and the caller
                // guarantees that nothing else owns it.
                let socket = unsafe { RawSocket::from_raw_fd(fd) };
                let of_parent =
                    |e: io::Error| io::Error::new(e.kind(), format!("LISTEN_FDS: descriptor {fd}: {e}"));
                let listener = Listener::of_parent(socket).map_err(of_parent)?;
                Ok((names.next().unwrap_or_default().to_owned(), listener))
            })
            .collect()
    }

    /// Returns the listener of a socket that the parent process opened.
    fn of_parent(socket: RawSocket) -> io::Result<Listener> {
        let is_unix = socket.local_addr()?.is_unix();
        if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket that listens"));
        }
        socket.set_nonblocking(true)?;
        socket.set_cloexec(true)?;
        if is_unix { Ok(Listener::Unix(socket.into())) } else { Listener::of_tcp(socket) }
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// If the system does not tell the address.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Listener::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            Listener::Unix(listener) => {
                Address::Unix(listener.local_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default())
            }
        })
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Tcp(listener) => listener.as_raw_fd(),
            Listener::Unix(listener) => listener.as_raw_fd(),
        }
    }
}

/// A listening socket that a runtime watches. Several may watch the same one: a connection goes to one of
/// them, and belongs to no runtime yet. tokio's own listeners would have their runtime watch it first.
pub(crate) struct WatchedListener(AsyncFd<Arc<Listener>>);

impl WatchedListener {
    /// Has this runtime watch `listener`.
    pub(crate) fn new(listener: Arc<Listener>) -> io::Result<WatchedListener> {
        // SAFETY: a listener has one descriptor, which stays open until the listener is dropped.
        Ok(WatchedListener(unsafe { AsyncFd::register(listener) }?))
    }

    /// Waits for a connection.
    pub(crate) async fn accept(&self) -> io::Result<(Idle, Option<SocketAddr>)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accept = |listener: &Arc<Listener>| match &**listener {
            Listener::Tcp(listener) => {
                let (stream, peer) = acceptfrom_with(listener, flags)?;
                // A socket for both families names clients of IPv4 by addresses of IPv6, which no log filter
                // and no hook expects.
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let peer = peer.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                Ok((Idle::Tcp(stream.into()), peer))
            }
            Listener::Unix(listener) => Ok((Idle::Unix(accept_with(listener, flags)?.into()), None)),
        };
        self.0.async_io(Interest::READABLE, accept).await
    }
}

/// Checks whether a Unix socket lies at `path` on which no process listens.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection that no runtime watches.
pub(crate) enum Idle {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Has this runtime watch a connection.
    pub(crate) fn enter(idle: Idle) -> io::Result<Socket> {
        Ok(match idle {
            Idle::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Idle::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }

    /// Makes the kernel acknowledge received data at once. Stock git sends a request in many small packets
    /// with Nagle's algorithm on: otherwise each packet waits 40 ms for our delayed acknowledgment of the
    /// last one. The kernel forgets the setting, so it is set before every read.
    pub(crate) fn quick_ack(&self) {
        if let Socket::Tcp(stream) = self {
            let _ = SockRef::from(stream).set_tcp_quickack(true);
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.readable().await,
            Socket::Unix(stream) => stream.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.writable().await,
            Socket::Unix(stream) => stream.writable().await,
        }
    }

    pub(crate) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_read(buf),
            Socket::Unix(stream) => stream.try_read(buf),
        }
    }

    pub(crate) fn try_io<R>(
        &self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        match self {
            Socket::Tcp(stream) => stream.try_io(interest, call),
            Socket::Unix(stream) => stream.try_io(interest, call),
        }
    }

    /// Resolves when the other side has ended its half of the connection: it sends nothing more, and nothing
    /// of it is left to read. It may still read.
    pub(crate) async fn ended(&self) {
        while self.readable().await.is_ok() {
            let peeked = self.try_io(Interest::READABLE, || {
                let mut byte = 0u8;
                // SAFETY: one byte may be written to `byte`, and is; the descriptor is open as long as we
                // are.
                let n = unsafe {
                    libc::recv(
                        self.as_raw_fd(),
                        (&raw mut byte).cast(),
                        1,
                        libc::MSG_PEEK | libc::MSG_DONTWAIT,
                    )
                };
                if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
            });
            match peeked {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
                // The client has sent its next request ahead, so it is still there.
                Ok(_) => break,
            }
        }
        std::future::pending::<()>().await;
    }

    /// Returns whether the other side reads no more: what was sent to it was refused.
    pub(crate) fn is_reset(&self) -> bool {
        let mut polled = libc::pollfd { fd: self.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry is given, which lives as long as the call, with a descriptor that is open as long
        // as we are.
        let n = unsafe { libc::poll(&raw mut polled, 1, 0) };
        n > 0 && polled.revents & (libc::POLLERR | libc::POLLHUP) != 0
    }
}

/// Returns whether the other side of the connection `fd` has ended its half, or all of it.
pub(crate) fn has_ended(fd: RawFd) -> bool {
    let mut polled = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry is given, which lives as long as the call.
    let n = unsafe { libc::poll(&raw mut polled, 1, 0) };
    n > 0 && polled.revents & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_nobody_answers_at_is_replaced() {
        let folder = weir_testing::folder();
        let address = Address::Unix(folder.path().join("s"));
        let first = Listener::bind(&address).unwrap();
        assert!(Listener::bind(&address).is_err(), "somebody answers there");
        drop(first);
        assert_eq!(Listener::bind(&address).unwrap().address().unwrap(), address);
    }
}
