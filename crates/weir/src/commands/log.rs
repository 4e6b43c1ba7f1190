//! Lines as git-daemon writes them, to where they are asked for.

use std::ffi::CString;

use clap::ValueEnum;

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    /// Standard error.
    Stderr,
    /// The system's log.
    Syslog,
    /// Nowhere.
    None,
}

impl Log {
    /// Writes one line.
    pub(crate) fn line(self, text: &str) {
        let shown: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        match self {
            Log::Stderr => warn_line!("[{}] {shown}", std::process::id()),
            Log::Syslog => {
                let Ok(line) = CString::new(shown) else { return };
                // SAFETY: the format takes one C string, which is given.
                unsafe { libc::syslog(libc::LOG_DAEMON | libc::LOG_INFO, c"%s".as_ptr(), line.as_ptr()) };
            }
            Log::None => {}
        }
    }
}

/// A writer for `tracing` that goes the same way.
pub(crate) struct LogWriter(pub(crate) Log);

impl std::io::Write for LogWriter {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        match self.0 {
            Log::Stderr => return std::io::stderr().write(data),
            log => log.line(String::from_utf8_lossy(data).trim_end()),
        }
        Ok(data.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
