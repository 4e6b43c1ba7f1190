//! pkt-lines: the framing of git's protocols (gitprotocol-common, gitprotocol-v2).

use std::io::{self, Read};

/// Most bytes a pkt-line carries, its four length digits included (LARGE_PACKET_MAX).
pub const PACKET_BYTES_MAX: usize = 65_520;
/// Most pack bytes one side-band-64k packet carries.
pub const BAND_BYTES_MAX: usize = PACKET_BYTES_MAX - 5;

/// One pkt-line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pkt<'a> {
    /// `0000`: the end of a message.
    Flush,
    /// `0001`: between sections of a message (protocol v2).
    Delim,
    /// `0002`: the end of a response over a stateless connection (protocol v2).
    ResponseEnd,
    /// A line's payload, without the length; a trailing newline is still there.
    Line(&'a [u8]),
}

impl<'a> Pkt<'a> {
    /// The payload without one trailing newline; empty for the special packets.
    pub fn text(&self) -> &'a [u8] {
        match *self {
            Pkt::Line(l) => l.strip_suffix(b"\n").unwrap_or(l),
            _ => b"",
        }
    }
}

/// A malformed pkt-line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PktError {
    /// The four length characters are not hexadecimal.
    #[error("bad line length characters {:?}", String::from_utf8_lossy(.0))]
    BadLength([u8; 4]),
    /// The length is 3, or over [`PACKET_BYTES_MAX`].
    #[error("bad line length {0}")]
    OutOfRange(usize),
}

impl From<PktError> for io::Error {
    fn from(e: PktError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, e)
    }
}

enum PktHead {
    Special(Pkt<'static>),
    /// Payload bytes.
    Payload(usize),
}

fn head(digits: [u8; 4]) -> Result<PktHead, PktError> {
    let mut len = 0usize;
    for c in digits {
        let d = (c as char).to_digit(16).ok_or(PktError::BadLength(digits))?;
        len = (len << 4) | d as usize;
    }
    match len {
        0 => Ok(PktHead::Special(Pkt::Flush)),
        1 => Ok(PktHead::Special(Pkt::Delim)),
        2 => Ok(PktHead::Special(Pkt::ResponseEnd)),
        4..=PACKET_BYTES_MAX => Ok(PktHead::Payload(len - 4)),
        n => Err(PktError::OutOfRange(n)),
    }
}

/// Returns the pkt-line at the start of `input` and the bytes it takes; `None` if more input is needed.
///
/// # Errors
/// If the length is malformed.
pub fn decode(input: &[u8]) -> Result<Option<(Pkt<'_>, usize)>, PktError> {
    let Some(digits) = input.first_chunk::<4>() else { return Ok(None) };
    Ok(match head(*digits)? {
        PktHead::Special(pkt) => Some((pkt, 4)),
        PktHead::Payload(n) => input.get(4..4 + n).map(|line| (Pkt::Line(line), 4 + n)),
    })
}

/// Reads pkt-lines from a stream, each at most [`PACKET_BYTES_MAX`] long.
pub struct PktReader<R> {
    inner: R,
    line: Vec<u8>,
}

impl<R: Read> PktReader<R> {
    /// Reads from `inner`, which should be buffered.
    pub fn new(inner: R) -> Self {
        PktReader { inner, line: Vec::new() }
    }

    /// Returns the next pkt-line; `None` at a clean end of the stream.
    ///
    /// # Errors
    /// If the stream fails; `InvalidData` if the pkt-line is malformed; `UnexpectedEof` if the stream ends
    /// inside it.
    pub fn next_pkt(&mut self) -> io::Result<Option<Pkt<'_>>> {
        let mut digits = [0; 4];
        let mut have = 0;
        while have < 4 {
            match self.inner.read(&mut digits[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        match head(digits)? {
            PktHead::Special(pkt) => Ok(Some(pkt)),
            PktHead::Payload(n) => {
                self.line.resize(n, 0);
                self.inner.read_exact(&mut self.line)?;
                Ok(Some(Pkt::Line(&self.line)))
            }
        }
    }

    /// The stream below.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Gives the stream back.
    pub fn into_inner(self) -> R {
        self.inner
    }
}

/// Appends a pkt-line with the payload `data` to `out`. A payload longer than a pkt-line holds is the
/// caller's mistake and is cut.
pub fn push(out: &mut Vec<u8>, data: &[u8]) {
    let data = &data[..data.len().min(PACKET_BYTES_MAX - 4)];
    push_length(out, data.len() + 4);
    out.extend_from_slice(data);
}

/// Appends the four hexadecimal digits of a packet length.
pub fn push_length(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&length_digits(len));
}

/// The four hexadecimal digits of a packet length.
pub fn length_digits(len: usize) -> [u8; 4] {
    debug_assert!(len <= PACKET_BYTES_MAX, "a packet of {len} bytes");
    const HEX: &[u8; 16] = b"0123456789abcdef";
    [HEX[(len >> 12) & 15], HEX[(len >> 8) & 15], HEX[(len >> 4) & 15], HEX[len & 15]]
}

/// Appends a flush packet.
pub fn push_flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// Appends a delimiter packet.
pub fn push_delim(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0001");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_it_encodes_and_rejects_the_rest() {
        let mut out = Vec::new();
        push(&mut out, b"hello\n");
        push_flush(&mut out);
        assert_eq!(out, b"000ahello\n0000");
        assert_eq!(decode(&out), Ok(Some((Pkt::Line(b"hello\n"), 10))));
        assert_eq!(decode(&out[..9]), Ok(None));
        assert_eq!(decode(b"0004"), Ok(Some((Pkt::Line(b""), 4))));
        assert_eq!(decode(b"0003"), Err(PktError::OutOfRange(3)));
        assert_eq!(decode(b"fff1"), Err(PktError::OutOfRange(0xfff1)));
        assert_eq!(decode(b"00g0"), Err(PktError::BadLength(*b"00g0")));
        assert_eq!(decode(b"+00a"), Err(PktError::BadLength(*b"+00a")));
        let mut reader = PktReader::new(&out[..]);
        assert_eq!(reader.next_pkt().unwrap().unwrap().text(), b"hello");
        assert_eq!(reader.next_pkt().unwrap(), Some(Pkt::Flush));
        assert_eq!(reader.next_pkt().unwrap(), None);
        let cut = PktReader::new(&out[..3]).next_pkt().unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
