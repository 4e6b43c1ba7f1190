//! Holds one conversation over standard input and output: over ssh, for inetd, in place of git-upload-pack.

use std::io::{self, Read, StdinLock, StdoutLock, Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_ground::thread::spawn;
use weir_upload::UploadPack;

use crate::blocking::serve_blocking;

/// The way in which a client has kept a process waiting for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentClient {
    /// It has asked nothing since it came.
    NeverAsked,
    /// It has stopped in the middle of a conversation.
    Stopped,
}

/// A function that ends the process because of a client, which has been silent for so long.
pub type GiveUp = fn(SilentClient, Duration) -> !;

/// Time between checks for whether the client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The state of the conversation, for the thread that watches it.
struct Watched {
    start: Instant,
    /// Time of the last read or write, in milliseconds since the start.
    last: AtomicU64,
    /// Whether an answer is being made: then the process does not wait for the client.
    is_working: AtomicBool,
    cancelled: Arc<AtomicBool>,
    /// Bytes that were sent to the client.
    sent: AtomicU64,
}

impl Watched {
    fn happens(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn quiet(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// Holds one conversation. If the client no longer reads, the work for it is cancelled. If the client neither
/// sends nor takes anything for `idle_timeout`, `give_up` ends the process, as git's alarm does. Returns the
/// number of bytes that were sent.
///
/// # Errors
/// If a system call fails.
pub fn serve_stdio(
    machine: &mut UploadPack,
    idle_timeout: Option<Duration>,
    give_up: GiveUp,
) -> io::Result<u64> {
    let watched = Arc::new(Watched {
        start: Instant::now(),
        last: AtomicU64::new(0),
        is_working: AtomicBool::new(false),
        cancelled: Arc::new(AtomicBool::new(false)),
        sent: AtomicU64::new(0),
    });
    let (mut reader, mut writer) =
        (StdioReader(stdin().lock(), watched.clone()), StdioWriter(stdout().lock(), watched.clone()));
    spawn("watch", {
        let watched = watched.clone();
        move || watch(&watched, idle_timeout, give_up)
    })?;
    let is_working = |works: bool| {
        watched.happens();
        watched.is_working.store(works, Ordering::Relaxed);
    };
    serve_blocking(machine, &mut reader, &mut writer, &watched.cancelled, &is_working)?;
    Ok(watched.sent.load(Ordering::Relaxed))
}

/// Watches the client for as long as the process lives.
fn watch(watched: &Watched, idle_timeout: Option<Duration>, give_up: GiveUp) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let mut output = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
        // SAFETY: one valid entry, for the duration of the call.
        let n = unsafe { libc::poll(&raw mut output, 1, 0) };
        if n > 0 && output.revents & (libc::POLLERR | libc::POLLHUP) != 0 {
            watched.cancelled.store(true, Ordering::Relaxed);
        }
        if let Some(timeout) = idle_timeout
            && !watched.is_working.load(Ordering::Relaxed)
            && watched.quiet() >= timeout
        {
            give_up(SilentClient::Stopped, timeout);
        }
    }
}

struct StdioReader(StdinLock<'static>, Arc<Watched>);

impl Read for StdioReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let result = self.0.read(buf);
        self.1.happens();
        result
    }
}

struct StdioWriter(StdoutLock<'static>, Arc<Watched>);

impl Write for StdioWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        // Writing counts as the client's time, even while an answer is being made.
        let works = self.1.is_working.swap(false, Ordering::Relaxed);
        self.1.happens();
        let result = self.0.write(data);
        self.1.sent.fetch_add(*result.as_ref().unwrap_or(&0) as u64, Ordering::Relaxed);
        self.1.happens();
        self.1.is_working.store(works, Ordering::Relaxed);
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
