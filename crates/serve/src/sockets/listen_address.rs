//! Addresses to listen on, as people write them.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use crate::sockets::socket::{Address, Listener};

/// The name of this machine for itself.
const LOCALHOST: &str = "localhost";

/// An address to listen on: a host by address or name, or a socket in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// One address.
    One(Address),
    /// All addresses of a name, at a port.
    Name(String, u16),
    /// All addresses of this machine, at a port.
    Any(u16),
}

/// Why a text is no address to listen on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListenAddressError {
    /// It names a Unix socket without a path.
    #[error("the path of the socket is missing")]
    NoPath,
    /// It is none of the forms.
    #[error(
        "'{0}' is no address to listen on: write ADDRESS:PORT ([ADDRESS]:PORT for IPv6), NAME:PORT, :PORT \
         for all addresses of this machine, PORT for this machine only, or unix:PATH"
    )]
    NoAddress(String),
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<ListenAddress, ListenAddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(ListenAddressError::NoPath),
                path => Ok(ListenAddress::One(Address::Unix(path.into()))),
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(ListenAddress::One(Address::Tcp(address)));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((LOCALHOST, text));
        let is_name = host.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
        match port.parse() {
            Ok(port) if host.is_empty() => Ok(ListenAddress::Any(port)),
            Ok(port) if is_name => Ok(ListenAddress::Name(host.to_owned(), port)),
            _ => Err(ListenAddressError::NoAddress(text.to_owned())),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::One(address) => address.fmt(f),
            ListenAddress::Name(name, port) => write!(f, "{name}:{port}"),
            ListenAddress::Any(port) => write!(f, ":{port}"),
        }
    }
}

impl ListenAddress {
    /// Binds a listening socket to each address that it stands for, except to those of a family that this
    /// machine does not have. Call it inside a runtime.
    ///
    /// # Errors
    /// If the name is not known, or a socket cannot be bound; most often, the address is in use.
    pub fn bind(&self) -> io::Result<Vec<Listener>> {
        let addresses = match self {
            ListenAddress::One(address) => return Ok(vec![Listener::bind(address)?]),
            ListenAddress::Name(name, port) => (name.as_str(), *port).to_socket_addrs()?.collect(),
            ListenAddress::Any(port) => {
                vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)), (Ipv4Addr::UNSPECIFIED, *port).into()]
            }
        };
        let (mut listeners, mut bound, mut missing) = (Vec::new(), Vec::new(), None);
        for address in addresses {
            // The socket of all addresses of IPv6 takes connections over IPv4, too (ipv6(7)).
            let is_enough = matches!(self, ListenAddress::Any(_)) && !listeners.is_empty();
            if is_enough || bound.contains(&address) {
                continue;
            }
            match Listener::bind(&Address::Tcp(address)) {
                Ok(listener) => listeners.push(listener),
                Err(e) if is_of_missing_family(&e) => missing = Some(e),
                Err(e) => return Err(io::Error::new(e.kind(), format!("{address}: {e}"))),
            }
            bound.push(address);
        }
        match missing.filter(|_| listeners.is_empty()) {
            Some(e) => Err(e),
            None => Ok(listeners),
        }
    }
}

/// Returns whether binding failed because this machine has no such addresses.
fn is_of_missing_family(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_is_parsed() {
        for (text, shown) in [
            ("127.0.0.1:9418", "127.0.0.1:9418"),
            ("[::]:80", "[::]:80"),
            ("localhost:8080", "localhost:8080"),
            ("mirror-1.example.org:8080", "mirror-1.example.org:8080"),
            (":8080", ":8080"),
            ("8080", "localhost:8080"),
            ("unix:/run/weir.sock", "unix:/run/weir.sock"),
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), shown, "{text}");
        }
        for bad in [
            "",
            "unix:",
            "localhost",
            "127.0.0.1",
            "::1",
            ":",
            "h:",
            "h:port",
            "h:99999",
            "h/p:80",
            "::1:80x",
        ] {
            let error = bad.parse::<ListenAddress>().unwrap_err();
            let wanted = match bad {
                "unix:" => ListenAddressError::NoPath,
                _ => ListenAddressError::NoAddress(bad.to_owned()),
            };
            assert_eq!(error, wanted);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn listen_address_binds_what_it_stands_for() {
        let bound = |text: &str| {
            let listeners = text.parse::<ListenAddress>().unwrap().bind().unwrap();
            listeners.iter().map(|l| l.address().unwrap().to_string()).collect::<Vec<_>>()
        };
        let local = bound("localhost:0");
        assert!(local.iter().any(|address| address.starts_with("127.0.0.1:")), "{local:?}");
        assert_eq!(bound(":0").len(), 1);
        let taken = "127.0.0.1:0".parse::<ListenAddress>().unwrap().bind().unwrap();
        let Address::Tcp(address) = taken[0].address().unwrap() else { panic!("a TCP socket") };
        let again = format!("localhost:{}", address.port()).parse::<ListenAddress>().unwrap().bind();
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let unknown = "no-such-host.invalid:1".parse::<ListenAddress>().unwrap().bind();
        assert!(unknown.is_err());
    }
}
