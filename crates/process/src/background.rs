//! Starts this program in the background.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The reason that a process of this program does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot be started.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It has ended, and said this.
    #[error("{0}")]
    Ended(String),
}

/// A process of this program that starts in the background. It says by a line on its standard output that it
/// is ready.
pub struct Starting {
    child: Child,
    ready: &'static str,
    log: PathBuf,
}

impl Starting {
    /// Starts this program with `args` and `stdin`. It is to say the line `ready`; what it says besides goes
    /// to the file `log`.
    ///
    /// # Errors
    /// If it cannot be started, or the file cannot be made.
    pub fn new(args: &[OsString], stdin: Stdio, ready: &'static str, log: &Path) -> io::Result<Starting> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).current_dir("/");
        command.stdin(stdin).stdout(Stdio::piped()).stderr(File::create(log)?);
        Ok(Starting { child: command.spawn()?, ready, log: log.to_owned() })
    }

    /// Writes `line` to its standard input, if that is a pipe, and closes that.
    pub fn tell(&mut self, line: &str) {
        if let Some(mut stdin) = self.child.stdin.take() {
            // If the process has ended, `wait` returns why.
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// If it has ended.
    ///
    /// # Panics
    /// If it was waited for before.
    pub fn wait(&mut self) -> Result<(), StartError> {
        let mut line = String::new();
        let stdout = self.child.stdout.take().expect("it was waited for before");
        let _ = BufReader::new(stdout).read_line(&mut line);
        if line.trim_end() == self.ready {
            return Ok(());
        }
        let _ = self.child.wait();
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        Err(StartError::Ended(said.trim().trim_start_matches("error: ").to_owned()))
    }

    /// Closes its standard input, if that is still an open pipe, and waits for its end.
    pub fn give_up(&mut self) {
        if self.child.stdin.take().is_some() {
            let _ = self.child.wait();
        }
    }
}

/// Lets this process outlive its terminal.
pub fn detach() {
    // SAFETY: it takes no pointers (setsid(2)). It fails where this process leads a group already.
    unsafe { libc::setsid() };
}

/// Closes what this process has open but the standard streams: whoever started it may wait for the end of a
/// file or lock.
///
/// # Safety
/// Nothing in this process owns a descriptor yet but the standard streams.
pub unsafe fn close_inherited() {
    // SAFETY: the caller guarantees it.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}
