//! A record of the spool: a line, with when and from whom it came.

use std::time::{SystemTime, UNIX_EPOCH};

/// The kind of record that this version writes. Others are passed over.
const LINE: u8 = 1;

/// A line that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedLine<'r> {
    /// When it came, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who sent it: the kind of socket and the peer.
    pub peer: &'r str,
    /// The line, without its end.
    pub line: &'r [u8],
}

impl<'r> ReceivedLine<'r> {
    /// Calls `push` with the parts of the record.
    pub(crate) fn parts<T>(&self, push: impl FnOnce(&[&[u8]]) -> T) -> T {
        let peer = &self.peer.as_bytes()[..self.peer.floor_char_boundary(usize::from(u8::MAX))];
        push(&[&[LINE], &self.at_ms.to_le_bytes(), &[peer.len() as u8], peer, self.line])
    }

    /// Returns the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.parts(|parts| parts.concat())
    }

    /// Reads a record of the spool; `None`, if it is of another kind.
    pub fn parse(record: &'r [u8]) -> Option<ReceivedLine<'r>> {
        let (at_ms, rest) = record.strip_prefix(&[LINE])?.split_first_chunk()?;
        let (length, rest) = rest.split_first()?;
        let (peer, line) = rest.split_at_checked(usize::from(*length))?;
        Some(ReceivedLine { at_ms: u64::from_le_bytes(*at_ms), peer: std::str::from_utf8(peer).ok()?, line })
    }
}

/// Returns the time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let long = "\u{e9}".repeat(200);
        for (peer, line) in [("unix uid=0", b"push u".as_slice()), ("", b""), (&long, b"\xff\0")] {
            let received = ReceivedLine { at_ms: 1_700_000_000_123, peer, line };
            let bytes = received.parts(|parts| parts.concat());
            let read = ReceivedLine::parse(&bytes).unwrap();
            assert_eq!((read.at_ms, read.line), (received.at_ms, line));
            assert!(peer.starts_with(read.peer) && read.peer.len() >= peer.len().min(254));
            for end in 0..10 + read.peer.len() {
                assert!(ReceivedLine::parse(&bytes[..end]).is_none(), "{end}");
            }
        }
        assert!(ReceivedLine::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
    }
}
