//! A session with an upstream: version and capabilities, then refs, then packs.

use std::io::{BufReader, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use weir_git::pktline::{self, Pkt, PktReader};
use weir_git::{HashKind, Oid};

use crate::advertised::{Advertised, Early, RefListing};
use crate::dumb;
use crate::error::{Error, Result};
use crate::files::HttpFiles;
use crate::http::{Greeting, Http};
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::server_memory::Acquaintance;
use crate::ssh::Ssh;
use crate::tcp::Tcp;
use crate::text::printable;
use crate::url::{Scheme, Url};

/// The maximum number of capability lines that an upstream may send.
const CAPABILITY_LINES_MAX: usize = 1000;
/// The bytes before the content of a pkt-line.
const PKT_LEN_BYTES: usize = 4;
const BUFFER_BYTES: usize = 64 << 10;

pub(crate) enum Wire {
    Stream(PktReader<BufReader<Box<dyn Read + Send>>>, Box<dyn Write + Send>),
    Http(Box<Http>),
}

/// An open session.
pub struct Session {
    pub(crate) wire: Wire,
    pub(crate) pace: Pace,
    pub(crate) version: u8,
    pub(crate) capabilities: Vec<String>,
    pub(crate) hash: HashKind,
    pub(crate) agent: String,
    refs_bytes_max: u64,
    /// The refs that came unrequested (v0 and v1).
    early: Option<Advertised>,
    /// Whether refs were listed at its start, as v0, v1 and plain files do.
    lists_early: bool,
    /// The commits that the upstream names as its shallow boundary (v0 and v1).
    pub(crate) shallow: Vec<Oid>,
    pub(crate) used_up: bool,
    /// Whether a pack was requested.
    pub(crate) has_fetched: bool,
    /// Whether the upstream is plain files behind a web server.
    is_dumb: bool,
}

impl Drop for Session {
    /// Ends a v0 or v1 session in which nothing was wanted as git does, with a flush. Otherwise a server
    /// would log a broken connection.
    fn drop(&mut self) {
        if let Wire::Stream(_, writer) = &mut self.wire
            && self.lists_early
            && !self.used_up
        {
            let _ = writer.write_all(b"0000").and_then(|()| writer.flush());
        }
    }
}

impl Session {
    /// Connects and reads the capabilities of the upstream.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn open(url: &Url, options: &TransportOptions) -> Result<Session> {
        let mut session = Session::connect(url, options, &[], 1)?;
        session.handshake()?;
        Ok(session)
    }

    /// Connects, reads the capabilities and lists the refs as [`Session::ls_refs`] does, in one round trip if
    /// the host is known.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn open_and_list(
        url: &Url,
        options: &TransportOptions,
        prefixes: &[&str],
    ) -> Result<(Session, Advertised)> {
        if url.scheme != Scheme::Git || options.version_max < 2 {
            let mut session = Session::open(url, options)?;
            let advertised = session.ls_refs(prefixes)?;
            return Ok((session, advertised));
        }
        let host = url.host_port();
        let met = options.met.get(&host);
        if let Some(Acquaintance::Capable(known)) = &met {
            let request = ls_refs_request(known, &options.agent, prefixes)?;
            let mut session = Session::connect(url, options, &request, greeting_bytes(known))?;
            match session.handshake().and_then(|()| {
                let is_same = session.version == 2 && session.capabilities[..] == known[..];
                if is_same { session.read_refs().map(Some) } else { Ok(None) }
            }) {
                Ok(Some(advertised)) => return Ok((session, advertised)),
                // The capabilities are not those remembered.
                Ok(None) => {}
                // The server reports an error: another request would fail in the same way.
                Err(e @ Error::Remote(_)) => return Err(e),
                Err(_) => options.met.set(host.clone(), Acquaintance::Slow),
            }
        }
        let mut session = Session::open(url, options)?;
        let advertised = session.ls_refs(prefixes)?;
        if session.version == 2 && !matches!(options.met.get(&host), Some(Acquaintance::Slow)) {
            options.met.set(host, Acquaintance::Capable(session.capabilities.as_slice().into()));
        }
        Ok((session, advertised))
    }

    /// Connects and requests the service. Over git://, also sends `more`, and expects an answer of at least
    /// `least` bytes.
    fn connect(url: &Url, options: &TransportOptions, more: &[u8], least: usize) -> Result<Session> {
        let pace = Pace::new(options);
        let wire = match url.scheme {
            Scheme::Git => {
                let tcp = Tcp::connect(url, 9418, options, pace.clone())?;
                // One socket, two handles: reads and writes never overlap.
                let shared = Arc::new(Mutex::new(tcp));
                let mut request =
                    format!("git-upload-pack {}\0host={}\0", url.path, url.host_port()).into_bytes();
                if options.version_max > 0 {
                    request.extend_from_slice(format!("\0version={}\0", options.version_max).as_bytes());
                }
                let mut first = Vec::new();
                pktline::push(&mut first, &request);
                first.extend_from_slice(more);
                let mut writer = SharedStream(shared.clone());
                writer.write_all(&first)?;
                if least > 1 {
                    writer.0.lock().unwrap_or_else(PoisonError::into_inner).expect(least);
                }
                Wire::Stream(
                    PktReader::new(BufReader::with_capacity(BUFFER_BYTES, Box::new(SharedStream(shared)))),
                    Box::new(writer),
                )
            }
            Scheme::Ssh => {
                let ssh = Ssh::run(url, options, "git-upload-pack", None, pace.clone())?;
                let shared = Arc::new(Mutex::new(ssh));
                Wire::Stream(
                    PktReader::new(BufReader::with_capacity(
                        BUFFER_BYTES,
                        Box::new(SharedStream(shared.clone())),
                    )),
                    Box::new(SharedStream(shared)),
                )
            }
            Scheme::Local => {
                let local = options
                    .local
                    .as_ref()
                    .ok_or_else(|| Error::Local("local paths cannot be served here".to_owned()))?;
                let (reader, writer) =
                    local.connect(&url.local_path()).map_err(|e| match e.is_of_this_process {
                        true => Error::Local(e.to_string()),
                        false => Error::Remote(e.to_string()),
                    })?;
                Wire::Stream(PktReader::new(BufReader::with_capacity(BUFFER_BYTES, reader)), writer)
            }
            Scheme::Http { .. } => Wire::Http(Box::new(Http::new(url, url, options)?)),
        };
        Ok(Session {
            wire,
            pace,
            version: 0,
            capabilities: Vec::new(),
            hash: HashKind::Sha1,
            agent: options.agent.clone(),
            refs_bytes_max: options.refs_bytes_max,
            early: None,
            lists_early: false,
            shallow: Vec::new(),
            used_up: false,
            has_fetched: false,
            is_dumb: false,
        })
    }

    /// Returns the protocol version that the upstream speaks.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Returns the hash of the upstream's repository.
    pub fn hash(&self) -> HashKind {
        self.hash
    }

    /// Returns whether another fetch may follow on this session.
    pub fn can_fetch(&self) -> bool {
        !self.used_up
    }

    /// Returns the files of an upstream that is only a web server: packs and loose objects must be fetched as
    /// they are (gitprotocol-http, "Dumb Clients"). Returns `None` for all other upstreams.
    pub fn plain_files(&self) -> Option<HttpFiles> {
        match &self.wire {
            Wire::Http(http) if self.is_dumb() => Some(HttpFiles::of((**http).clone())),
            _ => None,
        }
    }

    pub(crate) fn is_dumb(&self) -> bool {
        self.is_dumb
    }

    /// Returns whether a pack was already fetched on this connection.
    pub fn has_fetched(&self) -> bool {
        self.has_fetched
    }

    pub(crate) fn has(&self, capability: &str) -> bool {
        has(&self.capabilities, capability)
    }

    fn handshake(&mut self) -> Result<()> {
        let mut pkts: PktReader<Box<dyn Read + Send>>;
        let reader: &mut dyn PktSource = match &mut self.wire {
            Wire::Stream(reader, _) => reader,
            Wire::Http(http) => match http.advertisement()? {
                Greeting::Smart(body) => {
                    pkts = PktReader::new(body);
                    &mut pkts
                }
                Greeting::Other(body) => {
                    let head = http.file("HEAD")?;
                    let (hash, advertised) = dumb::read_advertised(body, head, self.refs_bytes_max)?;
                    (self.hash, self.early, self.lists_early, self.is_dumb) =
                        (hash, Some(advertised), true, true);
                    return Ok(());
                }
            },
        };
        let mut first = next_line(reader)?;
        // Over HTTP, v0 and v1 come after a service line and a flush (gitprotocol-http).
        if first.as_deref().is_some_and(|l| l.starts_with(b"# service=")) {
            while reader.next()?.is_some_and(|p| !matches!(p, Pkt::Flush)) {}
            first = next_line(reader)?;
        }
        let Some(first) = first else {
            self.lists_early = true;
            self.early = Some(Advertised::default());
            return Ok(());
        };
        if first == b"version 2" {
            self.version = 2;
            while let Some(line) = next_line(reader)? {
                if self.capabilities.len() >= CAPABILITY_LINES_MAX {
                    return Err(Error::Protocol("too many capabilities".to_owned()));
                }
                self.capabilities.push(String::from_utf8_lossy(&line).into_owned());
            }
        } else {
            let mut line = first;
            if line == b"version 1" {
                self.version = 1;
                line = next_line(reader)?
                    .ok_or_else(|| Error::Protocol("nothing follows 'version 1'".to_owned()))?;
            }
            let (head, capabilities) = match line.iter().position(|&c| c == 0) {
                Some(nul) => (line[..nul].to_vec(), String::from_utf8_lossy(&line[nul + 1..]).into_owned()),
                None => (line, String::new()),
            };
            self.capabilities =
                capabilities.split(' ').filter(|c| !c.is_empty()).map(str::to_owned).collect();
            let mut early = Early::new(hash_of(&self.capabilities)?, self.refs_bytes_max);
            early.add(&head)?;
            while let Some(line) = next_line(reader)? {
                early.add(&line)?;
            }
            let symref = self
                .capabilities
                .iter()
                .find_map(|c| c.strip_prefix("symref=HEAD:"))
                .map(|s| s.as_bytes().to_vec());
            self.shallow = std::mem::take(&mut early.shallow);
            self.lists_early = true;
            self.early = Some(early.finish(symref));
        }
        self.hash = hash_of(&self.capabilities)?;
        Ok(())
    }

    /// Lists the upstream's refs: in v2, those that start with one of `prefixes`, if there are any. In v0 and
    /// v1, lists all refs, and only once.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn ls_refs(&mut self, prefixes: &[&str]) -> Result<Advertised> {
        if self.lists_early {
            // The list is moved, not copied: it may have a million refs.
            return self
                .early
                .take()
                .ok_or_else(|| Error::Protocol("its refs were listed already".to_owned()));
        }
        let request = ls_refs_request(&self.capabilities, &self.agent, prefixes)?;
        match &mut self.wire {
            Wire::Stream(_, writer) => {
                writer.write_all(&request)?;
                writer.flush()?;
                self.read_refs()
            }
            Wire::Http(http) => {
                let mut pkts = PktReader::new(http.post(&request, &Pace::of_answer(&http.options))?);
                list_refs(&mut pkts, self.hash, self.refs_bytes_max)
            }
        }
    }

    /// Reads the answer to a request for refs.
    fn read_refs(&mut self) -> Result<Advertised> {
        match &mut self.wire {
            Wire::Stream(reader, _) => list_refs(reader, self.hash, self.refs_bytes_max),
            Wire::Http(_) => Err(Error::Protocol("nothing was asked for".to_owned())),
        }
    }

    /// Appends the capabilities that every v2 request carries.
    pub(crate) fn push_common(&self, request: &mut Vec<u8>) {
        push_common(&self.capabilities, &self.agent, self.hash, request);
    }
}

fn list_refs(reader: &mut dyn PktSource, hash: HashKind, bytes_max: u64) -> Result<Advertised> {
    let mut list = RefListing::new(hash, bytes_max);
    while let Some(line) = next_line(reader)? {
        list.add_v2(&line)?;
    }
    Ok(list.finish())
}

fn has(capabilities: &[String], capability: &str) -> bool {
    capabilities.iter().any(|c| c == capability || c.split_once('=').is_some_and(|(k, _)| k == capability))
}

/// Returns the value of a capability with several words, such as `fetch=shallow filter`.
fn value<'c>(capabilities: &'c [String], capability: &str) -> Option<&'c str> {
    capabilities.iter().find_map(|c| c.strip_prefix(capability)?.strip_prefix('='))
}

fn push_common(capabilities: &[String], agent: &str, hash: HashKind, request: &mut Vec<u8>) {
    if has(capabilities, "agent") {
        pktline::push(request, format!("agent={agent}\n").as_bytes());
    }
    if has(capabilities, "object-format") {
        pktline::push(request, format!("object-format={}\n", hash.name()).as_bytes());
    }
}

/// Returns the v2 `ls-refs` command (gitprotocol-v2), for a server with these capabilities.
fn ls_refs_request(capabilities: &[String], agent: &str, prefixes: &[&str]) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    pktline::push(&mut request, b"command=ls-refs\n");
    push_common(capabilities, agent, hash_of(capabilities)?, &mut request);
    pktline::push_delim(&mut request);
    pktline::push(&mut request, b"peel\n");
    pktline::push(&mut request, b"symrefs\n");
    if value(capabilities, "ls-refs").is_some_and(|v| v.split(' ').any(|w| w == "unborn")) {
        pktline::push(&mut request, b"unborn\n");
    }
    for prefix in prefixes {
        pktline::push(&mut request, format!("ref-prefix {prefix}\n").as_bytes());
    }
    pktline::push_flush(&mut request);
    Ok(request)
}

/// Returns the least number of bytes that a server with these capabilities sends first: lines may end without
/// a newline.
fn greeting_bytes(capabilities: &[String]) -> usize {
    let lines = ["version 2"].into_iter().chain(capabilities.iter().map(String::as_str));
    PKT_LEN_BYTES + lines.map(|line| PKT_LEN_BYTES + line.len()).sum::<usize>()
}

/// Returns the hash that the capabilities name; SHA-1 if none.
fn hash_of(capabilities: &[String]) -> Result<HashKind> {
    match capabilities.iter().find_map(|c| c.strip_prefix("object-format=")) {
        None => Ok(HashKind::Sha1),
        Some(name) => HashKind::from_name(name.as_bytes()).ok_or_else(|| {
            Error::Protocol(format!(
                "the upstream's object format '{}' is unknown",
                printable(name.as_bytes())
            ))
        }),
    }
}

/// A source of pkt-lines.
pub(crate) trait PktSource {
    fn next(&mut self) -> Result<Option<Pkt<'_>>>;
    /// Reads bytes without framing: servers without side-band send packs this way.
    fn read_raw(&mut self, buf: &mut [u8]) -> std::io::Result<usize>;
}

impl<R: Read> PktSource for PktReader<R> {
    fn next(&mut self) -> Result<Option<Pkt<'_>>> {
        Ok(self.next_pkt()?)
    }
    fn read_raw(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.get_mut().read(buf)
    }
}

impl<S: PktSource + ?Sized> PktSource for &mut S {
    fn next(&mut self) -> Result<Option<Pkt<'_>>> {
        (**self).next()
    }
    fn read_raw(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        (**self).read_raw(buf)
    }
}

/// Returns the next line; `None` at a flush or response end. An `ERR` line is the upstream's refusal.
pub(crate) fn next_line(reader: &mut dyn PktSource) -> Result<Option<Vec<u8>>> {
    match reader.next()? {
        None => Err(Error::HungUp("before the end of its answer")),
        Some(Pkt::Flush | Pkt::ResponseEnd) => Ok(None),
        Some(Pkt::Delim) => Err(Error::Protocol("a delimiter where a line should be".to_owned())),
        Some(line) => {
            let text = line.text();
            match text.strip_prefix(b"ERR ") {
                Some(said) => Err(Error::Remote(printable(said))),
                None => Ok(Some(text.to_vec())),
            }
        }
    }
}

/// A stream for reading and writing, of which only one happens at a time.
struct SharedStream<S>(Arc<std::sync::Mutex<S>>);

impl<S: Read> Read for SharedStream<S> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).read(buf)
    }
}

impl<S: Write> Write for SharedStream<S> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write(buf)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).flush()
    }
}
