//! git:// (gitprotocol-pack, "Git Transport"): one small task a connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use weir_git::pktline::{self, Pkt};
use weir_upload::{Features, Options, Step, UploadPack, Version, Work, WorkOutcome, parse_daemon_request};

use crate::cache::{Found, Locator, OpenError, Opened, RepoCache};
use crate::directory::Presentation;
use crate::send::Sender;
use crate::shards::Shards;

/// Bytes read at a time; also the most a first line may have.
const READ_BYTES: usize = 8 << 10;
const FIRST_LINE_BYTES_MAX: usize = 8 << 10;
const KEEPALIVE: Duration = Duration::from_secs(5);
const BACKLOG: i32 = 4096;
/// Chunks of a computed pack between the thread that makes it and the socket.
const CHUNKS_MAX: usize = 4;

/// What clients may use of a server.
#[derive(Clone, Debug)]
pub struct DaemonLimits {
    /// Time to send the first line.
    pub init_timeout: Duration,
    /// Time without progress in either direction.
    pub idle_timeout: Duration,
    /// Bytes a second a client must take at least; 0 for no limit.
    pub bytes_per_second_min: u64,
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once from one address.
    pub connections_per_address_max: usize,
    /// Packs computed at once; more wait.
    pub computed_max: usize,
    /// Time that running conversations get when the server is told to stop.
    pub drain_timeout: Duration,
}

impl Default for DaemonLimits {
    fn default() -> Self {
        DaemonLimits {
            init_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            bytes_per_second_min: 1024,
            connections_max: 8192,
            connections_per_address_max: 1024,
            computed_max: std::thread::available_parallelism().map_or(2, usize::from) * 2,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Which protocol a socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// git://
    Git,
    /// http://
    Http,
}

const TOO_MANY_HTTP: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Where answers go.
pub(crate) trait Out: Send {
    /// Sends bytes.
    fn give(&mut self, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send;
    /// Time from here on is the client's again.
    fn restart(&mut self) {}
}

impl Out for Sender<'_> {
    async fn give(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.bytes(&bytes).await
    }
    fn restart(&mut self) {
        Sender::restart(self);
    }
}

/// A server of repositories.
pub struct Daemon {
    /// Finds repositories.
    pub locator: Arc<dyn Locator>,
    /// Keeps them open.
    pub cache: RepoCache,
    /// How to serve.
    pub options: Arc<Options>,
    /// Limits.
    pub limits: DaemonLimits,
    addresses: Mutex<HashMap<IpAddr, usize>>,
    connections: AtomicUsize,
    computing: Arc<Semaphore>,
    shards: Shards,
}

impl Daemon {
    /// A server of what `locator` finds, with a thread a processor for its connections.
    ///
    /// # Errors
    /// Of the system.
    pub fn new(locator: Arc<dyn Locator>, options: Options, limits: DaemonLimits, presentation: Presentation) -> io::Result<Daemon> {
        Ok(Daemon {
            locator,
            cache: RepoCache::new(1024, presentation),
            options: Arc::new(options),
            computing: Arc::new(Semaphore::new(limits.computed_max.max(1))),
            limits,
            addresses: Mutex::default(),
            connections: AtomicUsize::new(0),
            shards: Shards::start(std::thread::available_parallelism().map_or(2, usize::from))?,
        })
    }

    /// Binds a listening socket. Needs to be called inside a runtime.
    ///
    /// # Errors
    /// Of the system; the address is in use, most often.
    pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    }

    /// Serves connections until `stop` resolves, then lets those that run come to their end for a while.
    pub async fn run(self: Arc<Self>, listener: TcpListener, door: Door, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, peer)) => self.clone().admit(stream, peer, door),
                Err(e) => {
                    // Out of descriptors, most often: wait for some to be closed rather than spin.
                    tracing::warn!("cannot accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        let end = Instant::now() + self.limits.drain_timeout;
        while self.connections.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, door: Door) {
        // From here on it belongs to one shard, whose runtime watches it.
        let Ok(stream) = stream.into_std() else { return };
        let all = self.connections.fetch_add(1, Ordering::Relaxed);
        let from_here = {
            let mut addresses = self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let n = addresses.entry(peer.ip()).or_default();
            *n += 1;
            *n
        };
        let admitted = all < self.limits.connections_max && from_here <= self.limits.connections_per_address_max;
        let shard = self.shards.next().clone();
        shard.spawn(async move {
            let guard = Admission { daemon: &self, address: peer.ip() };
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let ended = match door {
                _ if !admitted => {
                    tracing::info!(%peer, "refused: too many connections");
                    let mut refusal = Vec::new();
                    pktline::push(&mut refusal, b"ERR weir: too many connections; try again in a minute");
                    let refusal = if door == Door::Git { &refusal } else { TOO_MANY_HTTP };
                    Sender::new(&stream, Duration::from_secs(1), 0).bytes(refusal).await
                }
                Door::Git => self.converse(&stream, peer).await,
                Door::Http => self.clone().converse_http(stream, peer).await,
            };
            if let Err(e) = ended
                && !matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            {
                tracing::info!(%peer, "connection ended: {e}");
            }
            drop(guard);
        });
    }

    async fn converse(self: &Arc<Self>, stream: &TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let started = Instant::now();
        let mut sender = Sender::new(stream, self.limits.idle_timeout, self.limits.bytes_per_second_min);
        let mut input = Vec::new();
        let first = tokio::time::timeout(self.limits.init_timeout, first_line(stream, &mut input)).await;
        let Ok(first) = first else { return Err(io::Error::new(io::ErrorKind::TimedOut, "no request came")) };
        let Some((line, used)) = first? else { return Ok(()) };
        let Some(request) = parse_daemon_request(&line) else {
            return self.refuse(&mut sender, "weir: not a git request; this is a read-only git server").await;
        };
        let found = match self.locator.find(&request, peer) {
            Ok(found) => found,
            Err(why) => return self.refuse(&mut sender, &why).await,
        };
        let opened = self.opened(found).await?;
        let Opened { repo, features } = match opened {
            Ok(opened) => opened,
            Err(OpenError::NotFound) => return self.refuse(&mut sender, &format!("weir: no such repository: {}", request.path)).await,
            Err(OpenError::Broken(e)) => {
                tracing::error!(path = %request.path, "cannot open: {e}");
                return self.refuse(&mut sender, "weir: the repository cannot be read; its keeper finds the reason in the log").await;
            }
        };
        let mut machine = UploadPack::new(repo, Version::from_number(request.version), self.options_with(features));
        if used < input.len() {
            let _ = machine.feed(&input[used..]);
        }
        drop(input);
        let result = self.drive(&mut machine, &mut sender).await;
        tracing::debug!(%peer, path = %request.path, version = request.version, bytes = sender.sent, elapsed = ?started.elapsed(), "served");
        result
    }

    /// The repository at `found`, opened where blocking is allowed if it is not open.
    pub(crate) async fn opened(self: &Arc<Self>, found: Found) -> io::Result<Result<Opened, OpenError>> {
        if let Some(opened) = self.cache.get(&found) {
            return Ok(Ok(opened));
        }
        let daemon = self.clone();
        let opening = tokio::task::spawn_blocking(move || daemon.cache.open(&found)).await;
        opening.map_err(|_| io::Error::other("a repository could not be opened: this is a defect of weir's"))
    }

    pub(crate) fn options_with(&self, features: Option<Features>) -> Arc<Options> {
        match features {
            None => self.options.clone(),
            Some(features) => Arc::new(Options { features, ..Options::clone(&self.options) }),
        }
    }

    async fn refuse(&self, sender: &mut Sender<'_>, why: &str) -> io::Result<()> {
        let mut out = Vec::new();
        let shown: String = why.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        pktline::push(&mut out, format!("ERR {shown}").as_bytes());
        sender.bytes(&out).await
    }

    async fn drive(&self, machine: &mut UploadPack, sender: &mut Sender<'_>) -> io::Result<()> {
        loop {
            match machine.step() {
                Step::Send(bytes) => sender.bytes(&bytes).await?,
                Step::SendRegion(region, framing) => sender.region(&region, framing).await?,
                Step::Work(work) => {
                    let outcome = self.work(work, sender).await?;
                    machine.finish(outcome);
                }
                Step::Read => {
                    let read = tokio::time::timeout(self.limits.idle_timeout, async {
                        loop {
                            sender.stream.readable().await?;
                            quick_ack(sender.stream);
                            // On the stack: a connection that waits owns no buffer.
                            let mut buf = [0; READ_BYTES];
                            match sender.stream.try_read(&mut buf) {
                                Ok(n) => {
                                    // A refusal is queued for the client; the machine then ends.
                                    let _ = machine.feed(&buf[..n]);
                                    return Ok::<usize, io::Error>(n);
                                }
                                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                                Err(e) => return Err(e),
                            }
                        }
                    });
                    match read.await {
                        Ok(Ok(0)) => return Ok(()),
                        Ok(Ok(_)) => {}
                        Ok(Err(e)) => return Err(e),
                        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")),
                    }
                    sender.restart();
                }
                Step::Done => return Ok(()),
            }
        }
    }

    /// Runs `work` on a thread of its own and sends what it yields.
    pub(crate) async fn work(&self, work: Work, out: &mut impl Out) -> io::Result<WorkOutcome> {
        let keepalive = work.keepalive();
        // The end of a clone that is sent already waits for nobody's packs.
        let is_computed = work.is_heavy();
        let permit = loop {
            if !is_computed {
                break None;
            }
            match tokio::time::timeout(KEEPALIVE, self.computing.clone().acquire_owned()).await {
                Ok(permit) => break Some(permit.expect("never closed")),
                Err(_) => {
                    if let Some(keepalive) = keepalive.filter(|k| !k.after_first) {
                        out.give(keepalive.bytes.to_vec()).await?;
                    }
                    out.restart();
                }
            }
        };
        let (chunks_in, mut chunks) = mpsc::channel::<Vec<u8>>(CHUNKS_MAX);
        let running = tokio::task::spawn_blocking(move || {
            // Held until the work is over, though the client may be gone before.
            let _permit = permit;
            // A panic in here ends this one conversation: the task reports it as an error.
            work.run(&mut |bytes| chunks_in.blocking_send(bytes).map_err(|_| io::ErrorKind::BrokenPipe.into()))
        });
        let mut has_begun = false;
        loop {
            match tokio::time::timeout(KEEPALIVE, chunks.recv()).await {
                Ok(Some(chunk)) => {
                    has_begun = true;
                    out.give(chunk).await?;
                }
                Ok(None) => break,
                Err(_) => {
                    if let Some(keepalive) = keepalive.filter(|k| has_begun || !k.after_first) {
                        out.give(keepalive.bytes.to_vec()).await?;
                    }
                    out.restart();
                }
            }
        }
        running.await.map_err(|_| io::Error::other("an answer could not be made: this is a defect of weir's"))
    }
}

/// Counts a connection out again.
struct Admission<'d> {
    daemon: &'d Daemon,
    address: IpAddr,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.daemon.connections.fetch_sub(1, Ordering::Relaxed);
        let mut addresses = self.daemon.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(n) = addresses.get_mut(&self.address) {
            *n -= 1;
            if *n == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

/// Stock git sends a request in many small packets with Nagle on: unless each is acknowledged at once, the next waits
/// 40 ms for our delayed acknowledgment. The kernel forgets the setting, so it is said before every read.
fn quick_ack(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_tcp_quickack(true);
}

/// Reads until the first pkt-line is there; gives it, and how much of `input` it took.
async fn first_line(stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<Option<(Vec<u8>, usize)>> {
    loop {
        match pktline::decode(input)? {
            Some((Pkt::Line(line), used)) => return Ok(Some((line.to_vec(), used))),
            Some(_) => return Ok(None),
            None if input.len() >= FIRST_LINE_BYTES_MAX => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the first line is too long"));
            }
            None => {}
        }
        stream.readable().await?;
        quick_ack(stream);
        let mut buf = [0; READ_BYTES];
        match stream.try_read(&mut buf) {
            Ok(0) => return Ok(None),
            Ok(n) => input.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}
