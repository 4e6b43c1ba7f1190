//! The server: admits clients, finds and opens repositories, and shuts down.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_git::pktline;
use weir_upload::{Features, UploadOptions};

use crate::access::cache::RepoCache;
use crate::access::clones::KeptClones;
use crate::access::locate::Locator;
use crate::access::presentation::Presentation;
use crate::access::repositories::ServedRepositories;
use crate::access_log::AccessLog;
use crate::counts::ServingCounts;
use crate::limits::admission::{TurnLimits, Turns, less, network_of};
use crate::limits::answer_spool::Answers;
use crate::limits::descriptors::{descriptors_max, descriptors_open};
use crate::limits::log_limit::Notices;
use crate::limits::room::RequestRoom;
use crate::request_log::RequestSinks;
use crate::server::handler::HttpHandler;
use crate::sockets::proxies::{TrustedProxies, read_proxy_header};
use crate::sockets::send::Sender;
use crate::sockets::shards::Shards;
use crate::sockets::socket::{Idle, Listener, Socket, WatchedListener};
use crate::sockets::tls::Tls;
use crate::trace_context::RequestTracer;

/// The limits of what clients may use of a server.
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
    /// Packs computed at once for one address.
    pub computed_per_address_max: usize,
    /// Packs computed at once of one repository.
    pub computed_per_repository_max: usize,
    /// Requests that may wait for a pack to be computed; more are refused.
    pub queue_max: usize,
    /// How long a request may wait.
    pub queue_timeout: Duration,
    /// Bytes of computed packs that are kept for clients that ask for the same pack.
    pub kept_bytes_max: u64,
    /// The folder in which they are kept.
    pub scratch: PathBuf,
    /// Time that running conversations get when the server stops.
    pub drain_timeout: Duration,
}

impl Default for DaemonLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        DaemonLimits {
            init_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            bytes_per_second_min: 1024,
            connections_max: 8192,
            connections_per_address_max: 256,
            computed_max: cores * 2,
            computed_per_address_max: cores,
            computed_per_repository_max: cores * 2,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(60),
            kept_bytes_max: 1 << 30,
            scratch: std::env::temp_dir(),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Which protocol a socket speaks.
#[derive(Clone, Debug)]
pub enum Door {
    /// git://
    Git,
    /// http://
    Http,
    /// https://
    Https(Tls),
}

/// Unfinished packs that may wait for slow clients, for each pack that may be computed: each of them keeps
/// its sources in memory.
const AWAY_A_TURN: usize = 8;
/// Long lists of refs that may be written at a time, for each pack that may be computed.
const LISTS_A_TURN: usize = 4;

/// Descriptors for what a server opens later: its threads, and the catalog.
const DESCRIPTORS_KEPT: usize = 24;
/// Archives that are kept open.
const OPEN_MAX: usize = 1024;

const TOO_MANY_HTTP: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nConnection: close\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 44\r\n\r\n\
    too many connections; try again in a minute\n";

/// A server of repositories.
pub struct Daemon {
    pub(crate) repositories: Arc<ServedRepositories>,
    /// How to serve.
    pub options: Arc<UploadOptions>,
    /// Limits.
    pub limits: DaemonLimits,
    pub(crate) answers: Arc<Answers>,
    pub(crate) turns: Arc<Turns>,
    /// Turns for writing long lists of refs.
    pub(crate) lists: Arc<Turns>,
    /// Turns for what handlers read.
    pub(crate) reads: Arc<Turns>,
    /// Turns for what handlers compute.
    pub(crate) computes: Arc<Turns>,
    /// Turns for what clients choose to have computed.
    pub(crate) explorations: Arc<Turns>,
    pub(crate) clones: KeptClones,
    /// Memory for what clients ask.
    pub(crate) request_room: Arc<RequestRoom>,
    /// Set when the server accepts no more connections.
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) notices: Notices,
    pub(crate) sinks: RequestSinks,
    pub(crate) proxies: TrustedProxies,
    /// Answer requests over HTTP that are not git's.
    pub(crate) handlers: Vec<Arc<dyn HttpHandler>>,
    addresses: Mutex<HashMap<IpAddr, usize>>,
    pub(crate) counts: Arc<ServingCounts>,
    shards: Shards,
}

impl Daemon {
    /// Returns a server for what `locator` finds, with one thread per processor for its connections.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(
        locator: Arc<dyn Locator>,
        options: UploadOptions,
        mut limits: DaemonLimits,
        presentation: Presentation,
    ) -> io::Result<Daemon> {
        // Half of the descriptors are for connections, a quarter for archives. Spools, programs, the catalog
        // and visits have the rest.
        let descriptors = descriptors_max();
        let free = descriptors.saturating_sub(descriptors_open() + DESCRIPTORS_KEPT);
        if limits.connections_max > free / 2 {
            tracing::warn!(
                "no more than {} connections at once: this process may have {descriptors} files open",
                (free / 2).max(1)
            );
            limits.connections_max = (free / 2).max(1);
        }
        let turns = TurnLimits {
            all: limits.computed_max.max(1),
            per_address: limits.computed_per_address_max.max(1),
            per_repository: limits.computed_per_repository_max.max(1),
            queue: limits.queue_max,
            queue_per_address: limits.queue_max.div_ceil(4),
            wait: limits.queue_timeout,
            away: limits.computed_max.max(1) * AWAY_A_TURN,
            away_per_address: limits.computed_per_address_max.max(1) * AWAY_A_TURN / 2,
        };
        // Opening costs processor time, too. The limit per address leaves some of it for others.
        let opens = TurnLimits {
            all: limits.computed_max.max(2),
            per_address: limits.computed_max.div_ceil(2).max(1),
            // Whatever waits is a connection, or a request on a connection: those are limited already.
            queue: usize::MAX,
            queue_per_address: usize::MAX,
            away: 0,
            away_per_address: 0,
            ..turns.clone()
        };
        // As many as there are processors, by default: more would be no faster, and keep others waiting.
        let half = TurnLimits {
            all: limits.computed_max.div_ceil(2).max(1),
            per_address: limits.computed_per_address_max.div_ceil(2).max(1),
            per_repository: usize::MAX,
            ..turns.clone()
        };
        Ok(Daemon {
            repositories: Arc::new(ServedRepositories::new(
                locator,
                RepoCache::new(OPEN_MAX.min(free / 4).max(1), presentation),
                opens,
            )),
            options: Arc::new(options),
            answers: Arc::new(Answers::new(limits.scratch.clone(), limits.kept_bytes_max)),
            lists: Turns::new(TurnLimits {
                all: limits.computed_max.max(1) * LISTS_A_TURN,
                per_address: limits.computed_per_address_max.max(1) * LISTS_A_TURN / 2,
                per_repository: usize::MAX,
                away_per_address: turns.away_per_address / 2,
                ..turns.clone()
            }),
            reads: Turns::new(TurnLimits { per_repository: usize::MAX, ..turns.clone() }),
            explorations: Turns::new(half.clone()),
            computes: Turns::new(half),
            turns: Turns::new(turns),
            clones: KeptClones::new(limits.scratch.clone()),
            request_room: Arc::default(),
            stopping: watch::Sender::new(false),
            notices: Notices::default(),
            sinks: RequestSinks::default(),
            proxies: TrustedProxies::default(),
            handlers: Vec::new(),
            limits,
            addresses: Mutex::default(),
            counts: Arc::default(),
            shards: Shards::start(std::thread::available_parallelism().map_or(2, usize::from))?,
        })
    }

    /// Returns the server with `proxies` in front of it.
    #[must_use]
    pub fn behind(self, proxies: TrustedProxies) -> Daemon {
        Daemon { proxies, ..self }
    }

    /// Returns the server with `handler` for requests over HTTP that are not git's, after the handlers that
    /// it has.
    #[must_use]
    pub fn with_handler(mut self, handler: Arc<dyn HttpHandler>) -> Daemon {
        self.handlers.push(handler);
        self
    }

    /// Returns the server, which writes a line to `log` for each request.
    #[must_use]
    pub fn with_access_log(mut self, log: AccessLog) -> Daemon {
        self.sinks.log = Some(Arc::new(log));
        self
    }

    /// Returns the server, which gives `tracer` each request that has ended.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Arc<dyn RequestTracer>) -> Daemon {
        self.sinks.tracer = Some(tracer);
        self
    }

    /// Resolves when each thread that serves connections has answered: at once, unless one is stuck.
    pub async fn respond(&self) {
        self.shards.respond().await;
    }

    /// Returns the server, which counts in `counts` what it does.
    #[must_use]
    pub fn counting(self, counts: Arc<ServingCounts>) -> Daemon {
        Daemon { counts, ..self }
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed) as usize
    }

    /// Serves connections until `stop` resolves, then waits up to the drain timeout for running ones to end.
    pub async fn run(self: Arc<Self>, listener: Listener, door: Door, stop: impl Future<Output = ()>) {
        let listener = Arc::new(listener);
        let accept = |shard| self.clone().accept(listener.clone(), door.clone(), shard);
        let mut accepting = self.shards.on_each(accept);
        stop.await;
        accepting.shutdown().await;
        drop(listener);
        self.stopping.send_replace(true);
        let end = Instant::now() + self.limits.drain_timeout;
        while self.connections() > 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Accepts connections on thread `shard`, without end.
    async fn accept(self: Arc<Self>, listener: Arc<Listener>, door: Door, shard: usize) {
        let pause = async |e: io::Error| {
            // Out of descriptors, most often: wait for some to be closed rather than spin.
            self.notices.say(None, "cannot accept a connection", &e);
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let watched = loop {
            match WatchedListener::new(listener.clone()) {
                Ok(watched) => break watched,
                Err(e) => pause(e).await,
            }
        };
        loop {
            match watched.accept().await {
                Ok((stream, peer)) => self.clone().admit(stream, peer, door.clone(), shard),
                Err(e) => pause(e).await,
            }
        }
    }

    fn admit(self: Arc<Self>, stream: Idle, peer: Option<SocketAddr>, door: Door, shard: usize) {
        let all = self.counts.connections.fetch_add(1, Ordering::Relaxed) as usize;
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let connection = Connection(self.clone());
        // If a proxy sends a header that names the client, the client is counted after the header.
        let counted =
            if self.proxies.announces(peer) { Ok(None) } else { self.count_connection(peer, &door) };
        let daemon = self.clone();
        self.shards.serve(shard, async move {
            let (_connection, address) = (connection, peer.map(network_of));
            // From here on the connection belongs to one shard, whose runtime watches it.
            let Ok(stream) = Socket::enter(stream) else { return };
            let admitted = counted.ok().filter(|_| all < daemon.limits.connections_max);
            if let Err(e) = daemon.clone().attend(stream, peer, door, admitted).await
                && !matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            {
                daemon.notices.say(address, "connection ended", &e);
            }
        });
    }

    /// Counts a connection of `peer`, unless it comes from a proxy over HTTP, whose clients are counted by
    /// request.
    fn count_connection(
        self: &Arc<Self>,
        peer: Option<SocketAddr>,
        door: &Door,
    ) -> Result<Option<Counted>, TooMany> {
        let is_by_request = !matches!(door, Door::Git) && self.proxies.trusts(peer);
        if is_by_request { Ok(None) } else { self.count(peer).map(Some) }
    }

    /// Counts a connection of `peer`, or a request that a proxy passes on, until the returned value is
    /// dropped.
    ///
    /// # Errors
    /// If the network of `peer` has too many already.
    pub(crate) fn count(self: &Arc<Self>, peer: Option<SocketAddr>) -> Result<Counted, TooMany> {
        let address = peer.map(network_of);
        let Some(network) = address else { return Ok(Counted { daemon: self.clone(), address }) };
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let n = addresses.entry(network).or_default();
        if *n >= self.limits.connections_per_address_max {
            return Err(TooMany);
        }
        *n += 1;
        Ok(Counted { daemon: self.clone(), address })
    }

    async fn attend(
        self: Arc<Self>,
        stream: Socket,
        mut peer: Option<SocketAddr>,
        door: Door,
        mut admitted: Option<Option<Counted>>,
    ) -> io::Result<()> {
        if admitted.is_some() && self.proxies.announces(peer) {
            let header = tokio::time::timeout(self.limits.init_timeout, read_proxy_header(&stream)).await;
            let Ok(header) = header else {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no header of the PROXY protocol came"));
            };
            peer = Some(header?);
            admitted = self.count_connection(peer, &door).ok();
        }
        let Some(_counted) = admitted else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            self.notices.say(peer.map(|p| p.ip()), "refused", &"too many connections");
            let mut refusal = Vec::new();
            match door {
                Door::Git => {
                    pktline::push(&mut refusal, b"ERR weir: too many connections; try again in a minute")
                }
                Door::Http => refusal.extend_from_slice(TOO_MANY_HTTP),
                // A TLS handshake only to refuse would cost more than an answer.
                Door::Https(_) => {}
            }
            return Sender::new(&stream, Duration::from_secs(1), 0).bytes(&refusal).await;
        };
        match door {
            // Boxed: a future is as large as its largest part, and that of a connection is moved a few times.
            Door::Git => Box::pin(self.converse(&stream, peer)).await,
            Door::Http => Box::pin(self.converse_http(stream, peer)).await,
            Door::Https(tls) => Box::pin(self.converse_https(stream, peer, &tls)).await,
        }
    }

    /// Returns the options for a repository that clients know as `path`.
    pub(crate) fn options_with(&self, features: Option<Features>, path: &str) -> Arc<UploadOptions> {
        let notice = self.repositories.notice(path);
        if features.is_none() && notice.is_none() {
            return self.options.clone();
        }
        let options = UploadOptions::clone(&self.options);
        Arc::new(UploadOptions { features: features.unwrap_or(options.features), notice, ..options })
    }
}

/// The error that an address has as many connections as it may have.
pub(crate) struct TooMany;

/// A connection that is counted until this is dropped.
struct Connection(Arc<Daemon>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection or request that is counted for its address until this is dropped.
pub(crate) struct Counted {
    daemon: Arc<Daemon>,
    address: Option<IpAddr>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            less(&mut self.daemon.addresses.lock().unwrap_or_else(PoisonError::into_inner), &address);
        }
    }
}
