//! Printing: sizes, times, tables, JSON.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::styling::Style;
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use weir_catalog::LostFacts;
use weir_ground::FileError;
use weir_pool::Rewritten;
pub use weir_pool::words::{bytes, span, time};

use crate::colors;

/// Formats the lengths of a rewritten archive: `1.5 MiB -> 1.2 MiB`.
pub fn lengths(rewritten: &Rewritten) -> String {
    format!("{} -> {}", bytes(rewritten.bytes_before), bytes(rewritten.bytes_after))
}

/// Returns the lengths of the rewritten archive of the repository called `name` as JSON.
pub fn lengths_json(name: &str, rewritten: &Rewritten) -> serde_json::Value {
    let Rewritten { bytes_before, bytes_after } = rewritten;
    serde_json::json!({ "name": name, "bytes_before": bytes_before, "bytes_after": bytes_after })
}

/// Prints a value as pretty JSON.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = PlainJson(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Writes JSON, with escapes for characters that control a terminal, which JSON allows as they are. Whole
/// characters must be written.
pub struct PlainJson<W>(pub W);

/// Returns whether `c` controls a terminal, or the direction of text.
fn is_control(c: char) -> bool {
    let is_of_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_of_direction || matches!(c, '\u{7f}'..='\u{9f}')
}

impl<W: Write> Write for PlainJson<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        // Their first bytes in UTF-8; most data has none of them.
        if !data.iter().any(|byte| matches!(byte, 0x7f | 0xc2 | 0xe2)) {
            self.0.write_all(data)?;
            return Ok(data.len());
        }
        match std::str::from_utf8(data) {
            Ok(text) if text.contains(is_control) => {
                let mut plain = String::with_capacity(text.len() + 16);
                for c in text.chars() {
                    match is_control(c) {
                        true => plain += &format!("\\u{:04x}", u32::from(c)),
                        false => plain.push(c),
                    }
                }
                self.0.write_all(plain.as_bytes())?;
            }
            _ => self.0.write_all(data)?,
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Reads the lines of a file, or of standard input if its path is `-`. A line that is not UTF-8 becomes
/// `None`.
pub fn read_lines(path: &Path) -> Result<Vec<Option<String>>, FileError> {
    let bytes = match path.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map_err(FileError::on("read", path))?;
            bytes
        }
        false => std::fs::read(path).map_err(FileError::on("read", path))?,
    };
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    Ok(bytes.split(|&c| c == b'\n').map(|line| String::from_utf8(line.to_vec()).ok()).collect())
}

/// Prints values as a JSON array, one after the other.
pub fn json_array(values: impl Iterator<Item = impl Serialize>) -> io::Result<()> {
    let mut out = PlainJson(io::BufWriter::new(io::stdout().lock()));
    let mut separator = "[\n";
    for value in values {
        write!(out, "{separator}")?;
        serde_json::to_writer(&mut out, &value)?;
        separator = ",\n";
    }
    let end = if separator == ",\n" { "\n]" } else { "[]" };
    writeln!(out, "{end}")?;
    out.flush()
}

/// Prints a value as one line of JSON.
pub fn json_line(value: &impl Serialize) -> io::Result<()> {
    write_json_line(value)
}

/// Prints a value as one line of JSON, for callers that know no other errors than those of the output.
pub fn write_json_line(value: &impl Serialize) -> io::Result<()> {
    let mut out = PlainJson(io::stdout().lock());
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)
}

/// Prints rows in columns; the first row is the heading.
pub fn table(rows: &[Vec<String>], right_aligned: &[usize]) -> io::Result<()> {
    styled_table(rows, right_aligned, &|_, _| Style::new())
}

/// Prints rows in columns. `style` gives the style of a cell, by its row and column.
pub fn styled_table(
    rows: &[Vec<String>],
    right_aligned: &[usize],
    style: &dyn Fn(usize, usize) -> Style,
) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = stdout();
    for (r, row) in rows.iter().enumerate() {
        // Blanks are written before the next text: none end a line.
        let mut blanks = String::new();
        for (c, text) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - text.chars().count());
            let (before, after) = if right_aligned.contains(&c) { (&*pad, "") } else { ("", &*pad) };
            blanks.push_str(before);
            if !text.is_empty() {
                write!(out, "{blanks}")?;
                out.styled(style(r, c), text)?;
                blanks.clear();
            }
            blanks.push_str(after);
            blanks.push_str("  ");
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Returns text from outside in a form that is safe for a terminal.
pub fn printable(text: &[u8]) -> String {
    weir_ground::printable(&String::from_utf8_lossy(text))
}

/// Returns standard output for people. Names, errors and messages from outside cannot control the terminal or
/// forge a line.
pub fn stdout() -> Screen<io::StdoutLock<'static>> {
    Screen(io::stdout().lock())
}

/// Returns standard error for people, with the protection of [`stdout`].
pub fn stderr() -> Screen<io::StderrLock<'static>> {
    Screen(io::stderr().lock())
}

/// Whether lines on standard error are JSON, as the log is then.
static WARNS_IN_JSON: AtomicBool = AtomicBool::new(false);

/// Sets whether [`warn`] and [`error`] write JSON.
pub fn warn_in_json(is_json: bool) {
    WARNS_IN_JSON.store(is_json, Ordering::Relaxed);
}

/// Writes a line to standard error; as JSON, with the keys of the log's lines. A failure is ignored: it is no
/// reason to end.
pub fn warn(level: tracing::Level, text: fmt::Arguments<'_>) {
    if !WARNS_IN_JSON.load(Ordering::Relaxed) {
        let _ = writeln!(stderr(), "{text}");
        return;
    }
    let mut now = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    let line = serde_json::json!({ "timestamp": now, "level": level.as_str(), "message": text.to_string() });
    let _ = writeln!(stderr(), "{line}");
}

/// Writes the error that ends a command to standard error. Only its first word has a colour: what an error
/// quotes cannot control the terminal.
pub fn error(e: &dyn fmt::Display, is_coloured: bool) {
    if WARNS_IN_JSON.load(Ordering::Relaxed) {
        return warn(tracing::Level::ERROR, format_args!("{e}"));
    }
    let _ = match is_coloured {
        true => writeln!(io::stderr(), "\x1b[1;31merror:\x1b[0m {}", printable(e.to_string().as_bytes())),
        false => writeln!(stderr(), "error: {e}"),
    };
}

/// Writes only [`printable`] characters. A newline ends a line only at the end of a written piece, as
/// `writeln!` writes it. A newline inside a value cannot forge a line.
pub struct Screen<W>(pub W);

impl Screen<io::StdoutLock<'static>> {
    /// Writes `text` in `style`, if standard output has colours.
    pub fn styled(&mut self, style: Style, text: &str) -> io::Result<()> {
        if !colors::is_on_stdout() || style.is_plain() {
            return write!(self, "{text}");
        }
        write!(self.0, "{style}")?;
        write!(self, "{text}")?;
        write!(self.0, "{style:#}")
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let (line, end) = text.strip_suffix(b"\n").map_or((text, &b""[..]), |line| (line, b"\n"));
        if line.iter().all(|c| matches!(c, b' '..=b'~')) {
            self.0.write_all(text)?;
        } else {
            self.0.write_all(printable(line).as_bytes())?;
            self.0.write_all(end)?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The number of lost refs that a line names.
const LOST_REFS_SHOWN: usize = 5;

/// Returns a line about commits that were lost with a damaged archive.
pub fn lost_line(name: &str, lost: &LostFacts) -> String {
    let mut line = format!("warning    {name}: {}", lost.text);
    if !lost.refs.is_empty() {
        let names: Vec<_> =
            lost.refs.iter().take(LOST_REFS_SHOWN).map(|name| printable(name.as_bytes())).collect();
        let more = if lost.refs.len() > LOST_REFS_SHOWN { ", ..." } else { "" };
        line += &format!("; {} refs of it cannot be restored: {}{more}", lost.refs.len(), names.join(", "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_steers_no_terminal() {
        let mut out = PlainJson(Vec::new());
        write!(out, "\"a\u{9b}b\u{202e}\u{fc}\"").unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "\"a\\u009bb\\u202e\u{fc}\"");
    }

    #[test]
    fn nothing_steers_a_terminal() {
        let mut shown = Screen(Vec::new());
        let name = "a\u{1b}]0;b\u{7}\u{202e}\u{9b}c\nd\u{7f}é";
        let end = "well\n";
        writeln!(shown, "{name}: {end}").unwrap();
        writeln!(shown, "{name}").unwrap();
        assert_eq!(String::from_utf8(shown.0).unwrap(), "a?]0;b???c?d?é: well\n\na?]0;b???c?d?é\n");
    }
}
