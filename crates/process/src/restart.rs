//! Starts a new program on the same sockets. Clients that connect meanwhile wait a moment; none is refused.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use weir_ground::thread::spawn;

use crate::systemd;

/// The variable with the descriptor on which the new program reports that it serves.
const READY: &str = "WEIR_READY_FD";
/// How long the new program may take to serve.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first descriptor that is handed over (sd_listen_fds).
const FIRST: RawFd = 3;

/// The words that Linux appends to the path of a running program whose file is gone (proc_pid_exe(5)).
const DELETED: &str = " (deleted)";

/// A failure to start this program again.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// Its file is not found.
    #[error("cannot restart: the program: {0}")]
    NoProgram(io::Error),
    /// No pipe can be opened, on which it would say that it serves.
    #[error("cannot restart: a pipe: {0}")]
    NoPipe(io::Error),
    /// It cannot be started.
    #[error("cannot restart: {0}")]
    NotStarted(io::Error),
    /// It does not serve.
    #[error("cannot restart: the new process does not serve; see its messages above")]
    NotServing,
}

/// Returns the path that this program was started from. A new version may have been installed there.
fn program() -> io::Result<PathBuf> {
    // Looks up the command name as a shell does: a link may lead to a new version by now.
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let found = match called.components().count() {
        1 => std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path).map(|folder| folder.join(&called)).find(|p| p.is_file())
        }),
        _ => std::path::absolute(&called).ok().filter(|path| path.is_file()),
    };
    if let Some(path) = found {
        return Ok(path);
    }
    let path = std::env::current_exe()?;
    match path.to_str().and_then(|text| text.strip_suffix(DELETED)) {
        Some(path) => Ok(path.into()),
        None => Ok(path),
    }
}

/// Starts this program again with the same arguments, and hands it `sockets`, each with its protocol. Returns
/// the new process's id once it serves.
///
/// # Errors
/// If the new program does not serve. Then this process keeps the sockets.
pub fn restart_on(sockets: &[(RawFd, &str)]) -> Result<u32, RestartError> {
    let mut arguments = std::env::args_os();
    let program = program().map_err(RestartError::NoProgram)?;
    let (mut ready, tell) = io::pipe().map_err(RestartError::NoPipe)?;
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let names: Vec<&str> = sockets.iter().map(|(_, name)| *name).collect();
    let ready_fd = FIRST + sockets.len() as RawFd;
    command
        .args(arguments)
        .env("LISTEN_FDS", sockets.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"))
        .env_remove("LISTEN_PID")
        // The watchdog waits for the process that serves.
        .env_remove("WATCHDOG_PID");
    command.env(READY, ready_fd.to_string());
    let mut handed: Vec<RawFd> = sockets.iter().map(|(fd, _)| *fd).chain([tell.as_raw_fd()]).collect();
    // SAFETY: between fork and exec only fcntl, dup2 and close are called, which are async-signal-safe, and
    // nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            // Move all descriptors out of the way first, so that none is overwritten before it is in its
            // place.
            let away = FIRST + handed.len() as RawFd;
            for fd in &mut handed {
                *fd = libc::fcntl(*fd, libc::F_DUPFD, away);
                if *fd < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            for (n, fd) in handed.iter().enumerate() {
                if libc::dup2(*fd, FIRST + n as RawFd) < 0 {
                    return Err(io::Error::last_os_error());
                }
                libc::close(*fd);
            }
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(RestartError::NotStarted)?;
    drop(tell);
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiting = spawn("restart", move || {
        let mut byte = [0];
        let _ = sender.send(ready.read(&mut byte).unwrap_or(0) == 1);
    });
    if waiting.is_ok() && receiver.recv_timeout(PATIENCE) == Ok(true) {
        return Ok(child.id());
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(RestartError::NotServing)
}

/// Starts this program again with the same arguments, in place of this process. Returns only if that fails.
pub fn start_in_place() -> RestartError {
    let mut arguments = std::env::args_os();
    let program = match program() {
        Ok(program) => program,
        Err(e) => return RestartError::NoProgram(e),
    };
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    RestartError::NotStarted(command.args(arguments).exec())
}

/// Reports that this process serves, to the processes that wait for it: the program that started it, and the
/// service manager.
pub fn tell_ready() {
    systemd::notify(&format!("MAINPID={}\nREADY=1", std::process::id()));
    let Some(fd) =
        std::env::var(READY).ok().and_then(|fd| fd.parse::<RawFd>().ok()).filter(|fd| *fd >= FIRST)
    else {
        return;
    };
    // SAFETY: the process that set the variable left this descriptor open for us; nothing else here owns it.
    let mut pipe = unsafe { std::fs::File::from_raw_fd(fd) };
    let _ = io::Write::write_all(&mut pipe, b"1");
}
