//! A segment: one file of a spool, with a head and frames.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memchr::memmem;

use crate::spool::frame::{FrameHead, HEAD_BYTES, MARKER, NUMBER_MAX, RECORDS_BYTES_MAX};

/// The bytes that begin each segment.
const MAGIC: [u8; 8] = *b"weirev\r\n";
/// The version of the format that this program writes.
pub(crate) const VERSION: u16 = 1;
/// The length of a segment's head: magic, version, two unused bytes, the spool's id, the number of the first
/// record, and the checksum of these.
pub(crate) const SEGMENT_HEAD_BYTES: usize = 8 + 2 + 2 + 8 + 8 + 4;
/// How the names of segments end; before it is the number of the first record in 20 digits.
const SUFFIX: &str = ".spool";
/// How many bytes are read at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) version: u16,
    /// The id of the spool.
    pub(crate) id: u64,
    /// The number of the first record.
    pub(crate) first: u64,
}

impl SegmentHead {
    pub(crate) fn to_bytes(self) -> [u8; SEGMENT_HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(SEGMENT_HEAD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.version.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.try_into().expect("the parts have this length")
    }

    /// Reads the head of a file; `None` if it is damaged.
    pub(crate) fn read(file: &File) -> io::Result<Option<SegmentHead>> {
        let mut bytes = [0; SEGMENT_HEAD_BYTES];
        match file.read_exact_at(&mut bytes, 0) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (body, sum) = bytes.split_at(SEGMENT_HEAD_BYTES - 4);
        if !body.starts_with(&MAGIC) || crc32fast::hash(body).to_le_bytes() != sum {
            return Ok(None);
        }
        let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        Ok(Some(SegmentHead {
            version: u16::from_le_bytes([body[8], body[9]]),
            id: number(12),
            first: number(20),
        }))
    }
}

/// Returns the path of the segment in `folder` whose first record has the number `first`.
pub(crate) fn segment_path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}{SUFFIX}"))
}

/// Returns the number of the first record of the segment called `name`, if it is one.
pub(crate) fn first_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|c| c.is_ascii_digit());
    let number = is_number.then(|| digits.parse().ok()).flatten();
    number.filter(|number| (1..=NUMBER_MAX).contains(number))
}

/// Reads the frames of a segment one after the other, and passes over what is damaged.
pub(crate) struct FrameReader {
    file: File,
    /// Where the next frame is looked for.
    at: u64,
    window: Vec<u8>,
    /// Where the window begins in the file.
    window_at: u64,
    /// The number of bytes that were passed over, in all.
    pub(crate) damaged: u64,
}

/// A frame that was read.
pub(crate) struct SoundFrame<'r> {
    pub(crate) head: FrameHead,
    pub(crate) records: &'r [u8],
    /// Where the frame ends in the file.
    pub(crate) end: u64,
    /// The number of damaged bytes before it.
    pub(crate) damaged: u64,
}

impl FrameReader {
    pub(crate) fn new(file: File) -> FrameReader {
        let at = SEGMENT_HEAD_BYTES as u64;
        FrameReader { file, at, window: Vec::new(), window_at: 0, damaged: 0 }
    }

    /// Returns the next frame that ends at `limit` or before it; `None` if there is none.
    pub(crate) fn next(&mut self, limit: u64) -> io::Result<Option<SoundFrame<'_>>> {
        let before = self.damaged;
        loop {
            let Some((head, end)) = self.frame_at(limit)? else {
                let Some(found) = self.find_marker(limit)? else { return Ok(None) };
                self.damaged += found - self.at;
                self.at = found;
                continue;
            };
            self.at = end;
            let start = (end - self.window_at) as usize - head.bytes;
            let records = &self.window[start..start + head.bytes];
            return Ok(Some(SoundFrame { head, records, end, damaged: self.damaged - before }));
        }
    }

    /// Reads the frame at the current place, if a sound one is there. Returns its head, and where it ends.
    fn frame_at(&mut self, limit: u64) -> io::Result<Option<(FrameHead, u64)>> {
        let Some(bytes) = self.bytes(HEAD_BYTES, limit)? else { return Ok(None) };
        let Some(head) = FrameHead::parse(bytes) else { return Ok(None) };
        let whole = HEAD_BYTES + head.bytes;
        let Some(bytes) = self.bytes(whole, limit)? else { return Ok(None) };
        Ok(head.holds(&bytes[HEAD_BYTES..]).then_some((head, self.at + whole as u64)))
    }

    /// Returns the place of the next marker behind the current place.
    fn find_marker(&mut self, limit: u64) -> io::Result<Option<u64>> {
        let mut from = self.at + 1;
        let at = self.at;
        loop {
            if from + HEAD_BYTES as u64 > limit {
                return Ok(None);
            }
            self.at = from;
            let wanted = (limit - from).min(WINDOW_BYTES as u64) as usize;
            let bytes = self.bytes(wanted, limit)?;
            let length = bytes.map_or(0, <[u8]>::len);
            let found = bytes.and_then(|bytes| memmem::find(bytes, &MARKER));
            self.at = at;
            match found {
                Some(place) => return Ok(Some(from + place as u64)),
                None if length < MARKER.len() => return Ok(None),
                None => from += (length - MARKER.len() + 1) as u64,
            }
        }
    }

    /// Returns `length` bytes at the current place; `None` if they do not end before `limit`.
    fn bytes(&mut self, length: usize, limit: u64) -> io::Result<Option<&[u8]>> {
        debug_assert!(length <= HEAD_BYTES + RECORDS_BYTES_MAX);
        if self.at + length as u64 > limit {
            return Ok(None);
        }
        let is_there = |window_at: u64, window: &[u8], at: u64| {
            at >= window_at && at + length as u64 <= window_at + window.len() as u64
        };
        if !is_there(self.window_at, &self.window, self.at) {
            let wanted = length.max(WINDOW_BYTES).min((limit - self.at) as usize);
            self.window.resize(wanted, 0);
            self.window_at = self.at;
            let mut filled = 0;
            while filled < wanted {
                match self.file.read_at(&mut self.window[filled..], self.at + filled as u64) {
                    Ok(0) => break,
                    Ok(n) => filled += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            self.window.truncate(filled);
            if filled < length {
                return Ok(None);
            }
        }
        let start = (self.at - self.window_at) as usize;
        Ok(Some(&self.window[start..start + length]))
    }
}
