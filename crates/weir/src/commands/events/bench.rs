//! `events bench`: sends lines at a steady rate over many connections.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio::task::{LocalSet, spawn_local};
use weir_ground::FileError;
use weir_serve::{Address, ListenAddress};

use crate::cli::{EventsBenchArgs, Global};
use crate::error::{Error, Result};
use crate::output;

/// How often lines are sent.
const TICK: Duration = Duration::from_millis(1);
/// How long to wait for answers to the last lines.
const LAST_LINES: Duration = Duration::from_millis(20);
/// How long to wait for the last acknowledgements.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// A connection to the doors.
enum BenchStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl BenchStream {
    async fn connect(address: &ListenAddress) -> io::Result<BenchStream> {
        Ok(match address {
            ListenAddress::One(Address::Unix(path)) => loop {
                match UnixStream::connect(path).await {
                    // The queue of the server is full for a moment.
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(TICK).await,
                    stream => break BenchStream::Unix(stream?),
                }
            },
            address => {
                let stream = TcpStream::connect(address.to_string()).await?;
                // A line would wait for the acknowledgement of the one before.
                stream.set_nodelay(true)?;
                BenchStream::Tcp(stream)
            }
        })
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            BenchStream::Tcp(stream) => stream.readable().await,
            BenchStream::Unix(stream) => stream.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            BenchStream::Tcp(stream) => stream.writable().await,
            BenchStream::Unix(stream) => stream.writable().await,
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            BenchStream::Tcp(stream) => stream.try_read(buffer),
            BenchStream::Unix(stream) => stream.try_read(buffer),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            BenchStream::Tcp(stream) => stream.try_write(bytes),
            BenchStream::Unix(stream) => stream.try_write(bytes),
        }
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// What all connections have counted.
#[derive(Default)]
struct BenchCounts {
    sent: Cell<u64>,
    /// The time that each acknowledgement took, in microseconds.
    waits_us: RefCell<Vec<u64>>,
    /// The reason that the server gave when it refused something.
    refusal: Cell<Option<String>>,
}

pub(crate) fn bench(global: &Global, args: &EventsBenchArgs) -> Result<()> {
    weir_serve::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counts = Rc::new(BenchCounts::default());
    let token = args
        .token_file
        .as_ref()
        .map(|file| std::fs::read_to_string(file).map_err(|e| Error::from(FileError::on("read", file)(e))));
    let token = token.transpose()?;
    let fail = |e: io::Error| match counts.refusal.take() {
        Some(why) => Error::Message(format!("{} refuses lines: {why}", args.address)),
        None => Error::Message(format!("{}: {e}", args.address)),
    };
    let greeting = token.map(|token| format!("auth {}\n", token.trim()));
    let took = LocalSet::new().block_on(&runtime, run(args, greeting.as_deref(), &counts)).map_err(fail)?;
    let mut waits = counts.waits_us.take();
    waits.sort_unstable();
    let share = |percent: usize| waits.get(waits.len().saturating_sub(1) * percent / 100).copied();
    let (sent, acknowledged) = (counts.sent.get(), waits.len() as u64);
    if global.json {
        return output::json(&serde_json::json!({ "sent": sent, "acknowledged": acknowledged,
            "seconds": took.as_secs_f64(), "median_us": share(50), "p99_us": share(99) }));
    }
    let mut out = output::stdout();
    writeln!(out, "{sent} lines sent in {:.1} s, {acknowledged} acknowledged", took.as_secs_f64())?;
    if let (Some(median), Some(p99)) = (share(50), share(99)) {
        let ms = |us: u64| us as f64 / 1000.0;
        writeln!(out, "acknowledged after {:.1} ms (median), {:.1} ms (99 %)", ms(median), ms(p99))?;
    }
    Ok(())
}

/// Sends lines until the time is over. Returns how long that took.
async fn run(
    args: &EventsBenchArgs,
    greeting: Option<&str>,
    counts: &Rc<BenchCounts>,
) -> io::Result<Duration> {
    let began = Instant::now();
    let mut streams = Vec::with_capacity(args.connections);
    for _ in 0..args.connections {
        let stream = Rc::new(BenchStream::connect(&args.address).await?);
        let (own, counts) = (stream.clone(), counts.clone());
        spawn_local(async move { read_answers(&own, began, &counts).await });
        if let Some(greeting) = greeting {
            stream.write_all(greeting.as_bytes()).await?;
        }
        streams.push(stream);
    }
    let (start, time) = (Instant::now(), Duration::from_secs_f64(args.seconds));
    let per_second = args.rate * args.connections as f64 / f64::from(args.lines_per_write);
    let (mut next, mut text) = (0, String::new());
    let mut ticks = tokio::time::interval(TICK);
    while start.elapsed() < time {
        ticks.tick().await;
        let due = (start.elapsed().min(time).as_secs_f64() * per_second) as usize;
        while next < due {
            text.clear();
            for _ in 0..args.lines_per_write {
                let n = counts.sent.replace(counts.sent.get() + 1);
                if args.acknowledged {
                    text += &format!("id={} ", began.elapsed().as_micros());
                }
                match &args.line {
                    Some(line) => text += &line.replace("{i}", &n.to_string()),
                    None => {
                        let repository = format!("repository-{:06}.git", n % 5000);
                        text +=
                            &format!("push https://git.example/team/{repository} refs/heads/main {n:08x}");
                    }
                }
                text.push('\n');
            }
            streams[next % args.connections].write_all(text.as_bytes()).await?;
            next += 1;
        }
    }
    let took = start.elapsed();
    let last = Instant::now();
    let expected = if args.acknowledged { counts.sent.get() as usize } else { 0 };
    while counts.waits_us.borrow().len() < expected && last.elapsed() < LAST_ANSWERS {
        tokio::time::sleep(TICK).await;
    }
    // A server that refuses lines says so, and ends the connection.
    tokio::time::sleep(LAST_LINES).await;
    let refusal = counts.refusal.take();
    let is_refused = refusal.is_some();
    counts.refusal.set(refusal);
    if is_refused { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(took) }
}

/// Notes how long each acknowledgement took: its token is the time at which its line was sent.
async fn read_answers(stream: &BenchStream, began: Instant, counts: &BenchCounts) {
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
