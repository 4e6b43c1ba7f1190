//! Lines of a dump, bounded, plain or compressed.

use std::io::{BufRead, BufReader, Read, Result};

use flate2::bufread::MultiGzDecoder;

/// Longest line that is looked at; longer ones are passed over.
const LINE_BYTES_MAX: usize = 32 << 20;
/// Longest record of a table, and the most lines it goes over.
const RECORD_BYTES_MAX: usize = 1 << 20;
const RECORD_LINES_MAX: usize = 256;
const BUFFER_BYTES: usize = 256 << 10;

/// One line, or one record of a table.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// Without its end.
    Is(&'a [u8]),
    /// It is too long.
    TooLong,
    /// A quote on it is not closed, not on the lines behind it either. Those are read anew.
    Unclosed,
    /// There are no more.
    End,
}

/// Reads lines.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    /// Whether quotes go over several lines.
    is_table: bool,
    line: Vec<u8>,
    /// Memory for the next one.
    spare: Vec<u8>,
    /// Lines that were read ahead, the next one first.
    ahead: std::collections::VecDeque<Physical>,
    passed: u64,
}

enum Physical {
    Is(Vec<u8>),
    TooLong,
    End,
}

impl Lines {
    /// `input` may be compressed by gzip, in one member or several.
    pub(super) fn open(input: Box<dyn Read>, is_table: bool) -> Result<Lines> {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let is_compressed = input.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let input: Box<dyn BufRead> =
            if is_compressed { Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input))) } else { Box::new(input) };
        Ok(Lines { input, is_table, line: Vec::new(), spare: Vec::new(), ahead: std::collections::VecDeque::new(), passed: 0 })
    }

    /// Lines that were read.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Passes over `n` lines.
    pub(super) fn skip(&mut self, n: u64) -> Result<()> {
        for _ in 0..n {
            if let Physical::End = self.physical()? {
                break;
            }
        }
        self.passed = n;
        Ok(())
    }

    /// The next line or record, and the number of its first line, from 1 on.
    pub(super) fn read(&mut self) -> Result<(u64, Line<'_>)> {
        let number = self.passed + 1;
        let first = match self.physical()? {
            Physical::End => return Ok((number, Line::End)),
            Physical::TooLong => {
                self.passed += 1;
                return Ok((number, Line::TooLong));
            }
            Physical::Is(line) => line,
        };
        self.passed += 1;
        self.spare = std::mem::replace(&mut self.line, first);
        if !self.is_table {
            return Ok((number, Line::Is(&self.line)));
        }
        if self.line.len() > RECORD_BYTES_MAX {
            return Ok((number, Line::TooLong));
        }
        let mut is_open = false;
        leaves_open(&self.line, &mut is_open);
        let mut more: Vec<Vec<u8>> = Vec::new();
        let mut len = self.line.len();
        while is_open {
            let next = if more.len() < RECORD_LINES_MAX && len <= RECORD_BYTES_MAX { self.physical()? } else { Physical::End };
            let next = match next {
                Physical::Is(next) => next,
                other => {
                    if let Physical::TooLong = other {
                        self.ahead.push_front(other);
                    }
                    for line in more.into_iter().rev() {
                        self.ahead.push_front(Physical::Is(line));
                    }
                    return Ok((number, Line::Unclosed));
                }
            };
            leaves_open(&next, &mut is_open);
            len += next.len();
            more.push(next);
        }
        for next in more {
            self.passed += 1;
            self.line.push(b'\n');
            self.line.extend_from_slice(&next);
        }
        Ok((number, Line::Is(&self.line)))
    }

    fn physical(&mut self) -> Result<Physical> {
        if let Some(line) = self.ahead.pop_front() {
            return Ok(line);
        }
        let mut line = std::mem::take(&mut self.spare);
        line.clear();
        let n = self.input.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(Physical::End);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Physical::Is(line));
        }
        if n < LINE_BYTES_MAX {
            return Ok(Physical::Is(line));
        }
        // The rest of it, in pieces.
        loop {
            line.clear();
            let n = self.input.by_ref().take(1 << 20).read_until(b'\n', &mut line)?;
            if n == 0 || line.last() == Some(&b'\n') {
                return Ok(Physical::TooLong);
            }
        }
    }
}

/// Whether a quote is open at the end of `line`, which begins inside one if `is_open`.
fn leaves_open(line: &[u8], is_open: &mut bool) {
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => *is_open = !*is_open,
            _ => {}
        }
    }
}
