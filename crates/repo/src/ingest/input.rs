//! The input of an ingest: the bytes of the pack are summed, spooled, and inflated as they are read.

use std::io::{self, Read};

use sirocco::Format;
use sirocco::inflate::Scanner;
use weir_git::{HashKind, Kind, ObjectHasher, Oid, PlainHasher, plain_sha};

use super::buffers;
use super::options::IngestOptions;
use super::spool::{PackData, PackSpool};
use crate::error::{Error, Result, bad_pack};
use crate::objects::zlib::Inflate;
use crate::progress::Progress;

const BUFFER_BYTES: usize = 64 << 10;
const LARGE_BUFFER_BYTES: usize = 1 << 20;
/// The spare bytes behind an object in the output of [`Input::inflate`].
pub(super) const SLACK: usize = 16;

/// A pack that is being received: read through a buffer, summed, and written to the spool.
pub(super) struct Input<'a, 's> {
    inner: &'a mut dyn Read,
    spool: PackSpool<'s>,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// The offset in the pack of `buf[start]`.
    position: u64,
    /// Everything in `buf` before these marks is in the checksum and in the CRC.
    sum_mark: usize,
    crc_mark: usize,
    sum: PlainHasher,
    crc: crc32fast::Hasher,
    pack_bytes_max: u64,
    progress: &'a Progress,
}

impl<'a, 's> Input<'a, 's> {
    pub(super) fn new(
        inner: &'a mut dyn Read,
        spool: PackSpool<'s>,
        options: &IngestOptions<'a>,
    ) -> Input<'a, 's> {
        let mut buf = buffers::take();
        buf.resize(BUFFER_BYTES, 0);
        Input {
            inner,
            spool,
            buf,
            start: 0,
            end: 0,
            position: 0,
            sum_mark: 0,
            crc_mark: 0,
            sum: plain_sha(options.hash),
            crc: crc32fast::Hasher::new(),
            pack_bytes_max: options.limits.pack_bytes_max,
            progress: options.progress,
        }
    }

    /// Reads more at a time, for a large pack.
    pub(super) fn enlarge(&mut self) {
        self.buf.resize(LARGE_BUFFER_BYTES, 0);
    }

    /// Returns the bytes that have been read and not consumed.
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Begins entry `number`; returns its offset in the pack.
    pub(super) fn begin_entry(&mut self, number: u32) -> u64 {
        self.progress.set_done(number.into());
        self.flush_marks();
        self.crc = crc32fast::Hasher::new();
        self.position
    }

    /// Ends an entry; returns the CRC-32 of its bytes.
    pub(super) fn end_entry(&mut self) -> u32 {
        self.flush_marks();
        self.crc.clone().finalize()
    }

    /// Reads the pack's checksum, which must be right and come last.
    pub(super) fn read_trailer(&mut self, hash: HashKind) -> Result<Oid> {
        self.flush_marks();
        let computed = self.sum.clone().finish();
        let trailer = self.ensure(hash.len())?;
        let Some(checksum) = trailer.get(..hash.len()).and_then(|t| Oid::from_bytes(hash, t)) else {
            return self.cut_off();
        };
        if checksum != computed {
            return bad_pack("its checksum is wrong");
        }
        self.consume(hash.len());
        if self.start < self.end || self.fill()? {
            return bad_pack("bytes follow its end");
        }
        Ok(checksum)
    }

    /// Returns the whole pack, as it was spooled.
    pub(super) fn finish(self) -> Result<PackData> {
        buffers::give(self.buf);
        Ok(self.spool.finish()?)
    }

    fn flush_marks(&mut self) {
        self.sum.update(&self.buf[self.sum_mark..self.start]);
        self.crc.update(&self.buf[self.crc_mark..self.start]);
        (self.sum_mark, self.crc_mark) = (self.start, self.start);
    }

    /// Reads more; returns false at the end of the input.
    fn fill(&mut self) -> Result<bool> {
        if self.start > 0 {
            self.flush_marks();
            self.buf.copy_within(self.start..self.end, 0);
            (self.end, self.start) = (self.end - self.start, 0);
            (self.sum_mark, self.crc_mark) = (0, 0);
        }
        loop {
            match self.inner.read(&mut self.buf[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    let read = self.position + (self.end + n - self.start) as u64;
                    if read > self.pack_bytes_max {
                        return Err(Error::Limit {
                            what: format!("more than {} bytes", self.pack_bytes_max),
                            limit: self.pack_bytes_max,
                            option: "limits.pack_bytes_max",
                        });
                    }
                    self.progress.set_bytes(read);
                    self.spool.write(&self.buf[self.end..self.end + n])?;
                    self.end += n;
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Makes at least `n` bytes available, fewer only at the end of the input.
    pub(super) fn ensure(&mut self, n: usize) -> Result<&[u8]> {
        while self.end - self.start < n {
            if !self.fill()? {
                break;
            }
        }
        Ok(self.at_hand())
    }

    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
        self.position += n as u64;
    }

    fn cut_off<T>(&self) -> Result<T> {
        bad_pack(format!("it ends after {} bytes, in the middle", self.position))
    }

    /// Inflates the stream at hand into `out`, whose last [`SLACK`] bytes catch output that is too long.
    pub(super) fn inflate(&mut self, inflate: &mut Inflate, out: &mut [u8], size: usize) -> Result<()> {
        // Stored blocks are the longest that a sane encoder makes: 5 bytes every 16 KiB, and zlib's own 6.
        let bound = size + size / 1024 + 64;
        if self.end - self.start >= bound
            && let Some(consumed) = inflate.exact(&self.buf[self.start..self.start + bound], &mut out[..size])
        {
            self.consume(consumed);
            return Ok(());
        }
        let decoder = inflate.decoder();
        decoder.reset();
        let mut produced = 0;
        loop {
            let Ok(progress) = decoder.decompress(&self.buf[self.start..self.end], out, false) else {
                return bad_pack(format!("bad compressed data before byte {}", self.position));
            };
            produced += progress.output.len();
            let (consumed, done) = (progress.consumed, progress.done);
            self.consume(consumed);
            if produced > size || (done && produced != size) {
                return bad_pack(format!(
                    "the object before byte {} is not of the size it says",
                    self.position
                ));
            }
            if done {
                return Ok(());
            }
            if self.start == self.end && !self.fill()? {
                return self.cut_off();
            }
        }
    }

    /// Finds the end of the stream at hand without keeping its output.
    pub(super) fn skip(&mut self, size: u64) -> Result<()> {
        let mut scanner = Scanner::new(Format::Zlib);
        loop {
            let Ok(found) = scanner.scan(&self.buf[self.start..self.end], false) else {
                return bad_pack(format!("bad compressed data before byte {}", self.position));
            };
            self.consume(found.unwrap_or(self.end - self.start));
            if scanner.total_out() > size || (found.is_some() && scanner.total_out() != size) {
                return bad_pack(format!(
                    "the object before byte {} is not of the size it says",
                    self.position
                ));
            }
            if found.is_some() {
                return Ok(());
            }
            if !self.fill()? {
                return self.cut_off();
            }
        }
    }

    /// Hashes the blob at hand through a window.
    pub(super) fn hash_large(&mut self, hash: HashKind, inflate: &mut Inflate, size: u64) -> Result<Oid> {
        let mut hasher = ObjectHasher::object(hash, Kind::Blob, size);
        let mut window = vec![0; 512 << 10];
        let decoder = inflate.decoder();
        decoder.reset();
        let mut produced = 0u64;
        loop {
            let Ok(progress) = decoder.decompress(&self.buf[self.start..self.end], &mut window, false) else {
                return bad_pack(format!("bad compressed data before byte {}", self.position));
            };
            hasher.update(progress.output);
            produced += progress.output.len() as u64;
            let (consumed, done, full) = (progress.consumed, progress.done, progress.full);
            self.consume(consumed);
            if produced > size || (done && produced != size) {
                return bad_pack(format!(
                    "the object before byte {} is not of the size it says",
                    self.position
                ));
            }
            if done {
                return Ok(hasher.finish()?);
            }
            if full {
                decoder.make_room(&mut window);
            } else if self.start == self.end && !self.fill()? {
                return self.cut_off();
            }
        }
    }
}
