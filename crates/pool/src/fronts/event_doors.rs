//! Opens the doors for events that the settings name.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use weir_events::{
    EventCommitter, EventDoor, EventServer, EventServerOptions, EventSpool, SpoolError, SpoolOptions,
};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_serve::{Address, ListenAddress, Listener, raise_descriptor_limit};

use crate::error::{Error, Result};
use crate::fronts::webhooks::IntakeSender;
use crate::running::{Counters, EventReceiver, Pool};

/// The folder of the spool in a pool.
const SPOOL_NAME: &str = "events";
/// The folder of the spool for webhooks, and how many processes of a pool can have one: the others are
/// `webhooks-2` and so on.
const WEBHOOK_SPOOL_NAME: &str = "webhooks";
const WEBHOOK_SPOOLS_MAX: u32 = 16;
/// The descriptors that are kept for files, the database and other clients.
const DESCRIPTORS_KEPT: usize = 128;
/// How often to try to open doors that another process has.
const RETRY: Duration = Duration::from_secs(1);
/// Time between lines of the log about doors that cannot be opened.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Doors that are open. When they are dropped, what came is taken, and the doors are closed.
pub struct OpenDoors {
    // In this order: the server ends before what it has written is taken for the last time.
    server: EventServer,
    receiver: EventReceiver,
    sockets: KeptSockets,
}

impl OpenDoors {
    /// Closes the doors. Who connects meanwhile waits, if they are opened again with the sockets that are
    /// returned.
    pub fn close(self) -> KeptSockets {
        drop(self.server);
        drop(self.receiver);
        self.sockets
    }
}

/// The sockets of doors, by the addresses in the settings. They stay open while others have them, too.
#[derive(Default)]
pub struct KeptSockets(HashMap<String, Vec<EventDoor>>);

impl KeptSockets {
    /// Takes the sockets at `address`, unless one of them has lost its place in the file system.
    fn take(&mut self, address: &str) -> Option<Vec<EventDoor>> {
        let doors = self.0.remove(address)?;
        let has_place = |door: &EventDoor| match door {
            EventDoor::Unix(socket) => {
                socket.local_addr().is_ok_and(|at| at.as_pathname().is_some_and(Path::exists))
            }
            _ => true,
        };
        doors.iter().all(has_place).then_some(doors)
    }
}

/// The addresses of doors.
#[derive(Clone)]
pub struct DoorAddresses {
    listen: Vec<ListenAddress>,
    udp: Vec<ListenAddress>,
}

impl DoorAddresses {
    /// Returns the addresses of the flags, or else those of the settings.
    ///
    /// # Errors
    /// If one in the settings is none.
    pub fn of(pool: &Pool, listen: &[ListenAddress], udp: &[ListenAddress]) -> Result<DoorAddresses> {
        if !listen.is_empty() || !udp.is_empty() {
            return Ok(DoorAddresses { listen: listen.to_vec(), udp: udp.to_vec() });
        }
        let parse = |list: &[String]| -> Result<Vec<ListenAddress>> {
            list.iter().map(|address| address.parse::<ListenAddress>().map_err(|e| wrong(&e))).collect()
        };
        Ok(DoorAddresses { listen: parse(&pool.config.events.listen)?, udp: parse(&pool.config.events.udp)? })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listen.is_empty() && self.udp.is_empty()
    }
}

/// Opens the doors at `addresses`, some of which may be `kept`. Returns `None` if another process of the pool
/// has them. The sleepers on `wake` are nudged when a repository is due because of an event.
///
/// # Errors
/// If a socket cannot be bound, or the spool or the catalog cannot be used.
pub fn open_doors(
    pool: &Pool,
    addresses: &DoorAddresses,
    kept: KeptSockets,
    wake: &Stop,
    counters: &Arc<Counters>,
    told: &mut dyn FnMut(String) -> std::io::Result<()>,
) -> Result<Option<OpenDoors>> {
    let Some(mut spool) = open_spool(pool, SPOOL_NAME)? else { return Ok(None) };
    let bound = bind(addresses, kept)?;
    for door in bound.iter().flat_map(|(_, doors)| doors) {
        told(url_of(door)?)?;
    }
    let mut sockets = KeptSockets::default();
    for (address, doors) in &bound {
        let again = doors.iter().map(EventDoor::try_clone).collect::<std::io::Result<_>>()?;
        sockets.0.insert(address.clone(), again);
    }
    let doors = bound.into_iter().flat_map(|(_, doors)| doors).collect();
    let receiver = EventReceiver::start(pool, &mut spool, wake, &counters.delays)?;
    let c = &pool.config.events;
    let options = EventServerOptions {
        connections_max: connections_max(c.connections_max),
        connections_per_address_max: c.connections_per_address_max,
        idle_timeout: Some(c.idle_timeout.0).filter(|time| !time.is_zero()),
        gate: c.gate(&pool.config.access).map_err(|e| wrong(&e))?,
        ..EventServerOptions::default()
    };
    let server = EventServer::start(doors, spool, options, counters.events.clone())?;
    Ok(Some(OpenDoors { server, receiver, sockets }))
}

fn wrong(cause: &dyn std::fmt::Display) -> Error {
    weir_settings::Error::Wrong(cause.to_string()).into()
}

/// Opens the spool in the folder `name` of the pool. Returns `None` if another process has it.
fn open_spool(pool: &Pool, name: &str) -> Result<Option<EventSpool>> {
    let options = SpoolOptions { bytes_max: pool.config.events.spool_bytes_max.0, ..SpoolOptions::default() };
    match EventSpool::open(&pool.path.join(name), options) {
        Err(SpoolError::InUse(_)) => Ok(None),
        spool => Ok(Some(spool?)),
    }
}

/// Opens the doors of the settings, if there are any, until `stop` is requested. If another process has them,
/// waits in a thread until it ends. `stop` is nudged when a repository is due because of an event.
///
/// # Errors
/// If the doors cannot be opened at first.
pub fn keep_doors(pool: &Pool, counters: &Arc<Counters>, stop: &Stop) -> Result<Option<JoinHandle<()>>> {
    let addresses = DoorAddresses::of(pool, &[], &[])?;
    if addresses.is_empty() {
        return Ok(None);
    }
    let (pool, counters, wake) = (pool.again()?, counters.clone(), stop.clone());
    keep_open("event doors", stop, move || {
        let mut told = |url: String| {
            tracing::info!("taking events at {url}");
            Ok(())
        };
        open_doors(&pool, &addresses, KeptSockets::default(), &wake, &counters, &mut told)
    })
    .map(Some)
}

/// Opens the way of webhooks into the pool, until `stop` is requested, and sends it to `intake`. Each process
/// of the pool has a spool of its own. It also takes the events that ended processes left in theirs.
///
/// # Errors
/// If the spool cannot be opened at first.
pub fn keep_webhooks(
    pool: &Pool,
    intake: IntakeSender,
    counters: &Arc<Counters>,
    stop: &Stop,
) -> Result<JoinHandle<()>> {
    let (pool, counters, wake) = (pool.again()?, counters.clone(), stop.clone());
    keep_open("webhooks", stop, move || {
        let (mut committer, mut receivers, mut left) = (None, Vec::new(), Vec::new());
        for number in 1..=WEBHOOK_SPOOLS_MAX {
            let name = match number {
                1 => WEBHOOK_SPOOL_NAME.to_owned(),
                number => format!("{WEBHOOK_SPOOL_NAME}-{number}"),
            };
            if committer.is_some() && !pool.path.join(&name).exists() {
                break;
            }
            let Some(mut spool) = open_spool(&pool, &name)? else { continue };
            receivers.push(EventReceiver::start(&pool, &mut spool, &wake, &counters.delays)?);
            match committer {
                None => committer = Some(EventCommitter::start(spool)?),
                Some(_) => left.push(spool),
            }
        }
        let Some(committer) = committer else { return Ok(None) };
        intake.send_replace(Some(committer.intake()));
        // Dropped in this order: the receivers take the last commit.
        Ok(Some((committer, left, receivers)))
    })
}

/// Calls `open` until it succeeds: once at once, and then in a thread, which keeps what was opened until
/// `stop` is requested.
fn keep_open<T: Send + 'static>(
    name: &'static str,
    stop: &Stop,
    mut open: impl FnMut() -> Result<Option<T>> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let mut doors = open()?;
    let stop = stop.clone();
    Ok(spawn(name, move || {
        if doors.is_none() {
            tracing::info!("another process of this pool has the {name}: waiting for its end");
        }
        let mut told: Option<Instant> = None;
        while doors.is_none() && stop.sleep(RETRY) {
            doors = open().unwrap_or_else(|e| {
                if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                    told = Some(Instant::now());
                    tracing::error!("no events are taken: {e}; trying again each second");
                }
                None
            });
        }
        while stop.sleep(Duration::from_secs(3600)) {}
        drop(doors);
    })?)
}

/// Returns how many of `wanted` connections there may be, so that descriptors are left for all else.
fn connections_max(wanted: usize) -> usize {
    raise_descriptor_limit();
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_KEPT).max(1);
    if wanted > room {
        tracing::warn!(
            "at most {room} senders of events at a time, not {wanted}: raise the limit of open files, or \
            lower events.connections_max"
        );
    }
    wanted.min(room)
}

/// Binds sockets to `addresses`, or takes those that are `kept`. Returns them by their addresses in the
/// settings.
fn bind(addresses: &DoorAddresses, mut kept: KeptSockets) -> Result<Vec<(String, Vec<EventDoor>)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let fail = |address: &ListenAddress, source| Error::Listen { address: address.to_string(), source };
    let mut bound = Vec::new();
    for address in &addresses.listen {
        let name = address.to_string();
        let doors = match kept.take(&name) {
            Some(doors) => doors,
            None => {
                let listeners = address.bind().map_err(|e| fail(address, e))?;
                listeners.into_iter().map(door_of).collect::<std::io::Result<_>>()?
            }
        };
        bound.push((name, doors));
    }
    for address in &addresses.udp {
        let name = format!("udp://{address}");
        let doors = match kept.take(&name) {
            Some(doors) => doors,
            None => {
                let at = match address {
                    ListenAddress::Any(port) => format!("[::]:{port}"),
                    address => address.to_string(),
                };
                vec![EventDoor::Udp(UdpSocket::bind(at.as_str()).map_err(|e| fail(address, e))?)]
            }
        };
        bound.push((name, doors));
    }
    Ok(bound)
}

fn door_of(listener: Listener) -> std::io::Result<EventDoor> {
    Ok(match listener {
        Listener::Tcp(socket) => EventDoor::Tcp(socket),
        Listener::Unix(socket) => EventDoor::Unix(socket),
    })
}

/// Returns where a door is, as a URL.
fn url_of(door: &EventDoor) -> std::io::Result<String> {
    Ok(match door {
        EventDoor::Tcp(socket) => format!("tcp://{}", socket.local_addr()?),
        EventDoor::Unix(socket) => {
            let at = socket.local_addr()?;
            Address::Unix(at.as_pathname().unwrap_or_else(|| Path::new("")).to_owned()).to_string()
        }
        EventDoor::Udp(socket) => format!("udp://{}", socket.local_addr()?),
    })
}
