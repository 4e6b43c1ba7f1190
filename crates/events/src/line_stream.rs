//! A stream of lines over TCP or a Unix socket.

use std::io::{self, Read};

use socket2::{SockRef, Socket};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A stream of lines, seen from either end.
pub(crate) enum LineStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl LineStream {
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            LineStream::Tcp(stream) => stream.readable().await,
            LineStream::Unix(stream) => stream.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            LineStream::Tcp(stream) => stream.writable().await,
            LineStream::Unix(stream) => stream.writable().await,
        }
    }

    /// Reads the bytes that have arrived. If they do not fill `buffer`, no more have arrived: the stream then
    /// counts as not readable, which saves a read that would find nothing.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = None;
        let whole = buffer.len();
        let mut drain = |mut socket: &Socket| match socket.read(buffer)? {
            length if length == whole || length == 0 => Ok(length),
            length => {
                read = Some(length);
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        let tried = match self {
            LineStream::Tcp(stream) => stream.try_io(Interest::READABLE, || drain(&SockRef::from(stream))),
            LineStream::Unix(stream) => stream.try_io(Interest::READABLE, || drain(&SockRef::from(stream))),
        };
        read.map_or(tried, Ok)
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            LineStream::Tcp(stream) => stream.try_write(bytes),
            LineStream::Unix(stream) => stream.try_write(bytes),
        }
    }
}
