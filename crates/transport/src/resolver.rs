//! Resolves hosts that an upstream names, by redirects or as places to download from: none in private
//! networks that it must not reach.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::OnceLock;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Resolves names of hosts. The host that the operator configured may be anywhere. Other hosts that it leads
/// to may be in private networks or on this machine only if the configured host is, too.
pub(crate) struct GuardedResolver {
    inner: DefaultResolver,
    home: String,
    home_is_inside: OnceLock<bool>,
}

impl GuardedResolver {
    /// Creates a resolver for connections that start at the host `home`.
    pub(crate) fn new(home: &str) -> GuardedResolver {
        GuardedResolver {
            inner: DefaultResolver::default(),
            home: unbracketed(home).to_owned(),
            home_is_inside: OnceLock::new(),
        }
    }

    fn is_home_inside(&self) -> bool {
        *self.home_is_inside.get_or_init(|| {
            // A name without an address is an alias in the operator's ssh configuration.
            (self.home.as_str(), 0)
                .to_socket_addrs()
                .map_or(true, |mut found| found.any(|a| is_inside(a.ip())))
        })
    }
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedResolver({})", self.home)
    }
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let host = unbracketed(uri.host().unwrap_or_default());
        let is_proxy =
            config.proxy().is_some_and(|proxy| unbracketed(proxy.host()).eq_ignore_ascii_case(host));
        if host.eq_ignore_ascii_case(&self.home)
            || is_proxy
            || !found.iter().any(|a| is_inside(a.ip()))
            || self.is_home_inside()
        {
            return Ok(found);
        }
        let why = format!(
            "the upstream leads to '{host}', which is on a private network; if that is right, add it by that \
            URL"
        );
        Err(ureq::Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, why)))
    }
}

fn unbracketed(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

/// Returns whether an address is of this machine, or of networks that are not reachable from the internet
/// (RFC 6890).
fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_inside_v4(v4),
        IpAddr::V6(v6) => {
            let s = v6.segments();
            let last = || Ipv4Addr::from((u32::from(s[6]) << 16) | u32::from(s[7]));
            v6.is_loopback()
                || v6 == Ipv6Addr::UNSPECIFIED
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                // Addresses that are translated to IPv4 (RFC 6052) or carried in it (RFC 3056).
                || (s[..6] == [0x64, 0xff9b, 0, 0, 0, 0] && is_inside_v4(last()))
                || (s[0] == 0x2002 && is_inside_v4(Ipv4Addr::from((u32::from(s[1]) << 16) | u32::from(s[2]))))
        }
    }
}

fn is_inside_v4(v4: Ipv4Addr) -> bool {
    let [a, b, ..] = v4.octets();
    a == 0
        || v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_broadcast()
        || v4.is_multicast()
        // Shared by carriers (RFC 6598), for benchmarks (RFC 2544), and reserved.
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18)
        || a >= 240
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_ones_own() {
        for inside in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
        ] {
            assert!(is_inside(inside.parse().unwrap()), "{inside}");
        }
        for outside in
            ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:8.8.8.8"]
        {
            assert!(!is_inside(outside.parse().unwrap()), "{outside}");
        }
    }
}
