//! zlib streams of known length, as in packs.

use std::io;

use sirocco::Format;
use sirocco::deflate::{Encoder, Flush, Level};
use sirocco::inflate::Decoder;

/// The bytes of a stream that are made at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The room behind the last byte with which the decoder stays in its fast loop to the end of a stream.
const SLACK_BYTES: usize = 320;

/// A reusable inflater; its tables are costly to set up.
pub struct Inflate(Box<Decoder>);

impl Default for Inflate {
    fn default() -> Self {
        Inflate(Box::new(Decoder::new(Format::Zlib)))
    }
}

impl Inflate {
    /// Inflates the stream at the start of `input` into `out`, which it must fill exactly. Returns the number
    /// of bytes read from `input`; `None` if the stream is corrupt, cut off, or of another length.
    pub fn exact(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.reset();
        let len = out.len();
        let progress = self.0.decompress(input, out, true).ok()?;
        let (mut consumed, mut done, mut produced) =
            (progress.consumed, progress.done, progress.output.len());
        if !done && produced == len {
            // A stream whose output just fits may need one more call to reach its end marker.
            let progress = self.0.decompress(&input[consumed..], out, true).ok()?;
            consumed += progress.consumed;
            produced += progress.output.len();
            done = progress.done;
        }
        (done && produced == len).then_some(consumed)
    }

    /// Inflates the stream at the start of `input` into `out`, of which it must make exactly `size` bytes.
    /// Returns the number of bytes read from `input`; `None` if the stream is corrupt, cut off, or of another
    /// length.
    ///
    /// Faster than [`Inflate::exact`] with small streams: the decoder works in words and needs room behind
    /// the last byte, and so it does in `input`.
    pub fn exact_vec(&mut self, input: &[u8], size: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.0.reset();
        // The stream fills all of it or fails, so it does not matter what the buffer held before.
        match out.capacity() {
            0 => *out = vec![0; size + SLACK_BYTES],
            _ => out.resize(size + SLACK_BYTES, 0),
        }
        let progress = self.0.decompress(input, out, true).ok()?;
        let (is_done, consumed, produced) = (progress.done, progress.consumed, progress.output.len());
        out.truncate(size);
        (is_done && produced == size).then_some(consumed)
    }

    /// Inflates as much of the stream at the start of `input` as fits into `out`. Returns the number of
    /// bytes; `None` if that part of the stream is corrupt.
    pub fn prefix(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.reset();
        Some(self.0.decompress(input, out, true).ok()?.output.len())
    }

    /// Returns the decoder, for streaming.
    pub(crate) fn decoder(&mut self) -> &mut Decoder {
        &mut self.0
    }
}

/// A reusable deflater.
pub struct Deflate(Encoder);

impl Deflate {
    /// Makes a deflater with zlib's `level`, 0 to 9.
    pub fn new(level: u8) -> Deflate {
        Deflate(Encoder::new(Format::Zlib, Level::new(level.min(9))))
    }

    /// Passes the compressed stream of `data` to `give`, a piece at a time.
    ///
    /// # Errors
    /// If `give` fails.
    pub fn pieces(&mut self, data: &[u8], mut give: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.reset();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let progress = self.0.compress(data, &mut piece, Flush::Finish);
            let done = progress.done;
            give(progress.output)?;
            if done {
                return Ok(());
            }
        }
    }

    /// Appends the compressed stream of `data` to `out`.
    pub fn append(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.0.reset();
        let mut end = out.len();
        loop {
            out.resize(end + (data.len() / 2).clamp(256, 1 << 20), 0);
            let progress = self.0.compress(data, &mut out[end..], Flush::Finish);
            end += progress.output.len();
            if progress.done {
                break;
            }
        }
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_must_fit_exactly() {
        let (mut deflate, mut inflate) = (Deflate::new(6), Inflate::default());
        let mut reused = Vec::new();
        for len in [0usize, 1, 2, 255, 4096, 300_000] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let mut packed = Vec::new();
            deflate.append(&data, &mut packed);
            let packed_len = packed.len();
            packed.extend_from_slice(b"what follows");
            let mut out = vec![0; len];
            assert_eq!(inflate.exact(&packed, &mut out), Some(packed_len), "{len}");
            assert_eq!(out, data);
            assert_eq!(inflate.exact_vec(&packed, len, &mut reused), Some(packed_len), "{len}");
            assert_eq!(reused, data);
            assert_eq!(inflate.exact_vec(&packed, len + 1, &mut reused), None);
            assert_eq!(inflate.exact_vec(&packed[..packed_len - 1], len, &mut reused), None);
            let mut start = [0; 20];
            let n = inflate.prefix(&packed, &mut start).unwrap();
            assert_eq!(start[..n], data[..len.min(20)], "{len}");
            assert_eq!(inflate.exact(&packed, &mut vec![0; len + 1]), None);
            if len > 0 {
                assert_eq!(inflate.exact_vec(&packed, len - 1, &mut reused), None);
                assert_eq!(inflate.exact(&packed, &mut vec![0; len - 1]), None);
                assert_eq!(inflate.exact(&packed[..packed_len - 1], &mut out), None);
            }
        }
    }
}
