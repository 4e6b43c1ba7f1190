//! Streams: programs that print events, as ssh does that runs Gerrit's `stream-events`.
//!
//! A stream has no memory: nobody tells later of changes that were made while it was away. So weir makes the
//! repositories of its site due when it is there again. Events go straight into the catalog. While the
//! catalog is away, weir does not read; the server then drops events, and says so.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_catalog::clock::now;
use weir_collect::ProcessGroup;
use weir_events::{ReceivedLine, StreamLine, gerrit_line, now_ms};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_settings::StreamConfig;

use crate::error::Result;
use crate::running::hint_finder::is_below;
use crate::running::pool::Pool;
use crate::running::receiver::take_lines;

/// The longest line of a program.
const LINE_BYTES_MAX: usize = 4 << 20;
/// The most lines that wait for the catalog.
const WAITING_MAX: usize = 1000;
/// Time until a program is started again that has ended, which doubles, and the longest time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
const _: () = assert!(RETRY.as_millis() <= RETRY_MAX.as_millis(), "waits grow");
/// A program that runs for so long is connected.
const CONNECTED_AFTER: Duration = Duration::from_secs(2);
/// The least time between two times that all repositories of a site are made due.
const CATCH_UP_EVERY: Duration = Duration::from_secs(600);
/// How often to look whether weir is to stop, and how long to wait for a catalog that failed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const CATALOG_RETRY: Duration = Duration::from_secs(5);
/// Time between lines of the log about lines that are no events.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// The longest line that a program says on standard error, and how many of them are logged in that time.
const ERROR_BYTES_MAX: u64 = 1024;
const ERRORS_MAX: u32 = 5;
const LOCK_NAME: &str = "streams.lock";

/// The streams of a pool. When it is dropped, they end.
pub struct EventStreams {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl EventStreams {
    /// Starts the streams of the settings; `None` if there are none. Only one process of a pool runs them;
    /// another takes its place when it ends. The sleepers on `wake` are nudged when a repository is due.
    ///
    /// # Errors
    /// If the lock, the catalog or a thread cannot be had.
    pub fn start(pool: &Pool, wake: &Stop) -> Result<Option<EventStreams>> {
        let configs = &pool.config.events.stream;
        if configs.is_empty() {
            return Ok(None);
        }
        let lock = std::sync::Arc::new(pool.open_lock(LOCK_NAME)?);
        let stop = Stop::default();
        let mut threads = Vec::new();
        for config in configs {
            let stream = StreamThread {
                pool: pool.again()?,
                config: config.clone(),
                stop: stop.clone(),
                wake: wake.clone(),
                caught_up: None,
                told: None,
            };
            let lock = lock.clone();
            threads.push(spawn("stream", move || {
                // One thread has it for all of them: a lock is the file's.
                while lock.try_lock().is_err() {
                    if !stream.stop.sleep(LOOK_EVERY) {
                        return;
                    }
                }
                stream.run();
            })?);
        }
        Ok(Some(EventStreams { stop, threads }))
    }
}

impl Drop for EventStreams {
    fn drop(&mut self) {
        self.stop.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct StreamThread {
    pool: Pool,
    config: StreamConfig,
    stop: Stop,
    wake: Stop,
    /// When all repositories of the site were made due.
    caught_up: Option<Instant>,
    /// When it was last told of lines that are no events.
    told: Option<Instant>,
}

impl StreamThread {
    fn run(mut self) {
        let (mut pause, mut is_told) = (RETRY, false);
        while !self.stop.is_stopped() {
            let began = Instant::now();
            let ended = self.follow();
            if self.stop.is_stopped() {
                return;
            }
            let name = &self.config.name;
            if began.elapsed() > RETRY_MAX {
                (pause, is_told) = (RETRY, false);
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!("the stream '{name}' {ended}; starting it again, and again");
            }
            if !self.stop.sleep(pause) {
                return;
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Runs the program, and takes its lines until it ends. Returns how it ended.
    fn follow(&mut self) -> String {
        let mut command = Command::new(&self.config.command[0]);
        command.args(&self.config.command[1..]).current_dir(&self.pool.store.path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = match ProcessGroup::start(&mut command) {
            Ok(program) => program,
            Err(e) => return format!("cannot be started: '{}': {e}", self.config.command[0]),
        };
        let output = program.0.stdout.take().expect("piped above");
        let (sender, lines) = sync_channel(WAITING_MAX);
        let said = program.0.stderr.take().expect("piped above");
        let name = self.config.name.clone();
        let read = spawn("stream output", move || read_lines(output, &sender))
            .and_then(|_| spawn("stream errors", move || log_errors(&name, said)));
        if let Err(e) = read {
            return format!("cannot be read: {e}");
        }
        self.take_all(&lines);
        match program.0.try_wait() {
            Ok(Some(status)) => format!("has ended: {status}"),
            _ => "has closed its output".to_owned(),
        }
    }

    /// Takes lines until there are no more.
    fn take_all(&mut self, lines: &Receiver<Vec<u8>>) {
        let (began, mut is_connected) = (Instant::now(), false);
        loop {
            if self.stop.is_stopped() {
                return;
            }
            if !is_connected && began.elapsed() > CONNECTED_AFTER {
                is_connected = true;
                tracing::info!("following the stream '{}'", self.config.name);
                self.catch_up();
            }
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(first) => {
                    let all: Vec<Vec<u8>> = std::iter::once(first).chain(lines.try_iter()).collect();
                    self.take(&all);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, lines: &[Vec<u8>]) {
        let (name, mut events, mut is_lost) = (self.config.name.clone(), Vec::new(), false);
        for line in lines.iter().filter(|line| !line.trim_ascii().is_empty()) {
            match gerrit_line(&self.config.url, line) {
                Ok(StreamLine::Event(line)) => events.push(line),
                Ok(StreamLine::Ignored) => {}
                Ok(StreamLine::Lost) => is_lost = true,
                Err(why) if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) => {
                    self.told = Some(Instant::now());
                    tracing::warn!("the stream '{name}' prints lines that are no events: {why}");
                }
                Err(_) => {}
            }
        }
        let (peer, at_ms) = (format!("stream {name}"), now_ms());
        while !events.is_empty() {
            let received = events.iter().map(|line| ReceivedLine { at_ms, peer: &peer, line });
            match take_lines(&mut self.pool, received) {
                Ok(due) => {
                    if due > 0 {
                        self.wake.nudge();
                    }
                    break;
                }
                Err(e) => {
                    tracing::error!("cannot take events of the stream '{name}': {e}");
                    if !self.stop.sleep(CATALOG_RETRY) {
                        return;
                    }
                }
            }
        }
        if is_lost {
            tracing::warn!("the server of the stream '{name}' has dropped events");
            self.caught_up = None;
            self.catch_up();
        }
    }

    /// Makes all repositories of the site due: events may have been missed.
    fn catch_up(&mut self) {
        if self.caught_up.is_some_and(|at| at.elapsed() < CATCH_UP_EVERY) {
            return;
        }
        let mut ids = Vec::new();
        let found = self.pool.catalog.archives().for_each_entry(|entry| {
            if is_below(&entry.url, &self.config.url) {
                ids.push(entry.id);
            }
        });
        match found.and_then(|()| self.pool.catalog.visits().make_due(&ids, now())) {
            Ok(()) => {
                self.caught_up = Some(Instant::now());
                self.wake.nudge();
            }
            Err(e) => {
                tracing::warn!("cannot look for what the stream '{}' may have missed: {e}", self.config.name);
            }
        }
    }
}

/// Logs some lines a minute of the standard error of the program of the stream `name`.
fn log_errors(name: &str, said: impl Read) {
    let mut said = BufReader::new(said);
    let (mut since, mut logged) = (Instant::now(), 0);
    loop {
        let mut line = Vec::new();
        match said.by_ref().take(ERROR_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        if since.elapsed() >= TOLD_EVERY {
            (since, logged) = (Instant::now(), 0);
        }
        if logged < ERRORS_MAX {
            logged += 1;
            let text = String::from_utf8_lossy(line.trim_ascii()).into_owned();
            tracing::warn!("the stream '{name}' says: {}", weir_ground::printable(&text));
        }
    }
}

/// Sends the lines of `output` to `lines`, until one of them ends.
fn read_lines(output: impl Read, lines: &SyncSender<Vec<u8>>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match output.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line) {
            Ok(1..) if lines.send(line).is_ok() => {}
            _ => return,
        }
    }
}
