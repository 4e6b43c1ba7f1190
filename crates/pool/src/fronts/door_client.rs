//! Tells the process that has the doors of a pool of changed repositories, so that it need not look for them.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_serve::{Address, ListenAddress};

/// How long to wait for a door.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The most names that are told: the process looks by itself for more.
const NAMES_MAX: usize = 1000;

/// Sends `names` to the first of the doors at `addresses` that takes them. If none does, the process looks by
/// itself, within seconds.
pub fn tell_door(addresses: &[String], names: &[&str]) {
    if names.is_empty() || names.len() > NAMES_MAX {
        return;
    }
    let text = names.join("\n") + "\n";
    let told = addresses.iter().any(|address| match send(address, text.as_bytes()) {
        Ok(()) => true,
        Err(e) => {
            tracing::debug!("cannot tell the door at {address}: {e}");
            false
        }
    });
    tracing::debug!(told, "names sent to a door");
}

fn send(address: &str, text: &[u8]) -> io::Result<()> {
    let invalid = |e| io::Error::new(io::ErrorKind::InvalidInput, e);
    match address.parse::<ListenAddress>().map_err(invalid)? {
        ListenAddress::One(Address::Unix(path)) => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.write_all(text)
        }
        address => {
            let text_of = match address {
                ListenAddress::Any(port) => format!("localhost:{port}"),
                address => address.to_string(),
            };
            let at = text_of.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
            let mut stream = TcpStream::connect_timeout(&at, TIMEOUT)?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.write_all(text)?;
            stream.shutdown(Shutdown::Write)
        }
    }
}
