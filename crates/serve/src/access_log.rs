//! The access log: a line for each request, as web servers write it or in JSON.
//!
//! A thread of its own writes the lines, so that a slow disk delays no answer. If it falls far behind, lines
//! are lost, and it says how many.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_ground::thread::spawn;

/// Lines that may wait to be written, and their bytes: clients choose how long a line is.
const LINES_MAX: usize = 32 << 10;
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Bytes that are written at a time, at most and about.
const WRITE_BYTES: usize = 256 << 10;
const _: () = assert!(WRITE_BYTES <= WAITING_BYTES_MAX, "what is written at once may wait");
/// Time between checks of whether the file is still the one at its path.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between messages about lines that are lost.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// The combined log format of Apache, nginx and others.
    #[default]
    Combined,
    /// An object in JSON.
    Json,
}

/// A file for lines of requests, and the thread that writes them.
#[derive(Debug)]
pub struct AccessLog {
    /// The form of the lines.
    pub(crate) format: AccessLogFormat,
    lines: Option<SyncSender<Vec<u8>>>,
    waiting_bytes: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the log at `path`, to which lines are appended.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path, format: AccessLogFormat) -> io::Result<AccessLog> {
        let file = LogFile::open(path)?;
        let (lines, waiting) = sync_channel(LINES_MAX);
        let (waiting_bytes, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let (bytes, lost_before) = (waiting_bytes.clone(), lost.clone());
        let writer = spawn("access log", move || write_lines(file, &waiting, &bytes, &lost_before))?;
        Ok(AccessLog { format, lines: Some(lines), waiting_bytes, lost, writer: Some(writer) })
    }

    /// Hands over a line, which ends in a line feed.
    pub(crate) fn line(&self, line: Vec<u8>) {
        let len = line.len();
        let has_room = self.waiting_bytes.fetch_add(len, Ordering::Relaxed) + len <= WAITING_BYTES_MAX;
        let is_sent = has_room && self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok());
        if !is_sent {
            self.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes lines until nobody can send any more.
fn write_lines(
    mut file: LogFile,
    waiting: &Receiver<Vec<u8>>,
    waiting_bytes: &AtomicUsize,
    lost: &AtomicU64,
) {
    let (mut told, mut failure) = (None::<Instant>, None);
    while let Ok(mut bytes) = waiting.recv() {
        let mut count = 1;
        while bytes.len() < WRITE_BYTES
            && let Ok(line) = waiting.try_recv()
        {
            bytes.extend_from_slice(&line);
            count += 1;
        }
        if let Err(e) = file.write(&bytes) {
            failure = Some(e);
            lost.fetch_add(count, Ordering::Relaxed);
        }
        waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) && lost.load(Ordering::Relaxed) > 0 {
            told = Some(Instant::now());
            tell_lost(&file.path, lost, failure.take().as_ref());
        }
    }
    tell_lost(&file.path, lost, failure.as_ref());
}

/// Says how many lines are lost, if any are.
fn tell_lost(path: &Path, lost: &AtomicU64, failure: Option<&io::Error>) {
    let (lost, path) = (lost.swap(0, Ordering::Relaxed), path.display());
    match failure {
        _ if lost == 0 => {}
        Some(e) => tracing::error!("{lost} lines of the access log are lost: cannot write '{path}': {e}"),
        None => tracing::warn!("{lost} lines of the access log are lost: '{path}' takes them too slowly"),
    }
}

/// A file that is opened again when another takes its place, as logrotate does.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    looked: Instant,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), file: open(path)?, looked: Instant::now() })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            if !self.is_in_place()? {
                self.file = open(&self.path)?;
            }
        }
        self.file.write_all(bytes)
    }

    /// Returns whether the file is still at its path. Devices and pipes always are.
    fn is_in_place(&self) -> io::Result<bool> {
        let of = self.file.metadata()?;
        let kind = of.file_type();
        let at = std::fs::metadata(&self.path);
        Ok(kind.is_char_device()
            || kind.is_fifo()
            || at.is_ok_and(|at| (at.dev(), at.ino()) == (of.dev(), of.ino())))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// Appends one line to the log at `path`: for a process that answers one request.
///
/// # Errors
/// If the file cannot be written to.
pub fn append_access_line(path: &Path, line: &[u8]) -> io::Result<()> {
    open(path)?.write_all(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_made_again() {
        let folder = weir_testing::folder();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&path, AccessLogFormat::Combined).unwrap();
        log.line(b"one\n".to_vec());
        weir_testing::wait_until(
            || "the first line".to_owned(),
            || std::fs::read(&path).is_ok_and(|text| text == b"one\n"),
        );
        let moved = folder.path().join("access.log.1");
        std::fs::rename(&path, &moved).unwrap();
        std::thread::sleep(LOOK_EVERY);
        log.line(b"two\n".to_vec());
        drop(log);
        assert_eq!(
            (std::fs::read(&moved).unwrap(), std::fs::read(&path).unwrap()),
            (b"one\n".to_vec(), b"two\n".to_vec())
        );
    }

    #[test]
    fn a_log_that_nobody_reads_delays_nothing_and_takes_little_memory() {
        let folder = weir_testing::folder();
        let path = folder.path().join("pipe");
        let made = weir_testing::command("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // With a reader that reads nothing, a write waits as soon as the pipe is full.
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let log = AccessLog::open(&path, AccessLogFormat::Combined).unwrap();
        for _ in 0..2 * WAITING_BYTES_MAX / 1000 {
            log.line(vec![b'x'; 1000]);
        }
        assert!(log.lost.load(Ordering::Relaxed) > 10_000);
        assert!(log.waiting_bytes.load(Ordering::Relaxed) <= WAITING_BYTES_MAX);
        drop(reader);
        drop(log);
        assert!(AccessLog::open(Path::new("/no/such/folder/log"), AccessLogFormat::Json).is_err());
    }
}
