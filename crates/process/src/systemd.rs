//! Notifies a service manager (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether another process has taken over, which tells its own state.
static IS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// How long a service manager that reads nothing may hold up a notice, and with it the clients.
const SEND_TIME_MAX: Duration = Duration::from_millis(100);

/// Makes [`notify`] send nothing more: the service manager listens to the process that has taken over.
pub fn hand_over() {
    IS_TAKEN_OVER.store(true, Ordering::Relaxed);
}

/// Sends `state`, which is lines of `NAME=VALUE`, to the service manager, if one has started this process.
/// A failure is only logged.
pub fn notify(state: &str) {
    if IS_TAKEN_OVER.load(Ordering::Relaxed) {
        return;
    }
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let send = |address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIME_MAX))?;
        socket.send_to_addr(state.as_bytes(), &address)
    };
    let sent = address.and_then(send);
    if let Err(e) = sent {
        tracing::warn!("cannot notify the service manager of '{}': {e}", state.escape_debug());
    }
}

/// Returns whether a service manager has started this process.
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|name| !name.is_empty())
}

/// Returns the time between signs of life that a service manager wants: half of the time after which it takes
/// the process for dead (sd_watchdog_enabled(3)). `None` if it wants none of this process.
pub fn watchdog_interval() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().ok());
    watchdog_of(number("WATCHDOG_USEC")??, number("WATCHDOG_PID"), std::process::id())
}

fn watchdog_of(timeout_us: u64, wanted_of: Option<Option<u64>>, process: u32) -> Option<Duration> {
    let is_wanted = timeout_us > 0 && wanted_of.is_none_or(|pid| pid == Some(process.into()));
    is_wanted.then(|| Duration::from_micros(timeout_us / 2))
}

/// Returns the microseconds of the clock by which a service manager compares notices of a reload.
pub fn monotonic_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_is_for_the_process_that_it_names() {
        let half = Some(Duration::from_secs(1));
        assert_eq!(watchdog_of(2_000_000, None, 7), half);
        assert_eq!(watchdog_of(2_000_000, Some(Some(7)), 7), half);
        assert_eq!(watchdog_of(2_000_000, Some(Some(8)), 7), None);
        assert_eq!(watchdog_of(2_000_000, Some(None), 7), None, "not a number");
        assert_eq!(watchdog_of(0, None, 7), None);
    }
}
