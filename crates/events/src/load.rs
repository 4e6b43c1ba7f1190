//! Sends lines at a steady rate over many connections, to find out what the doors take.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio::task::{LocalSet, spawn_local};

use crate::line_stream::LineStream;

/// How often lines are sent.
const TICK: Duration = Duration::from_millis(1);
/// How long to wait for a refusal of the last lines.
const LAST_LINES: Duration = Duration::from_millis(20);
/// How long to wait for the last acknowledgements.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The address of the doors.
#[derive(Clone, Debug)]
pub enum LoadTarget {
    /// A host and a port.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Lines to send, and how fast to send them.
#[derive(Clone, Debug)]
pub struct LineLoad {
    /// The address of the doors.
    pub target: LoadTarget,
    /// Connections to open; at least one.
    pub connections: usize,
    /// Lines a second on each connection.
    pub rate: f64,
    /// The time to send.
    pub time: Duration,
    /// Lines in each write; at least one.
    pub lines_per_write: u32,
    /// Whether each line asks for an acknowledgement.
    pub acknowledged: bool,
    /// The token that each connection sends first.
    pub token: Option<String>,
    /// The line, in which `{i}` stands for its number; without one, pushes to some repositories.
    pub line: Option<String>,
}

/// The counts and times of a run.
#[derive(Clone, Copy, Debug)]
pub struct LoadReport {
    /// Lines that were sent.
    pub sent: u64,
    /// Acknowledgements that arrived.
    pub acknowledged: u64,
    /// The time that sending took.
    pub took: Duration,
    /// The median time of an acknowledgement, in microseconds.
    pub median_us: Option<u64>,
    /// The time that 99 per cent of the acknowledgements kept, in microseconds.
    pub p99_us: Option<u64>,
}

/// Why lines could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server refuses lines, and says this.
    #[error("it refuses lines: {0}")]
    Refused(String),
}

/// Connects to the doors.
async fn connect(target: &LoadTarget) -> io::Result<LineStream> {
    Ok(match target {
        LoadTarget::Unix(path) => loop {
            match UnixStream::connect(path).await {
                // The queue of the server is full for a moment.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(TICK).await,
                stream => break LineStream::Unix(stream?),
            }
        },
        LoadTarget::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            // A line would wait for the acknowledgement of the one before.
            stream.set_nodelay(true)?;
            LineStream::Tcp(stream)
        }
    })
}

async fn write_all(stream: &LineStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The counts of all connections together.
#[derive(Default)]
struct LoadCounts {
    sent: Cell<u64>,
    /// The time that each acknowledgement took, in microseconds.
    waits_us: RefCell<Vec<u64>>,
    /// The reason that the server gave when it refused something.
    refusal: Cell<Option<String>>,
}

impl LineLoad {
    /// Sends lines until the time is over, and waits for the last answers.
    ///
    /// # Errors
    /// If a connection fails, or the server refuses lines.
    pub fn run(&self) -> Result<LoadReport, LoadError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counts = Rc::new(LoadCounts::default());
        let took = LocalSet::new().block_on(&runtime, self.send(&counts));
        // A server that refuses lines says so, and ends the connection.
        if let Some(why) = counts.refusal.take() {
            return Err(LoadError::Refused(why));
        }
        let took = took?;
        let mut waits = counts.waits_us.take();
        waits.sort_unstable();
        let share = |percent: usize| waits.get(waits.len().saturating_sub(1) * percent / 100).copied();
        Ok(LoadReport {
            sent: counts.sent.get(),
            acknowledged: waits.len() as u64,
            took,
            median_us: share(50),
            p99_us: share(99),
        })
    }

    /// Sends lines until the time is over. Returns how long that took.
    async fn send(&self, counts: &Rc<LoadCounts>) -> io::Result<Duration> {
        let began = Instant::now();
        let mut streams = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            let stream = Rc::new(connect(&self.target).await?);
            let (own, counts) = (stream.clone(), counts.clone());
            spawn_local(async move { read_answers(&own, began, &counts).await });
            if let Some(token) = &self.token {
                write_all(&stream, format!("auth {}\n", token.trim()).as_bytes()).await?;
            }
            streams.push(stream);
        }
        let (start, time) = (Instant::now(), self.time);
        let per_second = self.rate * self.connections as f64 / f64::from(self.lines_per_write);
        let (mut next, mut text) = (0, String::new());
        let mut ticks = tokio::time::interval(TICK);
        while start.elapsed() < time {
            ticks.tick().await;
            let due = (start.elapsed().min(time).as_secs_f64() * per_second) as usize;
            while next < due {
                text.clear();
                for _ in 0..self.lines_per_write {
                    let n = counts.sent.replace(counts.sent.get() + 1);
                    if self.acknowledged {
                        text += &format!("id={} ", began.elapsed().as_micros());
                    }
                    match &self.line {
                        Some(line) => text += &line.replace("{i}", &n.to_string()),
                        None => {
                            let repository = format!("repository-{:06}.git", n % 5000);
                            text += &format!(
                                "push https://git.example/team/{repository} refs/heads/main {n:08x}"
                            );
                        }
                    }
                    text.push('\n');
                }
                write_all(&streams[next % self.connections], text.as_bytes()).await?;
                next += 1;
            }
        }
        let took = start.elapsed();
        let last = Instant::now();
        let expected = if self.acknowledged { counts.sent.get() as usize } else { 0 };
        while counts.waits_us.borrow().len() < expected && last.elapsed() < LAST_ANSWERS {
            tokio::time::sleep(TICK).await;
        }
        tokio::time::sleep(LAST_LINES).await;
        Ok(took)
    }
}

/// Notes how long each acknowledgement took: its token is the time at which its line was sent.
async fn read_answers(stream: &LineStream, began: Instant, counts: &LoadCounts) {
    let (mut buffer, mut rest) = ([0; 4096], Vec::new());
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => rest.extend_from_slice(&buffer[..length]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        let now = began.elapsed().as_micros() as u64;
        if let Some(why) = rest.strip_prefix(b"err ").filter(|why| why.ends_with(b"\n")) {
            counts.refusal.set(Some(String::from_utf8_lossy(why.trim_ascii()).into_owned()));
        }
        let whole = rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let sent = rest[..whole]
            .split(|&byte| byte == b'\n')
            .filter_map(|line| std::str::from_utf8(line.strip_prefix(b"ok ")?).ok()?.parse::<u64>().ok());
        counts.waits_us.borrow_mut().extend(sent.map(|sent| now.saturating_sub(sent)));
        rest.drain(..whole);
    }
}
