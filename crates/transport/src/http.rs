//! Smart HTTP (gitprotocol-http), over the ureq client.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, RequestBuilder, ResponseExt, Timeout};
use weir_ground::thread::spawn;

use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::extra_headers::headers_of;
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::proxy::{ProxyConnector, place_of};
use crate::resolver::GuardedResolver;
use crate::tls::why_not_believed;
use crate::url::Url;

const REDIRECTS_MAX: u32 = 10;
/// Connections to a host that are kept for further requests.
const KEPT_CONNECTIONS_MAX: usize = 3;
/// Headers that say where a request goes, how it is framed, and who sends it: an LFS server may not set them.
const OWN_HEADERS: [&str; 11] = [
    "host",
    "connection",
    "cookie",
    "expect",
    "forwarded",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "via",
    "user-agent",
];
const OWN_HEADER_PREFIXES: [&str; 5] = ["content-", "proxy-", "sec-", "transfer-", "x-forwarded-"];
/// Requests larger than this are compressed, as git does.
const GZIP_BYTES_MIN: usize = 1024;
const GIT_PROTOCOL: header::HeaderName = header::HeaderName::from_static("git-protocol");
const SERVICE: &str = "git-upload-pack";
const CHUNK_BYTES: usize = 64 << 10;
/// The number of chunks that are read ahead.
const CHUNKS_MAX: usize = 8;
/// The maximum time for one response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone)]
pub(crate) struct Http {
    agent: Agent,
    url: Url,
    /// The base URL of requests; it changes if the first one is redirected.
    pub(crate) base: String,
    pub(crate) options: TransportOptions,
    credentials: Option<Credentials>,
    /// The host and port of the proxy, if there is one.
    proxy: Option<String>,
    /// The headers of git's configuration. They are for the host of `url` only.
    extra: Vec<(header::HeaderName, header::HeaderValue)>,
    /// Whether the server has answered before, so that a connection may be used again.
    has_answered: Arc<AtomicBool>,
}

/// Returns whether a header that a server asks us to send may be sent.
fn may_be_said(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !OWN_HEADERS.contains(&name.as_str())
        && !OWN_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What became of a request.
type Answered = std::result::Result<Response<Body>, ureq::Error>;

/// The answer to the first request.
pub(crate) enum Greeting {
    /// A smart git server.
    Smart(Box<dyn Read + Send>),
    /// Something else: a plain file, or no git repository at all.
    Other(Box<dyn Read + Send>),
}

impl Http {
    /// Creates a client of `url`. `home` is the URL that the operator configured and that led to `url`;
    /// mostly, they are equal.
    pub(crate) fn new(url: &Url, home: &Url, options: &TransportOptions) -> Result<Http> {
        let proxy = options.proxies.of(url)?;
        let config = Agent::config_builder()
            .user_agent(format!("git/2.0 ({})", options.agent))
            .tls_config(TlsConfig::builder().root_certs(options.roots.clone()).build())
            .max_redirects(REDIRECTS_MAX)
            .max_idle_connections_per_host(KEPT_CONNECTIONS_MAX)
            .http_status_as_error(false)
            .proxy(proxy.clone())
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.idle_timeout))
            .timeout_recv_body(Some(RESPONSE_TIME_MAX))
            // Only ends the thread of a body that was given up before.
            .timeout_per_read(Some(options.first_byte_timeout + options.idle_timeout))
            .build();
        Ok(Http {
            agent: Agent::with_parts(config, ProxyConnector::default(), GuardedResolver::new(&home.host)),
            url: url.clone(),
            base: url.http_base(),
            options: options.clone(),
            credentials: Credentials::from_url(url),
            proxy: proxy.map(|proxy| place_of(&proxy)),
            extra: headers_of(&options.extra_headers, url),
            has_answered: Arc::default(),
        })
    }

    /// Sends the first request, `info/refs`, and returns the answer.
    pub(crate) fn advertisement(&mut self) -> Result<Greeting> {
        // As git does with a URL that has a query itself.
        let mark = if self.base.contains('?') { '&' } else { '?' };
        let path = format!("info/refs{mark}service={SERVICE}");
        let version = (self.options.version_max > 0).then(|| format!("version={}", self.options.version_max));
        let headers: Vec<_> = version.into_iter().map(|version| (GIT_PROTOCOL, version)).collect();
        let mut response = self.get_with(&path, &headers)?;
        check_status(&mut response)?;
        // Only the first request may be redirected; the others follow it (git's
        // http.followRedirects=initial).
        let landed = response.get_uri().to_string();
        let suffix = format!("/info/refs{mark}service={SERVICE}");
        match landed.strip_suffix(&suffix) {
            Some(base) => {
                // A password is sent only to the host it was meant for.
                if origin(base) != origin(&self.base) {
                    self.credentials = None;
                }
                if self.base.starts_with("https:") && base.starts_with("http:") {
                    return Err(Error::Protocol(format!("redirected from https to '{base}'")));
                }
                self.base = base.to_owned();
            }
            None => {
                return Err(Error::Protocol(format!("redirected to '{landed}', which is no git repository")));
            }
        }
        let expected = format!("application/x-{SERVICE}-advertisement");
        let is_smart = content_type(&response) == expected;
        let body = self.body(response, &Pace::new(&self.options));
        Ok(if is_smart { Greeting::Smart(body) } else { Greeting::Other(body) })
    }

    /// Returns the file at `path` below the repository's URL; `None` if there is none or access is forbidden.
    pub(crate) fn file(&mut self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        let mut response = self.get_with(path, &[])?;
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::GONE) {
            return Ok(None);
        }
        check_status(&mut response)?;
        Ok(Some(self.body(response, &Pace::new(&self.options))))
    }

    /// Creates a client of `url`, which a file of this repository names, as git's alternates do. It must be
    /// on the same host, and is read without credentials: naming a private repository must not give access to
    /// it.
    pub(crate) fn neighbour(&self, url: &Url) -> Result<Http> {
        let options = TransportOptions {
            netrc: None,
            credential_source: None,
            credential_helper: None,
            extra_headers: Vec::new(),
            ..self.options.clone()
        };
        let http = Http::new(url, &self.url, &options)?;
        if origin(&http.base) != origin(&self.base) || http.credentials.is_some() {
            return Err(Error::Protocol(format!("led to another host: '{url}'")));
        }
        Ok(http)
    }

    /// Requests `path` below the repository's URL; with credentials, if the server requires them.
    pub(crate) fn get_with(
        &mut self,
        path: &str,
        headers: &[(header::HeaderName, String)],
    ) -> Result<Response<Body>> {
        self.ask(|http| http.get(path, headers))
    }

    /// Posts JSON of `media_type` to `path` and returns the answer; with credentials, if the server requires
    /// them.
    pub(crate) fn post_json(
        &mut self,
        path: &str,
        media_type: &str,
        headers: &HashMap<String, String>,
        question: &serde_json::Value,
    ) -> Result<Response<Body>> {
        let text = question.to_string();
        let mut headers: Vec<(&String, &String)> = headers.iter().collect();
        for _ in 0..REDIRECTS_MAX {
            let is_said = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            let send = |http: &Http| {
                let mut request =
                    http.agent.post(format!("{}/{path}", http.base)).header(header::ACCEPT, media_type);
                for (name, value) in headers.iter().filter(|(name, _)| may_be_said(name)) {
                    request = request.header(*name, *value);
                }
                if !is_said {
                    request = http.with_own(request, &http.base);
                }
                let request = request.header(header::CONTENT_TYPE, media_type).config().max_redirects(0);
                let request = request.timeout_recv_response(Some(http.options.first_byte_timeout)).build();
                request.send(text.as_bytes())
            };
            let post = |http: &Http| http.call(|| send(http), &Pace::of_answer(&http.options));
            let response = if is_said { post(self)? } else { self.ask(post)? };
            if !matches!(response.status().as_u16(), 301 | 302 | 307 | 308) {
                return Ok(response);
            }
            // A repository that was renamed: the request is sent there unchanged.
            let target = response
                .headers()
                .get(header::LOCATION)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned();
            let origin_now = origin(&self.base).to_owned();
            let target = if target.starts_with('/') { format!("{origin_now}{target}") } else { target };
            let base = target.strip_suffix(path).and_then(|base| base.strip_suffix('/'));
            let Some(base) = base.filter(|base| {
                base.starts_with("https://")
                    || (base.starts_with("http://") && !self.base.starts_with("https://"))
            }) else {
                return Err(Error::Protocol(format!(
                    "redirected to '{}'",
                    crate::text::printable(target.as_bytes())
                )));
            };
            if origin(base) != origin_now {
                self.credentials = None;
                headers.clear();
            }
            self.base = base.to_owned();
        }
        Err(Error::Protocol("redirected again and again".to_owned()))
    }

    /// Fetches `url`, which may be on any host, with the `headers` that the server which named it asks for.
    /// Our credentials are sent only to the same host.
    pub(crate) fn get_elsewhere(
        &mut self,
        url: &str,
        headers: &HashMap<String, String>,
    ) -> Result<Box<dyn Read + Send>> {
        let is_web =
            url.starts_with("https://") || (url.starts_with("http://") && !self.base.starts_with("https://"));
        if !is_web {
            return Err(Error::Protocol(format!(
                "told to download from '{}'",
                crate::text::printable(url.as_bytes())
            )));
        }
        let is_ours = origin(url) == origin(&self.base)
            && !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        let send = |http: &Http| {
            let mut request = http.agent.get(url).header(header::ACCEPT, "*/*");
            for (name, value) in headers.iter().filter(|(name, _)| may_be_said(name)) {
                request = request.header(name, value);
            }
            if is_ours {
                request = http.with_own(request, url);
            }
            let request = request.config().timeout_recv_response(Some(http.options.first_byte_timeout));
            request.build().call()
        };
        let get = |http: &Http| http.call(|| send(http), &Pace::of_answer(&http.options));
        let mut response = if is_ours { self.ask(get)? } else { get(self)? };
        check_status(&mut response)?;
        Ok(self.body(response, &Pace::of_answer(&self.options)))
    }

    /// Adds the headers of git's configuration, and our credentials, to a request of `url`.
    fn with_own<B>(&self, mut request: RequestBuilder<B>, url: &str) -> RequestBuilder<B> {
        let is_meant = origin(url) == origin(&self.url.http_base());
        for (name, value) in self.extra.iter().filter(|_| is_meant) {
            request = request.header(name, value);
        }
        let is_said = is_meant && self.extra.iter().any(|(name, _)| *name == header::AUTHORIZATION);
        if let Some(c) = self.credentials.as_ref().filter(|_| !is_said) {
            request = request.header(header::AUTHORIZATION, basic(c));
        }
        request
    }

    /// Sends a request. A server may close a connection just when it is used again: then the request is sent
    /// once more (RFC 9112, section 9.3.1), for all requests here may be.
    fn call(&self, send: impl Fn() -> Answered, pace: &Pace) -> Result<Response<Body>> {
        let is_closed = |e: &ureq::Error| match e {
            ureq::Error::Io(e) => matches!(
                e.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
            ),
            _ => false,
        };
        let mut answer = send();
        // Other connections that were kept may be closed, too.
        for _ in 0..KEPT_CONNECTIONS_MAX {
            match &answer {
                Err(e) if is_closed(e) && self.has_answered.load(Ordering::Relaxed) => answer = send(),
                _ => break,
            }
        }
        self.has_answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
        answer.map_err(|e| self.explain(e, pace))
    }

    /// Sends a request; if the answer is 401, sends it again with credentials.
    fn ask(&mut self, ask: impl Fn(&Http) -> Result<Response<Body>>) -> Result<Response<Body>> {
        let response = ask(self)?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.ask_with_credentials(ask)
        } else {
            Ok(response)
        }
    }

    fn get(&self, path: &str, headers: &[(header::HeaderName, String)]) -> Result<Response<Body>> {
        let send = || {
            let mut request = self.agent.get(format!("{}/{path}", self.base)).header(header::ACCEPT, "*/*");
            for (name, value) in headers {
                request = request.header(name, value);
            }
            self.with_own(request, &self.base).call()
        };
        self.call(send, &Pace::new(&self.options))
    }

    fn ask_with_credentials(
        &mut self,
        ask: impl Fn(&Http) -> Result<Response<Body>>,
    ) -> Result<Response<Body>> {
        // Credentials are looked up for the host of the request, which may not be the host that named it.
        let url = match origin(&self.base) == origin(&self.url.http_base()) {
            true => self.url.clone(),
            false => Url::parse(&self.base).map_err(|e| Error::Protocol(e.to_string()))?,
        };
        let netrc = self.options.netrc.as_ref().and_then(|n| n.find(&url.host, url.user.as_deref()));
        let known =
            || self.options.credential_source.as_ref().map_or_else(Vec::new, |source| source.find(&url));
        // A server may answer 404 to users without access, so the other credentials and the helper are tried,
        // too.
        let is_refusal = |response: &Response<Body>| matches!(response.status().as_u16(), 401 | 403 | 404);
        let mut refused = None;
        for found in netrc.map_or_else(known, |found| vec![found]) {
            self.credentials = Some(found);
            let response = ask(self)?;
            if !is_refusal(&response) {
                return Ok(response);
            }
            refused = refused.or(Some(response));
        }
        let helper = self.options.credential_helper.clone();
        let Some((helper, found)) = helper.and_then(|helper| Some((helper.clone(), helper.fill(&url)?)))
        else {
            return refused.ok_or_else(|| {
                Error::Http {
                status: 401,
                detail: Some(
                    "a password is required, but neither netrc, a forge's tokens nor a credential helper has \
                    one"
                        .to_owned(),
                ),
            }
            });
        };
        self.credentials = Some(found.clone());
        let response = ask(self)?;
        if !is_refusal(&response) || response.status() == StatusCode::UNAUTHORIZED {
            helper.report(&url, &found, response.status() != StatusCode::UNAUTHORIZED);
        }
        Ok(match refused {
            Some(refused) if is_refusal(&response) => refused,
            _ => response,
        })
    }

    /// Sends a request and returns its answer; with credentials, if the server requires them only now. `pace`
    /// says how long the server may be silent.
    pub(crate) fn post(&mut self, body: &[u8], pace: &Pace) -> Result<Box<dyn Read + Send>> {
        let packed = (body.len() > GZIP_BYTES_MIN)
            .then(|| sirocco::compress(sirocco::Format::Gzip, sirocco::deflate::Level::DEFAULT, body));
        let send = |http: &Http| {
            let mut request = http
                .agent
                .post(format!("{}/{SERVICE}", http.base))
                .header(header::CONTENT_TYPE, format!("application/x-{SERVICE}-request"))
                .header(header::ACCEPT, format!("application/x-{SERVICE}-result"));
            if http.options.version_max > 0 {
                request = request.header(GIT_PROTOCOL, format!("version={}", http.options.version_max));
            }
            let request = http.with_own(request, &http.base);
            let request = request.config().timeout_recv_response(Some(pace.silence_max())).build();
            match &packed {
                Some(packed) => request.header(header::CONTENT_ENCODING, "gzip").send(&packed[..]),
                None => request.send(body),
            }
        };
        let began = Instant::now();
        let mut response = self.ask(|http| http.call(|| send(http), pace))?;
        check_status(&mut response)?;
        pace.waited(began.elapsed());
        let expected = format!("application/x-{SERVICE}-result");
        if content_type(&response) != expected {
            return Err(Error::Protocol(format!("the answer is of type '{}'", content_type(&response))));
        }
        Ok(self.body(response, pace))
    }

    pub(crate) fn body(&self, response: Response<Body>, pace: &Pace) -> Box<dyn Read + Send> {
        Box::new(PacedBody::new(response.into_body(), pace.clone()))
    }

    /// Returns the error of a request to a server that may be as silent as `pace` says.
    fn explain(&self, e: ureq::Error, pace: &Pace) -> Error {
        let host = match &self.proxy {
            None => self.url.host_port(),
            Some(proxy) => format!("{} by the proxy {proxy}", self.url.host_port()),
        };
        match e {
            ureq::Error::Io(source) => match why_not_believed(&source) {
                Some(why) => Error::Certificate { host, why },
                None => Error::Connect { host, source },
            },
            ureq::Error::Timeout(Timeout::RecvResponse) => pace.silent(),
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                Error::Connect { host, source: io::ErrorKind::TimedOut.into() }
            }
            ureq::Error::Timeout(_) => pace.takes_nothing(),
            ureq::Error::HostNotFound => Error::Connect {
                host,
                source: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
            },
            ureq::Error::StatusCode(status) => Error::Http { status, detail: None },
            ureq::Error::TooManyRedirects | ureq::Error::RedirectFailed => {
                Error::Protocol(format!("{host} redirects again and again, or to nowhere"))
            }
            e @ (ureq::Error::Protocol(_)
            | ureq::Error::Http(_)
            | ureq::Error::BadUri(_)
            | ureq::Error::LargeResponseHeader(..)
            | ureq::Error::Decompress(..)) => Error::Protocol(format!("what {host} answers is no HTTP: {e}")),
            other => Error::Connect { host, source: io::Error::other(other) },
        }
    }
}

/// Returns scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |i| i + 3);
    &url[..url[host..].find('/').map_or(url.len(), |i| host + i)]
}

fn basic(c: &Credentials) -> String {
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", c.user, c.password))
    )
}

pub(crate) fn content_type(response: &Response<Body>) -> String {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// Returns the seconds after which a server asks to come again (RFC 9110, "Retry-After"), given as a number
/// or a date.
fn retry_after(response: &Response<Body>) -> Option<u64> {
    let said = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let until = || httpdate::parse_http_date(said).ok()?.duration_since(SystemTime::now()).ok();
    said.parse().ok().or_else(|| Some(until()?.as_secs()))
}

pub(crate) fn check_status(response: &mut Response<Body>) -> Result<()> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(());
    }
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        && let Some(wait_s) = retry_after(response)
    {
        return Err(Error::Later { status: status.as_u16(), wait_s });
    }
    let mut start = Vec::new();
    let _ = response.body_mut().as_reader().take(200).read_to_end(&mut start);
    let detail = Some(crate::text::printable(&start)).filter(|d| !d.is_empty() && !d.starts_with('<'));
    Err(Error::Http { status: status.as_u16(), detail })
}

/// A body read on its own thread, so that an upstream that hangs in the middle is noticed: the HTTP client
/// below has only a timeout for the whole.
struct PacedBody {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    used: usize,
    pace: Pace,
    ended: bool,
}

impl PacedBody {
    fn new(body: Body, pace: Pace) -> PacedBody {
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        let failing = sender.clone();
        let reading = spawn("http body", move || {
            let mut reader = body.into_reader();
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = reader.read(&mut chunk);
                let last = !matches!(read, Ok(n) if n > 0);
                let sent = sender.send(read.map(|n| {
                    chunk.truncate(n);
                    chunk
                }));
                if last || sent.is_err() {
                    break;
                }
            }
        });
        if let Err(e) = reading {
            let _ = failing.send(Err(e));
        }
        PacedBody { chunks, chunk: Vec::new(), used: 0, pace, ended: false }
    }
}

impl Read for PacedBody {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.used == self.chunk.len() && !self.ended {
            let began = Instant::now();
            match self.chunks.recv_timeout(self.pace.silence_max()) {
                Ok(Ok(chunk)) => {
                    self.ended = chunk.is_empty();
                    self.pace.came(chunk.len(), began.elapsed())?;
                    (self.chunk, self.used) = (chunk, 0);
                }
                Ok(Err(e)) => return Err(e),
                Err(RecvTimeoutError::Timeout) => return Err(self.pace.silent().into()),
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        let n = buf.len().min(self.chunk.len() - self.used);
        buf[..n].copy_from_slice(&self.chunk[self.used..self.used + n]);
        self.used += n;
        Ok(n)
    }
}
