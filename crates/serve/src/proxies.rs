//! Proxies in front of the server: whom a connection or a request really comes from.
//!
//! A proxy that is trusted says so in `X-Forwarded-For`, a request at a time, or in the header of the PROXY protocol (HAProxy,
//! doc/proxy-protocol.txt, versions 1 and 2) at the start of each connection. Nobody else is believed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::HeaderName;
use ipnet::IpNet;
use proxy_header::{ParseConfig, ProxyHeader};

use crate::socket::Socket;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What stands for sockets of this machine in a list of networks.
const UNIX: &str = "unix";
/// What a header of version 2 starts with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 before its addresses; the last two say how many follow.
const V2_HEAD_BYTES: usize = 16;
/// Bytes that may follow: addresses of sockets take 216, and certificates may come along.
const V2_MORE_BYTES_MAX: usize = 4096;
/// Bytes of a header of version 1, with its line's end.
const V1_BYTES_MAX: usize = 107;
/// Addresses of one request that are looked at.
const HOPS_MAX: usize = 32;

/// Proxies that are believed.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    /// Whether those who come over a socket of this machine are.
    over_unix: bool,
    /// Whether they begin each connection with the PROXY protocol.
    speak_proxy_protocol: bool,
}

impl TrustedProxies {
    /// Proxies at these addresses and networks; `unix` stands for sockets of this machine.
    ///
    /// # Errors
    /// If one of them is none.
    pub fn new(list: &[String], speak_proxy_protocol: bool) -> Result<TrustedProxies, String> {
        let mut proxies = TrustedProxies { speak_proxy_protocol, ..TrustedProxies::default() };
        for text in list {
            match text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
                Ok(network) => proxies.networks.push(network),
                Err(_) if text == UNIX => proxies.over_unix = true,
                Err(_) => return Err(format!("'{text}' is no address, no network such as 10.0.0.0/8, and not '{UNIX}'")),
            }
        }
        Ok(proxies)
    }

    /// Whether `peer` is one of them.
    pub(crate) fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        peer.map_or(self.over_unix, |peer| self.names(peer.ip()))
    }

    /// Whether a connection of `peer` begins with a header of the PROXY protocol.
    pub(crate) fn announces(&self, peer: Option<SocketAddr>) -> bool {
        self.speak_proxy_protocol && self.trusts(peer)
    }

    fn names(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whom a request with these headers comes from, which came from `peer`: the last address that is no proxy's. None, where a proxy
    /// says what is no address: nothing is let in for the proxy's own then.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Option<SocketAddr> {
        if !self.trusts(peer) {
            return peer;
        }
        let mut client = peer;
        let lines: Vec<&[u8]> = headers.get_all(FORWARDED_FOR).iter().map(|line| line.as_bytes()).collect();
        let hops = lines.iter().rev().flat_map(|line| line.rsplit(|&c| c == b','));
        for hop in hops.take(HOPS_MAX) {
            client = Some(address(hop)?);
            if !self.trusts(client) {
                break;
            }
        }
        client
    }
}

/// The address that a proxy writes down: with a port or without, that of IPv6 in brackets then.
fn address(hop: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let without_port = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    let found = without_port.or_else(|_| text.parse()).ok()?;
    Some(SocketAddr::new(found.ip().to_canonical(), found.port()))
}

/// Reads the header of the PROXY protocol from `stream`: whom the connection comes from, if it says so of an address.
///
/// # Errors
/// If there is none, or the connection breaks.
pub(crate) async fn read_proxy_header(stream: &Socket) -> io::Result<Option<SocketAddr>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("PROXY protocol: {why}"));
    let mut header = vec![0; SIGNATURE.len()];
    // A proxy that looks whether we are there hangs up, and that is all.
    read_exactly(stream, &mut header[..1]).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))?;
    read_exactly(stream, &mut header[1..]).await?;
    if header == SIGNATURE {
        header.resize(V2_HEAD_BYTES, 0);
        read_exactly(stream, &mut header[SIGNATURE.len()..]).await?;
        let more = usize::from(u16::from_be_bytes([header[V2_HEAD_BYTES - 2], header[V2_HEAD_BYTES - 1]]));
        if more > V2_MORE_BYTES_MAX {
            return Err(bad("its header is too long"));
        }
        header.resize(V2_HEAD_BYTES + more, 0);
        read_exactly(stream, &mut header[V2_HEAD_BYTES..]).await?;
    } else if header.starts_with(b"PROXY ") {
        // What follows the line is for others: a byte at a time.
        while !header.ends_with(b"\n") {
            if header.len() == V1_BYTES_MAX {
                return Err(bad("its header is too long"));
            }
            header.push(0);
            let last = header.len() - 1;
            read_exactly(stream, &mut header[last..]).await?;
        }
    } else {
        return Err(bad("a trusted proxy sent no header; serve.proxy_protocol expects one"));
    }
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let (parsed, _) = ProxyHeader::parse(&header, config).map_err(|e| bad(&e.to_string()))?;
    Ok(parsed.proxied_address().map(|a| SocketAddr::new(a.source.ip().to_canonical(), a.source.port())))
}

async fn read_exactly(stream: &Socket, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        stream.readable().await?;
        match stream.try_read(out) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => out = &mut out[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use tokio::io::AsyncWriteExt;

    fn proxies(list: &[&str]) -> TrustedProxies {
        TrustedProxies::new(&list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>(), true).unwrap()
    }

    fn at(address: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(address.parse().unwrap(), 7))
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted = proxies(&["10.0.0.0/8", "2001:db8::1", "unix"]);
        let client = |peer, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
            }
            trusted.client(&headers, peer).map(|a| a.ip().to_string())
        };
        let is = |found: Option<String>, expected: &str| assert_eq!(found.as_deref(), Some(expected));
        is(client(at("192.0.2.9"), &["198.51.100.1"]), "192.0.2.9");
        is(client(at("10.1.1.1"), &["198.51.100.1"]), "198.51.100.1");
        is(client(at("::ffff:10.1.1.1"), &["198.51.100.1:4711"]), "198.51.100.1");
        is(client(None, &["[2001:db8::7]:80"]), "2001:db8::7");
        is(client(at("2001:db8::1"), &["[2001:db8::7]"]), "2001:db8::7");
        // What a client writes there itself stands before what a proxy adds.
        is(client(at("10.1.1.1"), &["10.9.9.9, 203.0.113.5", "198.51.100.1 , 10.2.2.2"]), "198.51.100.1");
        is(client(at("10.1.1.1"), &["10.9.9.9,10.2.2.2"]), "10.9.9.9");
        is(client(at("10.1.1.1"), &[]), "10.1.1.1");
        // Nothing that is let in for its address is let in for that of the proxy.
        assert_eq!(client(at("10.1.1.1"), &["unknown"]), None);
        assert_eq!(client(at("10.1.1.1"), &["198.51.100.1, "]), None);
        assert_eq!(client(at("10.1.1.1"), &[""]), None);
        assert_eq!(proxies(&[]).client(&HeaderMap::new(), None), None);
        assert!(TrustedProxies::new(&["example.org".to_owned()], false).is_err());
    }

    async fn read(sent: &[u8]) -> (io::Result<Option<SocketAddr>>, Vec<u8>) {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        theirs.write_all(sent).await.unwrap();
        drop(theirs);
        let socket = Socket::Unix(ours);
        let found = read_proxy_header(&socket).await;
        let mut rest = vec![0; 64];
        let n = socket.try_read(&mut rest).unwrap_or(0);
        rest.truncate(n);
        (found, rest)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn headers_of_both_versions_are_read_and_nothing_behind_them() {
        let v1 = b"PROXY TCP4 198.51.100.1 10.0.0.1 4711 9418\r\nrest";
        let (found, rest) = read(v1).await;
        assert_eq!((found.unwrap().unwrap().to_string().as_str(), &rest[..]), ("198.51.100.1:4711", &b"rest"[..]));
        let (found, rest) = read(b"PROXY UNKNOWN\r\nrest").await;
        assert_eq!((found.unwrap(), &rest[..]), (None, &b"rest"[..]));
        let mut v2 = [&SIGNATURE[..], &[0x21, 0x21, 0, 36]].concat();
        v2.extend("2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v2.extend([0; 16]);
        v2.extend([0x12, 0x67, 0, 80]);
        let (found, rest) = read(&[&v2[..], b"rest"].concat()).await;
        assert_eq!((found.unwrap().unwrap().to_string().as_str(), &rest[..]), ("[2001:db8::7]:4711", &b"rest"[..]));
        // A proxy that looks whether we are there.
        let local = [&SIGNATURE[..], &[0x20, 0, 0, 0], b"rest"].concat();
        let (found, rest) = read(&local).await;
        assert_eq!((found.unwrap(), &rest[..]), (None, &b"rest"[..]));
        let too_long = [b"PROXY TCP4 ", &[b'1'; 200][..]].concat();
        let long_v2 = [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        for bad in [&b"0032git-upload-pack /x\0host=h\0"[..], &too_long, &long_v2, b"PROXY TCP4 x y 1 2\r\n", b"PROXY", &v2[..30]] {
            assert!(read(bad).await.0.is_err(), "{bad:?}");
        }
    }
}
