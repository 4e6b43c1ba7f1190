//! The thread of all doors: it accepts connections and datagrams, and commits what comes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use weir_ground::thread::spawn;

use crate::doors::coalescing::Coalescing;
use crate::doors::connection::{LastSeen, LineConnection, LineRoom};
use crate::doors::gate::{DoorGate, GateVerdict, LineSender};
use crate::doors::idle::SWEEPS;
use crate::doors::intake::{BatchShare, Intake, IntakeCounts, SpoolWriter};
use crate::doors::lines::{LINE_BYTES_MAX, LineVerdict, judge};
use crate::line_stream::LineStream;
use crate::record::{ReceivedLine, now_ms};
use crate::spool::EventSpool;

/// How long no connection is accepted after the system had no descriptor for one.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
/// How long a server that is to stop takes what has arrived, and then answers.
const LAST_CALL: Duration = Duration::from_millis(50);
/// Time between lines of the log about senders that cannot be accepted.
const TOLD_EVERY: Duration = Duration::from_secs(30);
/// How long datagrams wait under load before the thread takes them: the system keeps few.
const DATAGRAMS_WAIT: Duration = Duration::from_millis(5);
/// The memory that weir asks the system for, to keep datagrams in.
const DATAGRAMS_BYTES: usize = 4 << 20;
/// The length of the largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// An open socket on which events come in.
#[derive(Debug)]
pub enum EventDoor {
    /// Lines over TCP.
    Tcp(std::net::TcpListener),
    /// Lines over a Unix socket.
    Unix(std::os::unix::net::UnixListener),
    /// Lines in datagrams, which are not acknowledged.
    Udp(std::net::UdpSocket),
}

impl EventDoor {
    /// Returns another handle of the same socket: it stays open until both are closed.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<EventDoor> {
        Ok(match self {
            EventDoor::Tcp(socket) => EventDoor::Tcp(socket.try_clone()?),
            EventDoor::Unix(socket) => EventDoor::Unix(socket.try_clone()?),
            EventDoor::Udp(socket) => EventDoor::Udp(socket.try_clone()?),
        })
    }
}

/// How events are taken.
#[derive(Clone, Debug)]
pub struct EventServerOptions {
    /// The least time between two commits; a single event is committed at once.
    pub commit_interval: Duration,
    /// The maximum number of connections.
    pub connections_max: usize,
    /// The maximum number of connections of one IP address.
    pub connections_per_address_max: usize,
    /// How long a connection may say nothing; for ever, without.
    pub idle_timeout: Option<Duration>,
    /// Who may send lines.
    pub gate: DoorGate,
}

impl Default for EventServerOptions {
    fn default() -> EventServerOptions {
        EventServerOptions {
            commit_interval: Duration::from_millis(50),
            connections_max: 16_384,
            connections_per_address_max: 16_384,
            idle_timeout: Some(Duration::from_secs(3600)),
            gate: DoorGate::default(),
        }
    }
}

/// A running server of doors. When it is dropped, it accepts no more, commits what it has, and ends.
pub struct EventServer {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl EventServer {
    /// Starts to take events at `doors` into `spool`, and to count them in `counts`.
    ///
    /// # Errors
    /// If a thread or the runtime cannot be started, or a socket cannot be used.
    pub fn start(
        doors: Vec<EventDoor>,
        spool: EventSpool,
        options: EventServerOptions,
        counts: Arc<IntakeCounts>,
    ) -> io::Result<EventServer> {
        let has_datagrams = doors.iter().any(|door| matches!(door, EventDoor::Udp(_)));
        let wait_max = if has_datagrams { DATAGRAMS_WAIT } else { options.commit_interval };
        let coalescing = Arc::new(Coalescing::new(wait_max));
        let of_thread = coalescing.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || of_thread.before_wait())
            .build()?;
        let doors = {
            let _entered = runtime.enter();
            doors.into_iter().map(OpenDoor::of).collect::<io::Result<Vec<_>>>()?
        };
        let writer = SpoolWriter::start(spool)?;
        let stop = Arc::new(Notify::new());
        let own_stop = stop.clone();
        let thread = spawn("events", move || {
            let intake = Intake::new(options.commit_interval, counts, coalescing);
            let local = LocalSet::new();
            local.block_on(&runtime, run(doors, intake, writer, options, own_stop));
        })?;
        Ok(EventServer { stop, thread: Some(thread) })
    }
}

impl Drop for EventServer {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum OpenDoor {
    Tcp(TcpListener),
    Unix(UnixListener),
    Udp(UdpSocket),
}

impl OpenDoor {
    fn of(door: EventDoor) -> io::Result<OpenDoor> {
        Ok(match door {
            EventDoor::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                OpenDoor::Tcp(TcpListener::from_std(socket)?)
            }
            EventDoor::Unix(socket) => {
                socket.set_nonblocking(true)?;
                OpenDoor::Unix(UnixListener::from_std(socket)?)
            }
            EventDoor::Udp(socket) => {
                socket.set_nonblocking(true)?;
                // As much as the system allows.
                let _ = SockRef::from(&socket).set_recv_buffer_size(DATAGRAMS_BYTES);
                OpenDoor::Udp(UdpSocket::from_std(socket)?)
            }
        })
    }

    /// Waits for a connection. Returns it with its sender, and the sender's address if it has one.
    async fn accept(&self, gate: &DoorGate) -> io::Result<(LineStream, LineSender, Option<IpAddr>)> {
        match self {
            OpenDoor::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let sender = LineSender::new(format!("tcp {peer}"), !gate.needs_tokens());
                Ok((LineStream::Tcp(stream), sender, Some(peer.ip().to_canonical())))
            }
            OpenDoor::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let found = stream.peer_cred().ok();
                let peer = found.map_or_else(
                    || "unix".to_owned(),
                    |peer| {
                        let pid = peer.pid().map_or(String::new(), |pid| format!(" pid={pid}"));
                        format!("unix uid={}{pid}", peer.uid())
                    },
                );
                let is_known = gate.lets_in(found.map(|peer| peer.uid()));
                Ok((LineStream::Unix(stream), LineSender::new(peer, is_known), None))
            }
            OpenDoor::Udp(_) => std::future::pending().await,
        }
    }
}

/// The connections that are open.
#[derive(Default)]
struct OpenConnections {
    seen: HashMap<u64, Rc<LastSeen>>,
    next: u64,
    by_address: HashMap<IpAddr, usize>,
}

/// Serves `doors` until told to stop.
async fn run(
    doors: Vec<OpenDoor>,
    intake: Rc<Intake>,
    writer: SpoolWriter,
    options: EventServerOptions,
    stop: Arc<Notify>,
) {
    let room = LineRoom::new(intake.clone(), options.gate.clone());
    let options = Rc::new(options);
    let open = Rc::new(RefCell::new(OpenConnections::default()));
    let committer = {
        let intake = intake.clone();
        spawn_local(async move { intake.commit_all(writer).await })
    };
    let mut tasks = Vec::new();
    for door in doors {
        let (room, open, options) = (room.clone(), open.clone(), options.clone());
        tasks.push(spawn_local(async move {
            match &door {
                OpenDoor::Udp(socket) => take_datagrams(socket, &room).await,
                _ => accept_all(&door, &room, &open, &options).await,
            }
        }));
    }
    if let Some(idle) = options.idle_timeout {
        let (room, open) = (room.clone(), open.clone());
        tasks.push(spawn_local(async move { sweep(&room, &open, idle / SWEEPS).await }));
    }
    stop.notified().await;
    // What has arrived is taken, and then committed; senders get the answers that they read.
    tokio::time::sleep(LAST_CALL).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    intake.end();
    let _ = committer.await;
    tokio::time::sleep(LAST_CALL).await;
}

/// Accepts connections for ever.
async fn accept_all(
    door: &OpenDoor,
    room: &Rc<LineRoom>,
    open: &Rc<RefCell<OpenConnections>>,
    options: &EventServerOptions,
) {
    let mut told: Option<tokio::time::Instant> = None;
    loop {
        let (stream, sender, address) = match door.accept(&room.gate).await {
            Ok(accepted) => accepted,
            Err(e) => {
                if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                    told = Some(tokio::time::Instant::now());
                    tracing::warn!("cannot accept senders of events: {e}");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let counts = &room.intake.counts;
        let of_address = address.and_then(|a| open.borrow().by_address.get(&a).copied()).unwrap_or(0);
        let are_open = open.borrow().seen.len();
        if are_open >= options.connections_max || of_address >= options.connections_per_address_max {
            IntakeCounts::add(&counts.refused, 1);
            tracing::debug!("refused {}: too many connections", sender.peer);
            continue;
        }
        let seen = Rc::new(LastSeen::default());
        room.sweep.hear(&seen.heard);
        let key = {
            let mut open = open.borrow_mut();
            open.next += 1;
            let key = open.next;
            open.seen.insert(key, seen.clone());
            if let Some(address) = address {
                *open.by_address.entry(address).or_default() += 1;
            }
            key
        };
        IntakeCounts::add(&counts.connections, 1);
        let mut connection = LineConnection::new(stream, sender, room.clone());
        let (room, open) = (room.clone(), open.clone());
        spawn_local(async move {
            if let Err(e) = connection.run(&seen).await {
                tracing::debug!("a sender of events went away: {e}");
            }
            room.intake.counts.connections.fetch_sub(1, Ordering::Relaxed);
            let mut open = open.borrow_mut();
            open.seen.remove(&key);
            if let Some(address) = address
                && let Some(count) = open.by_address.get_mut(&address)
            {
                *count -= 1;
                if *count == 0 {
                    open.by_address.remove(&address);
                }
            }
        });
    }
}

/// Takes lines in datagrams for ever. What finds no room is dropped, and counted.
async fn take_datagrams(socket: &UdpSocket, room: &Rc<LineRoom>) {
    let intake = &room.intake;
    let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let (length, peer) = match socket.recv_from(&mut bytes).await {
            Ok(received) => received,
            Err(e) => {
                tracing::warn!("cannot receive datagrams of events: {e}");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let mut sender = LineSender::new(format!("udp {peer}"), !room.gate.needs_tokens());
        intake.came(length);
        let at_ms = now_ms();
        for line in bytes[..length].split(|&byte| byte == b'\n') {
            // The first line of a datagram has the token.
            match room.gate.ask(line, &mut sender) {
                None => {}
                Some(GateVerdict::Known) => continue,
                Some(GateVerdict::Refused(_)) => {
                    IntakeCounts::add(&intake.counts.bad, 1);
                    break;
                }
            }
            match judge(line) {
                LineVerdict::Event { line, .. } if line.len() <= LINE_BYTES_MAX => {
                    let received = ReceivedLine { at_ms, peer: &sender.peer, line };
                    if intake.put(&received, &mut BatchShare::default()).is_none() {
                        IntakeCounts::add(&intake.counts.dropped, 1);
                    }
                }
                LineVerdict::Event { .. } | LineVerdict::Bad { .. } => {
                    IntakeCounts::add(&intake.counts.bad, 1);
                }
                LineVerdict::Empty | LineVerdict::Ping | LineVerdict::Quit | LineVerdict::Http => {}
            }
        }
    }
}

/// Ends connections that have said nothing for eight sweeps.
async fn sweep(room: &Rc<LineRoom>, open: &Rc<RefCell<OpenConnections>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        room.sweep.begin();
        for seen in open.borrow().seen.values().filter(|seen| room.sweep.is_idle(&seen.heard)) {
            seen.close.notify_one();
        }
    }
}
