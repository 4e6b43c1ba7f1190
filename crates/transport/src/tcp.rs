//! A TCP stream that ends when the upstream hangs or is too slow.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::TcpKeepalive;

use crate::error::{Error, Result};
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::url::Url;

/// A read of at least this many bytes is taken to be in the middle of a pack.
const BULK_BYTES_MIN: usize = 4096;

/// The milliseconds that a read waits for more than one byte.
const LEAST_MILLIS_MAX: libc::c_int = 1000;

/// While an upstream is silent, the kernel asks its host so often whether it is still there, and so many
/// times before it takes it for gone. That also keeps routers from forgetting the connection.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVES_MAX: u32 = 4;

/// A TCP connection.
pub(crate) struct Tcp {
    stream: TcpStream,
    pace: Pace,
    /// The time for which a read waits, as the socket knows it.
    read_timeout: Duration,
    /// Whether the last read returned at least [`BULK_BYTES_MIN`] bytes.
    in_bulk: bool,
    /// Whether the next read waits for more than one byte.
    waits_for_more: bool,
}

impl Tcp {
    /// Connects to the host of `url`. `pace` says how long the upstream may be silent.
    pub(crate) fn connect(
        url: &Url,
        default_port: u16,
        options: &TransportOptions,
        pace: Pace,
    ) -> Result<Tcp> {
        let port = url.port.unwrap_or(default_port);
        let host = url.host_port();
        let fail = |source| Error::Connect { host: host.clone(), source };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (url.host.as_str(), port).to_socket_addrs().map_err(fail)? {
            match TcpStream::connect_timeout(&address, options.connect_timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(fail)?;
                    stream.set_read_timeout(Some(options.idle_timeout)).map_err(fail)?;
                    stream.set_write_timeout(Some(options.idle_timeout)).map_err(fail)?;
                    let keepalive = TcpKeepalive::new()
                        .with_time(KEEPALIVE_EVERY)
                        .with_interval(KEEPALIVE_EVERY)
                        .with_retries(KEEPALIVES_MAX);
                    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(fail)?;
                    return Ok(Tcp {
                        stream,
                        pace,
                        read_timeout: options.idle_timeout,
                        in_bulk: false,
                        waits_for_more: false,
                    });
                }
                Err(e) => last = e,
            }
        }
        Err(fail(last))
    }

    /// Reads from the stream, which may be silent for as long as the pace allows.
    fn read_patiently(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let timeout = self.pace.silence_max();
        if timeout != self.read_timeout {
            self.stream.set_read_timeout(Some(timeout))?;
            self.read_timeout = timeout;
        }
        match self.stream.read(buf) {
            // The end of the time. `TimedOut` is the kernel's word for a host that is gone.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(self.pace.silent().into()),
            other => other,
        }
    }

    /// Makes the next read wait for `bytes` bytes, which are known to come, or for the end. git daemon sends
    /// its greeting line by line, and waking up for each line costs more than everything else in a visit that
    /// finds nothing new.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.waits_for_more = self.set_least(bytes);
    }

    /// Waits until that many bytes or the end arrive, but not for long: the server may send less than
    /// remembered.
    fn wait_for_least(&self) {
        let mut polled = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `polled` is one valid pollfd for the duration of the call. If it is interrupted the read
        // itself waits.
        unsafe { libc::poll(&mut polled, 1, LEAST_MILLIS_MAX) };
        self.set_least(1);
    }

    /// Sets the bytes that a read waits for; returns whether that succeeded.
    fn set_least(&self, bytes: usize) -> bool {
        let value = libc::c_int::try_from(bytes).unwrap_or(1);
        // SAFETY: the descriptor is open, and `value` a valid int of that size for the duration of the call.
        let set = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                std::ptr::from_ref(&value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        set == 0
    }
}

impl Read for Tcp {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        if std::mem::take(&mut self.waits_for_more) {
            let _ = socket2::SockRef::from(&self.stream).set_tcp_quickack(true);
            self.wait_for_least();
        }
        // In the middle of a pack more data has mostly arrived, and an immediate acknowledgment would only
        // cost time.
        let ready = match self.in_bulk {
            true => {
                socket2::SockRef::from(&self.stream).recv_with_flags(as_uninit(buf), libc::MSG_DONTWAIT).ok()
            }
            false => None,
        };
        let n = match ready {
            Some(n) => n,
            None => {
                // git daemon leaves Nagle on: without this its last small packet waits 40 ms for our delayed
                // acknowledgment.
                let _ = socket2::SockRef::from(&self.stream).set_tcp_quickack(true);
                self.read_patiently(buf)?
            }
        };
        self.in_bulk = n >= BULK_BYTES_MIN;
        self.pace.came(n, began.elapsed())?;
        Ok(n)
    }
}

impl Write for Tcp {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.stream.write(buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(self.pace.takes_nothing().into()),
            other => {
                self.pace.asked();
                other
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn as_uninit(buf: &mut [u8]) -> &mut [std::mem::MaybeUninit<u8>] {
    // SAFETY: the layouts are the same, and a receive only ever writes initialised bytes.
    unsafe { &mut *(std::ptr::from_mut(buf) as *mut [std::mem::MaybeUninit<u8>]) }
}
