//! Byte streams to an upstream that end when it hangs: sockets, and the pipes of ssh.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::session::{Options, printable};
use crate::url::Url;

/// Time over which the minimum throughput is measured.
const WINDOW: Duration = Duration::from_secs(30);

/// Watches that an upstream keeps sending.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    idle: Duration,
    bytes_per_second_min: u64,
    window_start: Instant,
    window_bytes: u64,
}

impl Pace {
    pub(crate) fn new(options: &Options) -> Pace {
        Pace {
            idle: options.idle_timeout,
            bytes_per_second_min: options.bytes_per_second_min,
            window_start: Instant::now(),
            window_bytes: 0,
        }
    }

    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    pub(crate) fn idle_error(&self) -> io::Error {
        Error::IdleTimeout(self.idle.as_secs()).into()
    }

    /// Takes note of time spent waiting that is ours, not the upstream's.
    pub(crate) fn restart(&mut self) {
        (self.window_start, self.window_bytes) = (Instant::now(), 0);
    }

    /// Takes note of bytes that came.
    pub(crate) fn came(&mut self, bytes: usize) -> io::Result<()> {
        self.window_bytes += bytes as u64;
        let elapsed = self.window_start.elapsed();
        if elapsed >= WINDOW {
            if self.window_bytes / elapsed.as_secs().max(1) < self.bytes_per_second_min {
                return Err(Error::TooSlow(self.bytes_per_second_min).into());
            }
            self.restart();
        }
        Ok(())
    }
}

fn wait(fd: RawFd, events: libc::c_short, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    loop {
        let millis = timeout.as_millis().min(i32::MAX as u128) as i32;
        // SAFETY: `poll` is one valid pollfd for the duration of the call.
        let n = unsafe { libc::poll(&mut poll, 1, millis) };
        if n >= 0 {
            return Ok(n > 0);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// What is read of the words ssh ends with, and the silence that they end with at the latest.
const COMPLAINT_BYTES_MAX: u64 = 4096;
const COMPLAINT_TIME_MAX: Duration = Duration::from_secs(5);

/// A read of so many bytes is in the middle of a pack.
const BULK_BYTES_MIN: usize = 4096;

/// A TCP connection.
pub(crate) struct Tcp {
    stream: TcpStream,
    pace: Pace,
    /// Whether the last read brought much.
    in_bulk: bool,
}

impl Tcp {
    pub(crate) fn connect(url: &Url, default_port: u16, options: &Options) -> Result<Tcp> {
        let port = url.port.unwrap_or(default_port);
        let host = url.host_port();
        let fail = |source| Error::Connect { host: host.clone(), source };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (url.host.as_str(), port).to_socket_addrs().map_err(fail)? {
            match TcpStream::connect_timeout(&address, options.connect_timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(fail)?;
                    stream.set_read_timeout(Some(options.idle_timeout)).map_err(fail)?;
                    stream.set_write_timeout(Some(options.idle_timeout)).map_err(fail)?;
                    return Ok(Tcp { stream, pace: Pace::new(options), in_bulk: false });
                }
                Err(e) => last = e,
            }
        }
        Err(fail(last))
    }
}

impl Read for Tcp {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let socket = socket2::SockRef::from(&self.stream);
        // In the middle of a pack more is mostly there already, and acknowledging at once would only cost.
        let ready = match self.in_bulk {
            true => socket.recv_with_flags(as_uninit(buf), libc::MSG_DONTWAIT).ok(),
            false => None,
        };
        let read = match ready {
            Some(n) => Ok(n),
            None => {
                // git daemon leaves Nagle on: without this its last small packet waits 40 ms for our delayed acknowledgment.
                let _ = socket.set_tcp_quickack(true);
                self.stream.read(buf)
            }
        };
        match read {
            Ok(n) => {
                self.in_bulk = n >= BULK_BYTES_MIN;
                self.pace.came(n)?;
                Ok(n)
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Err(self.pace.idle_error()),
            Err(e) => Err(e),
        }
    }
}

impl Write for Tcp {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pace.restart();
        match self.stream.write(buf) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Err(self.pace.idle_error()),
            other => other,
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The system's ssh, running a program at the other end.
pub(crate) struct Ssh {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    pace: Pace,
}

impl Ssh {
    /// Runs `program PATH WORD` at the host of `url`.
    pub(crate) fn run(url: &Url, options: &Options, program: &str, word: Option<&str>) -> Result<Ssh> {
        let (mut command, ssh) = ssh_command(url, options)?;
        let words = [program.to_owned(), quote(path_at_host(url))].into_iter().chain(word.map(str::to_owned));
        command.arg(words.collect::<Vec<_>>().join(" "));
        command.env("GIT_PROTOCOL", "version=2").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| not_run(ssh, &e))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Ok(Ssh { child, stdin, stdout, pace: Pace::new(options) })
    }

    /// What ssh said when the connection ended early.
    fn complaint(&mut self) -> Error {
        self.stdin = None;
        let mut said = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let (fd, mut stderr) = (stderr.as_raw_fd(), stderr.take(COMPLAINT_BYTES_MAX));
            let mut piece = [0; 512];
            // Something it has started may hold on to that for ever.
            while matches!(wait(fd, libc::POLLIN, COMPLAINT_TIME_MAX), Ok(true)) {
                match stderr.read(&mut piece) {
                    Ok(n) if n > 0 => said.extend_from_slice(&piece[..n]),
                    _ => break,
                }
            }
        }
        let said = printable(String::from_utf8_lossy(&said).trim().replace('\n', "; ").as_bytes());
        Error::Ssh(if said.is_empty() { "it ended without a word".to_owned() } else { said })
    }
}

/// ssh to the host of `url`, before the words of the command there; and the program's name.
fn ssh_command<'o>(url: &Url, options: &'o Options) -> Result<(Command, &'o str)> {
    let mut words = options.ssh_command.iter();
    let program = words.next().ok_or_else(|| Error::Local("the ssh command is empty".to_owned()))?;
    let mut command = Command::new(program);
    command.args(words);
    if options.ssh_is_openssh {
        command.args(["-o", "SendEnv=GIT_PROTOCOL", "-o", "BatchMode=yes"]);
        command.arg("-o").arg(format!("ConnectTimeout={}", options.connect_timeout.as_secs().max(1)));
    }
    if let Some(port) = url.port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg(url.user.as_ref().map_or(url.host.clone(), |u| format!("{u}@{}", url.host)));
    Ok((command, program))
}

fn not_run(program: &str, e: &io::Error) -> Error {
    Error::Local(format!("cannot run '{program}': {e}; is ssh installed?"))
}

/// "/~user/x" of an ssh URL means "~user/x".
fn path_at_host(url: &Url) -> &str {
    if url.path.starts_with("/~") { &url.path[1..] } else { &url.path }
}

/// What `program PATH WORD` says at the host of `url`, `bytes_max` at most.
pub(crate) fn ssh_output(url: &Url, options: &Options, program: &str, word: &str, bytes_max: u64) -> Result<Vec<u8>> {
    let mut ssh = Ssh::run(url, options, program, Some(word))?;
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
        if !wait(self.stdout.as_raw_fd(), libc::POLLIN, self.pace.idle())? {
            return Err(self.pace.idle_error());
        }
        let n = self.stdout.read(buf)?;
        if n == 0 && !buf.is_empty() && self.stdin.is_some() {
            return Err(self.complaint().into());
        }
        self.pace.came(n)?;
        Ok(n)
    }
}

impl Write for Ssh {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pace.restart();
        match &mut self.stdin {
            Some(stdin) => {
                if !wait(stdin.as_raw_fd(), libc::POLLOUT, self.pace.idle())? {
                    return Err(self.pace.idle_error());
                }
                stdin.write(buf)
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
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

fn as_uninit(buf: &mut [u8]) -> &mut [std::mem::MaybeUninit<u8>] {
    // SAFETY: the layouts are the same, and a receive only ever writes initialised bytes.
    unsafe { &mut *(std::ptr::from_mut(buf) as *mut [std::mem::MaybeUninit<u8>]) }
}
