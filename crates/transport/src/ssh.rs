//! Runs a program at an upstream with the system's ssh.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::text::printable;
use crate::url::Url;

/// The kept bytes of ssh's messages, and how long to wait for them once the connection has ended.
const COMPLAINT_BYTES_MAX: usize = 4096;
const COMPLAINT_TIME_MAX: Duration = Duration::from_secs(5);
/// A writable pipe takes this many bytes without blocking.
const PIPE_BYTES_MIN: usize = libc::PIPE_BUF;

/// A connection to a program at the host of a URL.
pub(crate) struct Ssh {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    /// The first bytes of its standard error.
    said: Vec<u8>,
    pace: Pace,
}

impl Ssh {
    /// Runs `program PATH WORD` at the host of `url`. `pace` says how long it may be silent.
    pub(crate) fn run(
        url: &Url,
        options: &TransportOptions,
        program: &str,
        word: Option<&str>,
        pace: Pace,
    ) -> Result<Ssh> {
        let (mut command, name) = options.ssh_command.to(url, options.connect_timeout)?;
        let words = [program.to_owned(), quote(path_at_host(url))].into_iter().chain(word.map(str::to_owned));
        command.arg(words.collect::<Vec<_>>().join(" "));
        command
            .env("GIT_PROTOCOL", "version=2")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| Error::Local(format!("cannot run '{name}': {e}; is ssh installed?")))?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take().expect("piped"), child.stderr.take());
        Ok(Ssh { child, stdin, stdout, stderr, said: Vec::new(), pace })
    }

    /// Waits for `fd`, and meanwhile reads ssh's standard error, so that ssh does not block on it. Returns
    /// false if nothing happens within `timeout`.
    fn wait(&mut self, fd: Option<(RawFd, libc::c_short)>, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            if fd.is_none() && (self.stderr.is_none() || self.said.len() == COMPLAINT_BYTES_MAX) {
                return Ok(false);
            }
            let stderr = self.stderr.as_ref().map(AsRawFd::as_raw_fd);
            let entry = |fd: Option<RawFd>, events| libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
            let mut polled = [entry(fd.map(|f| f.0), fd.map_or(0, |f| f.1)), entry(stderr, libc::POLLIN)];
            let millis =
                deadline.saturating_duration_since(Instant::now()).as_millis().min(i32::MAX as u128) as i32;
            // SAFETY: `polled` is an array of so many valid pollfds for the duration of the call; negative
            // descriptors are passed over.
            match unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) } {
                0 => return Ok(false),
                n if n < 0 => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                    continue;
                }
                _ => {}
            }
            if polled[1].revents != 0 {
                self.listen();
            }
            if polled[0].revents != 0 {
                return Ok(true);
            }
        }
    }

    /// Reads once from standard error, which is readable.
    fn listen(&mut self) {
        let mut piece = [0; COMPLAINT_BYTES_MAX];
        match self.stderr.as_mut().map(|stderr| stderr.read(&mut piece)) {
            Some(Ok(n)) if n > 0 => {
                let kept = n.min(COMPLAINT_BYTES_MAX - self.said.len());
                self.said.extend_from_slice(&piece[..kept]);
            }
            Some(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
            _ => self.stderr = None,
        }
    }

    /// Returns ssh's messages as an error, when the connection has ended early.
    fn complaint(&mut self) -> Error {
        self.stdin = None;
        // A process that ssh has started may keep standard error open for ever.
        let _ = self.wait(None, COMPLAINT_TIME_MAX);
        let said = printable(
            String::from_utf8_lossy(&self.said).trim().replace("\r\n", "; ").replace('\n', "; ").as_bytes(),
        );
        Error::Ssh(if said.is_empty() { "it ended without a word".to_owned() } else { said })
    }
}

/// Returns the path at the host: "/~user/x" in an ssh URL means "~user/x".
fn path_at_host(url: &Url) -> &str {
    if url.path.starts_with("/~") { &url.path[1..] } else { &url.path }
}

/// Returns the output of `program PATH WORD` at the host of `url`, `bytes_max` at most.
pub(crate) fn ssh_output(
    url: &Url,
    options: &TransportOptions,
    program: &str,
    word: &str,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    let mut ssh = Ssh::run(url, options, program, Some(word), Pace::new(options))?;
    ssh.stdin = None;
    let mut said = Vec::new();
    (&mut ssh).take(bytes_max).read_to_end(&mut said).map_err(Error::from)?;
    if said.is_empty() { Err(ssh.complaint()) } else { Ok(said) }
}

/// Quotes a path for the shell at the other end, as git does.
fn quote(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''").replace('!', "'\\!'"))
}

impl Read for Ssh {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        if !self.wait(Some((self.stdout.as_raw_fd(), libc::POLLIN)), self.pace.silence_max())? {
            return Err(self.pace.silent().into());
        }
        let n = self.stdout.read(buf)?;
        if n == 0 && !buf.is_empty() && self.stdin.is_some() {
            return Err(self.complaint().into());
        }
        self.pace.came(n, began.elapsed())?;
        Ok(n)
    }
}

impl Write for Ssh {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Some(fd) = self.stdin.as_ref().map(AsRawFd::as_raw_fd) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if !self.wait(Some((fd, libc::POLLOUT)), self.pace.write_max())? {
            return Err(self.pace.takes_nothing().into());
        }
        // A larger write could block while ssh in turn waits for us to read.
        let written = self.stdin.as_mut().expect("it was there").write(&buf[..buf.len().min(PIPE_BYTES_MIN)]);
        self.pace.asked();
        written
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
