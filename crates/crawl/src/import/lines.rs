//! Reads the lines of a dump, records that span several lines, or documents; bounded, plain or compressed.

use std::io::{BufRead, BufReader, Read, Result};

use flate2::bufread::MultiGzDecoder;

/// Longest line that is read; longer ones are skipped.
const LINE_BYTES_MAX: usize = 32 << 20;
/// Longest record of a table, and the most lines that it spans.
const RECORD_BYTES_MAX: usize = 1 << 20;
const RECORD_LINES_MAX: usize = 256;
const BUFFER_BYTES: usize = 256 << 10;

/// Longest document that is read; MongoDB's own are 16 MiB at most.
const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// The units of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Line,
    /// A record of a table: quotes may span several lines.
    Record,
    /// A document: its length in four bytes, least first, which the length includes; then the rest
    /// (bsonspec.org).
    Document,
}

/// One line, one record of a table or one document.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// Its bytes, without the line's end.
    Is(&'a [u8]),
    /// It is too long.
    TooLong,
    /// A quote is closed neither on this line nor on the lines after it. Those are read again.
    Unclosed,
    /// There are no more.
    End,
}

/// Reads the units of a dump.
pub(super) struct DumpLines {
    input: Box<dyn BufRead>,
    unit: Unit,
    line: Vec<u8>,
    /// Memory for the next line.
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

impl DumpLines {
    /// Opens a dump. `input` may be compressed by gzip, in one member or several.
    pub(super) fn open(input: Box<dyn Read>, unit: Unit) -> Result<DumpLines> {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        // The method, deflate, is checked, too: the length of a document may begin like gzip.
        let is_compressed = input.fill_buf()?.starts_with(&[0x1f, 0x8b, 8]);
        let input: Box<dyn BufRead> = if is_compressed {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input)))
        } else {
            Box::new(input)
        };
        Ok(DumpLines {
            input,
            unit,
            line: Vec::new(),
            spare: Vec::new(),
            ahead: std::collections::VecDeque::new(),
            passed: 0,
        })
    }

    /// Returns the number of lines that were read.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Skips `n` lines.
    pub(super) fn skip(&mut self, n: u64) -> Result<()> {
        for _ in 0..n {
            if let Physical::End = self.physical()? {
                break;
            }
        }
        self.passed = n;
        Ok(())
    }

    /// Returns the next line or record, and the number of its first line, from 1 on.
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
        if self.unit != Unit::Record {
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
            let next = if more.len() < RECORD_LINES_MAX && len <= RECORD_BYTES_MAX {
                self.physical()?
            } else {
                Physical::End
            };
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
        if self.unit == Unit::Document {
            return self.document(line);
        }
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
        // Skips the rest of the line, in pieces.
        loop {
            line.clear();
            let n = self.input.by_ref().take(1 << 20).read_until(b'\n', &mut line)?;
            if n == 0 || line.last() == Some(&b'\n') {
                return Ok(Physical::TooLong);
            }
        }
    }
}

impl DumpLines {
    fn document(&mut self, mut document: Vec<u8>) -> Result<Physical> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(Physical::End);
        }
        document.resize(4, 0);
        self.input.read_exact(&mut document)?;
        let len = u32::from_le_bytes(document[..4].try_into().expect("four bytes")) as usize;
        if !(5..=DOCUMENT_BYTES_MAX).contains(&len) {
            // There is no way to find the next document.
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "no BSON: a document cannot be of that length",
            ));
        }
        // Read as it comes, so that a stated length alone takes no memory.
        let n = self.input.by_ref().take(len as u64 - 4).read_to_end(&mut document)?;
        if n < len - 4 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Physical::Is(document))
    }
}

/// Sets `is_open` to whether a quote is open at the end of `line`. `is_open` tells whether `line` begins in
/// one.
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
