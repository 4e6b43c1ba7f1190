//! Proxies in front of the server: finds the client that a connection or a request really comes from.
//!
//! A trusted proxy names the client in `X-Forwarded-For` of each request, or in the header of the PROXY
//! protocol (HAProxy, doc/proxy-protocol.txt, versions 1 and 2) at the start of each connection. Other peers
//! are not believed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::HeaderName;
use ipnet::{IpNet, Ipv4Net};
use proxy_header::{ParseConfig, ProxyHeader};

use crate::sockets::socket::Socket;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The word for Unix sockets in a list of networks.
const UNIX: &str = "unix";
/// The first bytes of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 before its addresses; the last two give the length of what follows.
const V2_HEAD_BYTES: usize = 16;
/// Bytes that may follow: addresses of Unix sockets take 216, and certificates may be included.
const V2_MORE_BYTES_MAX: usize = 4096;
/// Bytes of a header of version 1, with its line's end.
const V1_BYTES_MAX: usize = 107;
/// Bits of the prefix that marks an IPv6 address as an IPv4 address (RFC 4291, 2.5.5.2).
const MAPPED_BITS: u8 = 96;
/// Addresses of one request that are examined.
const HOPS_MAX: usize = 32;

/// The proxies that the server trusts.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    /// Whether peers that come over a Unix socket are trusted.
    over_unix: bool,
    /// Whether the proxies begin each connection with the PROXY protocol.
    speak_proxy_protocol: bool,
}

/// The text of a proxy that is neither an address, nor a network, nor `unix`.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no address, no network such as 10.0.0.0/8, and not '{UNIX}'")]
pub struct NoProxy(String);

impl TrustedProxies {
    /// Returns the proxies at these addresses and networks; `unix` stands for Unix sockets.
    ///
    /// # Errors
    /// If an entry is neither an address, nor a network, nor `unix`.
    pub fn new(list: &[String], speak_proxy_protocol: bool) -> Result<TrustedProxies, NoProxy> {
        let mut proxies = TrustedProxies { speak_proxy_protocol, ..TrustedProxies::default() };
        for text in list {
            match network(text) {
                Some(network) => proxies.networks.push(network),
                None if text == UNIX => proxies.over_unix = true,
                None => return Err(NoProxy(text.clone())),
            }
        }
        Ok(proxies)
    }

    /// Returns whether `peer` is a trusted proxy.
    pub(crate) fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        peer.map_or(self.over_unix, |peer| self.names(peer.ip()))
    }

    /// Returns whether a connection of `peer` begins with a header of the PROXY protocol.
    pub(crate) fn announces(&self, peer: Option<SocketAddr>) -> bool {
        self.speak_proxy_protocol && self.trusts(peer)
    }

    fn names(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Returns the client that sent a request with these headers, which came from `peer`: the last address
    /// that is not a proxy's. If a proxy wrote something that is not an address, returns [`UNKNOWN`], so that
    /// the client is not let in for the proxy's own address.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Option<SocketAddr> {
        if !self.trusts(peer) {
            return peer;
        }
        let mut client = peer;
        let lines: Vec<&[u8]> = headers.get_all(FORWARDED_FOR).iter().map(|line| line.as_bytes()).collect();
        let hops = lines.iter().rev().flat_map(|line| line.rsplit(|&c| c == b','));
        for hop in hops.take(HOPS_MAX) {
            client = Some(address(hop).unwrap_or(UNKNOWN));
            if client == Some(UNKNOWN) || !self.trusts(client) {
                break;
            }
        }
        client
    }
}

/// The address of clients that a proxy cannot name: all of them share the limits for one address.
pub(crate) const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Parses a network or a single address. IPv4 written as IPv6 becomes IPv4.
pub fn network(text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()?;
    let IpNet::V6(v6) = network else { return Some(network) };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_BITS));
    mapped.map_or(Some(network), |(address, bits)| Ipv4Net::new(address, bits).ok().map(IpNet::V4))
}

/// Parses an address that a proxy wrote: with or without a port; with one, an IPv6 address is in brackets.
fn address(hop: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let without_port = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    let found = without_port.or_else(|_| text.parse()).ok()?;
    Some(SocketAddr::new(found.ip().to_canonical(), found.port()))
}

/// Reads the header of the PROXY protocol from `stream`. Returns the address that the connection comes from,
/// or [`UNKNOWN`] if the header does not name it.
///
/// # Errors
/// If there is no valid header, or the connection breaks.
pub(crate) async fn read_proxy_header(stream: &Socket) -> io::Result<SocketAddr> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("PROXY protocol: {why}"));
    let cut = |e: io::Error| {
        if e.kind() == io::ErrorKind::UnexpectedEof { bad("the header is cut short") } else { e }
    };
    let mut header = vec![0; SIGNATURE.len()];
    // A proxy that only checks whether the server is up hangs up without a header: that is no malformed one.
    read_exactly(stream, &mut header[..1])
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))?;
    read_exactly(stream, &mut header[1..]).await.map_err(cut)?;
    if header == SIGNATURE {
        header.resize(V2_HEAD_BYTES, 0);
        read_exactly(stream, &mut header[SIGNATURE.len()..]).await.map_err(cut)?;
        let more = usize::from(u16::from_be_bytes([header[V2_HEAD_BYTES - 2], header[V2_HEAD_BYTES - 1]]));
        if more > V2_MORE_BYTES_MAX {
            return Err(bad(&format!("the header has {more} bytes, more than {V2_MORE_BYTES_MAX}")));
        }
        header.resize(V2_HEAD_BYTES + more, 0);
        read_exactly(stream, &mut header[V2_HEAD_BYTES..]).await.map_err(cut)?;
    } else if header.starts_with(b"PROXY ") {
        // The bytes behind the line belong to the client, so the header is read a byte at a time.
        while !header.ends_with(b"\n") {
            if header.len() == V1_BYTES_MAX {
                return Err(bad(&format!("the header is no line of at most {V1_BYTES_MAX} bytes")));
            }
            header.push(0);
            let last = header.len() - 1;
            read_exactly(stream, &mut header[last..]).await.map_err(cut)?;
        }
    } else {
        return Err(bad("a trusted proxy sent no header; serve.proxy_protocol expects one"));
    }
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    // The header is as long as it states: if its addresses do not fit, it is malformed.
    let (parsed, _) = ProxyHeader::parse(&header, config).map_err(|_| bad("the header is malformed"))?;
    Ok(parsed
        .proxied_address()
        .map_or(UNKNOWN, |a| SocketAddr::new(a.source.ip().to_canonical(), a.source.port())))
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
        // A client can write into the header; its words stand before those that a proxy adds.
        is(client(at("10.1.1.1"), &["10.9.9.9, 203.0.113.5", "198.51.100.1 , 10.2.2.2"]), "198.51.100.1");
        is(client(at("10.1.1.1"), &["10.9.9.9,10.2.2.2"]), "10.9.9.9");
        is(client(at("10.1.1.1"), &[]), "10.1.1.1");
        // No client is let in for the address of the proxy.
        for garbage in ["unknown", "198.51.100.1, ", "", "unix:", "10.1.1.1, garbage"] {
            is(client(at("10.1.1.1"), &[garbage]), "0.0.0.0");
            is(client(None, &[garbage]), "0.0.0.0");
        }
        assert_eq!(proxies(&[]).client(&HeaderMap::new(), None), None);
        assert!(TrustedProxies::new(&["example.org".to_owned()], false).is_err());
        for mapped in ["::ffff:10.1.1.1", "::ffff:10.0.0.0/104"] {
            assert!(
                proxies(&[mapped]).trusts(at("10.1.1.1")) && !proxies(&[mapped]).trusts(at("11.1.1.1")),
                "{mapped}"
            );
        }
        assert!(!proxies(&["::/0"]).trusts(at("10.1.1.1")) && proxies(&["::/0"]).trusts(at("2001:db8::7")));
    }

    async fn read(sent: &[u8]) -> (io::Result<SocketAddr>, Vec<u8>) {
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
        assert_eq!((found.unwrap().to_string().as_str(), &rest[..]), ("198.51.100.1:4711", &b"rest"[..]));
        let (found, rest) = read(b"PROXY UNKNOWN\r\nrest").await;
        assert_eq!((found.unwrap(), &rest[..]), (UNKNOWN, &b"rest"[..]));
        let mut v2 = [&SIGNATURE[..], &[0x21, 0x21, 0, 36]].concat();
        v2.extend("2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v2.extend([0; 16]);
        v2.extend([0x12, 0x67, 0, 80]);
        let (found, rest) = read(&[&v2[..], b"rest"].concat()).await;
        assert_eq!((found.unwrap().to_string().as_str(), &rest[..]), ("[2001:db8::7]:4711", &b"rest"[..]));
        // A proxy that checks whether the server is up.
        let local = [&SIGNATURE[..], &[0x20, 0, 0, 0], b"rest"].concat();
        let (found, rest) = read(&local).await;
        assert_eq!((found.unwrap(), &rest[..]), (UNKNOWN, &b"rest"[..]));
        let too_long = [b"PROXY TCP4 ", &[b'1'; 200][..]].concat();
        let long_v2 = [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        for bad in [
            &b"0032git-upload-pack /x\0host=h\0"[..],
            &too_long,
            &long_v2,
            b"PROXY TCP4 x y 1 2\r\n",
            b"PROXY",
            &v2[..30],
        ] {
            assert!(read(bad).await.0.is_err(), "{bad:?}");
        }
    }
}
