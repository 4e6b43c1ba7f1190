//! Opens the doors for events that the settings name.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use weir_events::{
    EventDoor, EventServer, EventServerOptions, EventSpool, IntakeCounts, SpoolError, SpoolOptions,
};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_pool::{EventReceiver, Pool};
use weir_serve::{Address, ListenAddress, Listener, raise_descriptor_limit};

use crate::error::{Error, Result};

/// The folder of the spool in a pool.
const SPOOL_NAME: &str = "events";
/// The descriptors that are kept for files, the database and other clients.
const DESCRIPTORS_KEPT: usize = 128;
/// How often to try to open doors that another process has.
const RETRY: Duration = Duration::from_secs(1);

/// Doors that are open. When they are dropped, what came is taken, and the doors are closed.
pub(crate) struct OpenDoors {
    // In this order: the server ends before what it has written is taken for the last time.
    _server: EventServer,
    _receiver: EventReceiver,
}

/// The addresses of doors.
#[derive(Clone)]
pub(crate) struct DoorAddresses {
    listen: Vec<ListenAddress>,
    udp: Vec<ListenAddress>,
}

impl DoorAddresses {
    /// Returns the addresses of the flags, or else those of the settings.
    pub(crate) fn of(pool: &Pool, listen: &[ListenAddress], udp: &[ListenAddress]) -> Result<DoorAddresses> {
        if !listen.is_empty() || !udp.is_empty() {
            return Ok(DoorAddresses { listen: listen.to_vec(), udp: udp.to_vec() });
        }
        let parse = |list: &[String]| -> Result<Vec<ListenAddress>> {
            list.iter().map(|address| address.parse().map_err(Error::Config)).collect()
        };
        Ok(DoorAddresses { listen: parse(&pool.config.events.listen)?, udp: parse(&pool.config.events.udp)? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listen.is_empty() && self.udp.is_empty()
    }
}

/// Opens the doors at `addresses`. Returns `None` if another process of the pool has them. The sleepers on
/// `wake` are nudged when a repository is due because of an event.
pub(crate) fn open_doors(
    pool: &Pool,
    addresses: &DoorAddresses,
    wake: &Stop,
    counts: &Arc<IntakeCounts>,
    told: &mut dyn FnMut(String) -> Result<()>,
) -> Result<Option<OpenDoors>> {
    let c = &pool.config.events;
    let options = SpoolOptions { bytes_max: c.spool_bytes_max.0, ..SpoolOptions::default() };
    let mut spool = match EventSpool::open(&pool.path.join(SPOOL_NAME), options) {
        Err(SpoolError::InUse(_)) => return Ok(None),
        spool => spool.map_err(|e| Error::Message(e.to_string()))?,
    };
    let doors = bind(addresses, told)?;
    let receiver = EventReceiver::start(pool, &mut spool, wake)?;
    let options = EventServerOptions {
        connections_max: connections_max(c.connections_max),
        connections_per_address_max: c.connections_per_address_max,
        idle_timeout: Some(c.idle_timeout.0).filter(|time| !time.is_zero()),
        ..EventServerOptions::default()
    };
    let server = EventServer::start(doors, spool, options, counts.clone())?;
    Ok(Some(OpenDoors { _server: server, _receiver: receiver }))
}

/// Opens the doors of the settings, if there are any, until `stop` is requested. If another process has them,
/// waits in a thread until it ends. `stop` is nudged when a repository is due because of an event.
pub(crate) fn keep_doors(
    pool: &Pool,
    counts: &Arc<IntakeCounts>,
    stop: &Stop,
) -> Result<Option<JoinHandle<()>>> {
    let addresses = DoorAddresses::of(pool, &[], &[])?;
    if addresses.is_empty() {
        return Ok(None);
    }
    let mut told = |url: String| {
        tracing::info!("taking events at {url}");
        Ok(())
    };
    let mut doors = open_doors(pool, &addresses, stop, counts, &mut told)?;
    let (pool, counts, stop) = (pool.again()?, counts.clone(), stop.clone());
    let keep = move || {
        let mut is_told = false;
        while doors.is_none() && stop.sleep(RETRY) {
            doors = open_doors(&pool, &addresses, &stop, &counts, &mut told).unwrap_or_else(|e| {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::error!("cannot take events: {e}");
                }
                None
            });
        }
        while stop.sleep(Duration::from_secs(3600)) {}
        drop(doors);
    };
    Ok(Some(spawn("event doors", keep)?))
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

/// Binds sockets to `addresses`, and tells of each.
fn bind(addresses: &DoorAddresses, told: &mut dyn FnMut(String) -> Result<()>) -> Result<Vec<EventDoor>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let mut doors = Vec::new();
    let fail = |address: &ListenAddress, e: std::io::Error| {
        Error::Message(format!("cannot listen on {address}: {e}; choose another in [events] of weir.toml"))
    };
    for address in &addresses.listen {
        for listener in address.bind().map_err(|e| fail(address, e))? {
            let at = match listener.address()? {
                Address::Tcp(address) => format!("tcp://{address}"),
                unix => unix.to_string(),
            };
            told(at)?;
            doors.push(match listener {
                Listener::Tcp(socket) => EventDoor::Tcp(socket.into_std()?),
                Listener::Unix(socket) => EventDoor::Unix(socket.into_std()?),
            });
        }
    }
    for address in &addresses.udp {
        let text = match address {
            ListenAddress::Any(port) => format!("[::]:{port}"),
            address => address.to_string(),
        };
        let socket = UdpSocket::bind(text.as_str()).map_err(|e| fail(address, e))?;
        told(format!("udp://{}", socket.local_addr()?))?;
        doors.push(EventDoor::Udp(socket));
    }
    Ok(doors)
}
