//! HTTP proxies, used as curl does: tunnels (`CONNECT`) for https, and whole URLs for http (RFC 9112, 3.2.2),
//! as many proxies allow tunnels to port 443 only.

use std::fmt;
use std::io;

use base64::Engine;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector,
    Transport,
};
use ureq::{Agent, Proxy, ProxyProtocol};

use crate::pinned::PinnedConnector;
use crate::url::{Scheme, Url};

/// The proxies for HTTP, as curl's environment variables name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The proxy for http:// URLs.
    pub http: Option<String>,
    /// The proxy for https:// URLs.
    pub https: Option<String>,
    /// The hosts that are contacted directly, separated by commas.
    pub none_for: Option<String>,
}

/// Why a proxy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Its text is not the URL of a proxy.
    #[error("the proxy '{proxy}' is no URL of one: {source}")]
    NoUrl {
        /// The text, without credentials.
        proxy: String,
        /// The reason.
        source: ureq::Error,
    },
    /// It is a SOCKS proxy.
    #[error("the proxy '{0}' is none of http:// or https://: SOCKS is not supported")]
    Socks(String),
}

impl Proxies {
    /// Returns the proxy for `url`, if there is one.
    pub(crate) fn of(&self, url: &Url) -> Result<Option<Proxy>, ProxyError> {
        match url.scheme {
            Scheme::Http { tls } => self.of_http(tls),
            _ => Ok(None),
        }
    }

    /// Returns the proxy for https:// URLs, or for http:// ones, if there is one.
    ///
    /// # Errors
    /// If its text is not the URL of a proxy.
    pub fn of_http(&self, tls: bool) -> Result<Option<Proxy>, ProxyError> {
        let named = if tls { &self.https } else { &self.http };
        let Some(named) = named.as_deref().filter(|named| !named.is_empty()) else { return Ok(None) };
        let bad = |source| ProxyError::NoUrl { proxy: shown(named).to_owned(), source };
        let proxy = Proxy::new(named).map_err(bad)?;
        // The HTTP client ignores a SOCKS proxy and connects directly.
        if !matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) {
            return Err(ProxyError::Socks(shown(named).to_owned()));
        }
        let builder = Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
        let builder = proxy.username().into_iter().fold(builder, |b, user| b.username(user));
        let builder = proxy.password().into_iter().fold(builder, |b, password| b.password(password));
        let hosts = self.none_for.iter().flat_map(|hosts| hosts.split(','));
        let builder =
            hosts.map(str::trim).filter(|host| !host.is_empty()).fold(builder, |b, host| b.no_proxy(host));
        builder.build().map(Some).map_err(bad)
    }
}

/// Returns an HTTP client that connects as visits do: through `proxy`, if there is one, to servers that
/// `roots` trust.
pub fn http_client(config: ConfigBuilder<AgentScope>, proxy: Option<Proxy>, roots: RootCerts) -> Agent {
    let tls = TlsConfig::builder().root_certs(roots).build();
    Agent::with_parts(
        config.tls_config(tls).proxy(proxy).build(),
        ProxyConnector::default(),
        DefaultResolver::default(),
    )
}

/// Returns the text of a proxy without its credentials.
fn shown(proxy: &str) -> &str {
    proxy.rsplit('@').next().unwrap_or_default()
}

/// Returns the host and port of `proxy`.
pub(crate) fn place_of(proxy: &Proxy) -> String {
    format!("{}:{}", proxy.host(), proxy.port())
}

/// Connects as ureq does, but requests whole http:// URLs from proxies, and trusts servers as
/// [`PinnedConnector`] does.
#[derive(Debug)]
pub(crate) struct ProxyConnector(Box<dyn Connector<(), Out = Box<dyn Transport>>>);

impl Default for ProxyConnector {
    fn default() -> ProxyConnector {
        let direct = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default());
        ProxyConnector(Box::new(
            direct.chain(PinnedConnector::default()).chain(RustlsConnector::default()).chain(Boxing),
        ))
    }
}

/// The end of a chain of connectors: boxes the transport to give it one type.
#[derive(Debug)]
struct Boxing;

impl<In: Transport> Connector<In> for Boxing {
    type Out = Box<dyn Transport>;

    fn connect(&self, _: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        Ok(chained.map(|transport| -> Box<dyn Transport> { Box::new(transport) }))
    }
}

impl Connector<()> for ProxyConnector {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let is_plain = details.uri.scheme_str() == Some("http");
        let proxy =
            details.config.proxy().filter(|proxy| is_plain && proxy.uri().scheme_str() == Some("http"));
        let Some(proxy) = proxy.filter(|proxy| !proxy.is_no_proxy(details.uri)) else {
            return self.0.connect(details, chained);
        };
        let to_proxy = ConnectionDetails {
            uri: proxy.uri(),
            addrs: details.resolver.resolve(proxy.uri(), details.config, details.timeout)?,
            config: details.config,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        let connected = TcpConnector::default().connect(&to_proxy, None::<Box<dyn Transport>>)?;
        Ok(connected.map(|transport| -> Box<dyn Transport> {
            let transport = Box::new(transport);
            Box::new(WholeUrls {
                transport,
                target: target_of(details.uri),
                authorization: authorization_of(proxy),
                is_at_head: true,
            })
        }))
    }
}

/// Returns the part of a URL before its path, for the request line.
fn target_of(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    uri.port_u16().map_or_else(|| format!("http://{host}"), |port| format!("http://{host}:{port}"))
}

fn authorization_of(proxy: &Proxy) -> Option<String> {
    let words = format!("{}:{}", proxy.username()?, proxy.password().unwrap_or_default());
    Some(format!(
        "Proxy-Authorization: Basic {}\r\n",
        base64::engine::general_purpose::STANDARD.encode(words)
    ))
}

/// A connection to a proxy, which sends the heads of requests with whole URLs.
struct WholeUrls {
    transport: Box<dyn Transport>,
    target: String,
    authorization: Option<String>,
    /// Whether the next bytes to be sent begin a request.
    is_at_head: bool,
}

impl fmt::Debug for WholeUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WholeUrls({})", self.target)
    }
}

impl WholeUrls {
    /// Returns `head` with a whole URL, and with the credentials for the proxy.
    fn rewritten(&self, head: &[u8]) -> Option<Vec<u8>> {
        let line_end = head.windows(2).position(|w| w == b"\r\n")? + 2;
        let path = head[..line_end].iter().position(|&c| c == b' ')? + 1;
        let authorization = self.authorization.as_deref().unwrap_or_default().as_bytes();
        Some(
            [&head[..path], self.target.as_bytes(), &head[path..line_end], authorization, &head[line_end..]]
                .concat(),
        )
    }
}

impl Transport for WholeUrls {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        if !std::mem::take(&mut self.is_at_head) {
            return self.transport.transmit_output(amount, timeout);
        }
        let head = self.transport.buffers().output()[..amount].to_vec();
        let rewritten = self
            .rewritten(&head)
            .ok_or_else(|| ureq::Error::Io(io::Error::other("a request without a first line")))?;
        let output = self.transport.buffers().output();
        let Some(place) = output.get_mut(..rewritten.len()) else {
            return Err(ureq::Error::Io(io::Error::other("the head of a request is too long for a proxy")));
        };
        place.copy_from_slice(&rewritten);
        self.transport.transmit_output(rewritten.len(), timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        // The next output after input is another request.
        self.is_at_head = true;
        self.transport.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_proxies_of_their_own() {
        let proxies = Proxies {
            http: Some("http://u:p%20w@plain.example:3128".to_owned()),
            https: Some("tunnel.example".to_owned()),
            none_for: Some("inside.example, .corp".to_owned()),
        };
        let of = |url: &str| proxies.of(&Url::parse(url).unwrap()).unwrap();
        let plain = of("http://h/x").unwrap();
        assert_eq!((place_of(&plain).as_str(), plain.password()), ("plain.example:3128", Some("p w")));
        assert_eq!(of("https://h/x").unwrap().host(), "tunnel.example");
        assert!(plain.is_no_proxy(&"http://inside.example/x".parse().unwrap()));
        assert!(of("git://h/x").is_none());
        let bad = Proxies { http: Some("ftp://u:secret@h".to_owned()), ..Proxies::default() };
        let why = bad.of(&Url::parse("http://h/x").unwrap()).unwrap_err().to_string();
        assert!(!why.contains("secret"), "{why}");
        for kind in ["socks4", "socks4a", "socks5", "socks5h"] {
            let proxies = Proxies { http: Some(format!("{kind}://u:secret@h")), ..Proxies::default() };
            let why = proxies.of(&Url::parse("http://h/x").unwrap()).unwrap_err();
            assert!(matches!(why, ProxyError::Socks(_)), "{kind}: {why}");
            let why = why.to_string();
            assert!(!why.contains("secret"), "{kind}: {why}");
        }
    }
}
