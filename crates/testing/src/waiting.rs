//! Ports, and waiting for what happens soon.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns a free port, a different one each time. It is not one of the ports that the system assigns to
/// outgoing connections: such a connection might take it before the test's server does.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 18_000;
    loop {
        // Test processes that run at the same time begin at different ports.
        let n = std::process::id().wrapping_mul(611).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + n % COUNT).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until `is_so` returns true. After 90 seconds, fails the test with the message of `told`.
pub fn wait_until(told: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {}", told());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until somebody listens on `port` of loopback.
pub fn wait_for_port(port: u16) {
    // A connection may reach itself, if the system chooses `port` as its local port.
    let listens = |stream: TcpStream| stream.local_addr().is_ok_and(|address| address.port() != port);
    wait_until(
        || format!("nobody listens on port {port}"),
        || TcpStream::connect(("127.0.0.1", port)).is_ok_and(listens),
    );
}
