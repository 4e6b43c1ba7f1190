//! Writes lines in git-daemon's format to the chosen place.

use std::ffi::CString;

use clap::ValueEnum;
use weir_ground::{is_unprintable, printable};

use crate::output;

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Log {
    /// Standard error.
    Stderr,
    /// Syslog.
    Syslog,
    /// Nowhere.
    None,
}

impl Log {
    /// Writes one line.
    pub fn line(self, text: &str) {
        let shown = printable(text);
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

/// A writer for `tracing` that writes to the same place. Events contain text from outside: each stays one
/// line, and cannot control a terminal.
pub struct LogWriter {
    /// The place that it writes to.
    pub log: Log,
    /// Whether events contain colours.
    pub is_coloured: bool,
}

impl std::io::Write for LogWriter {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        match self.log {
            Log::Stderr if self.is_coloured => {
                let text = String::from_utf8_lossy(data);
                let line = but_for_colours(text.strip_suffix('\n').unwrap_or(&text));
                writeln!(std::io::stderr(), "{line}")?;
            }
            Log::Stderr => output::stderr().write_all(data)?,
            log => log.line(String::from_utf8_lossy(data).trim_end()),
        }
        Ok(data.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns `line` without anything that controls a terminal, except colours (ECMA-48, SGR), which log lines
/// use.
fn but_for_colours(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let colour = rest.strip_prefix("\x1b[").and_then(|after| {
            let end = after.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            after[end..].starts_with('m').then_some("\x1b[".len() + end + 1)
        });
        let len = colour.unwrap_or(c.len_utf8());
        match colour {
            None if is_unprintable(c) => shown.push('?'),
            _ => shown.push_str(&rest[..len]),
        }
        rest = &rest[len..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::but_for_colours;

    #[test]
    fn only_colours_pass() {
        assert_eq!(
            but_for_colours("\x1b[2m2026\x1b[0m \x1b[1;33mWARN\x1b[0m x"),
            "\x1b[2m2026\x1b[0m \x1b[1;33mWARN\x1b[0m x"
        );
        assert_eq!(
            but_for_colours("a\x1b[2Jb\x1b]0;t\x07\nWARN forged\u{202e}é\x1b["),
            "a?[2Jb?]0;t??WARN forged?é?["
        );
    }
}
