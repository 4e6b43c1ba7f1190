//! First pass: reads the pack as it arrives.

use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sirocco::Format;
use sirocco::inflate::Scanner;
use weir_git::{BatchHasher, HashKind, Kind, ObjectHasher, Oid, PlainHasher, plain_sha};

use super::buffers;
use super::ids::Ids;
use super::links::{Links, NamedId};
use super::options::{IngestLimits, IngestOptions};
use super::spool::{PackData, PackSpool, SpillFn};
use crate::error::{Error, Result, bad_pack};
use crate::objects::entry::{EntryHead, HEAD_BYTES_MAX, Stored};
use crate::objects::zlib::Inflate;
use crate::progress::{Phase, Progress};

/// Blobs larger than this are hashed as they stream by and never held whole.
const HELD_BYTES_MAX: u64 = 16 << 20;
/// Commits, trees and tags larger than this are refused: they must be parsed whole.
const PARSED_BYTES_MAX: u64 = 128 << 20;
/// Packs of fewer objects are not worth a second thread.
const THREADED_OBJECTS_MIN: u32 = 5000;
/// What an object takes in the tables of all passes, about.
const TABLE_BYTES: usize = 64;
const BUFFER_BYTES: usize = 64 << 10;
const LARGE_BUFFER_BYTES: usize = 1 << 20;
const BATCH_BYTES: usize = 256 << 10;
/// Batches of whole objects on their way to the hashing thread.
const BATCHES_IN_FLIGHT_MAX: usize = 16;

/// One entry of the pack: 16 bytes. Its head is parsed again where it is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackEntry {
    pub(crate) offset: u64,
    pub(crate) crc32: u32,
    base: u32,
}

/// What an entry builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryBase {
    WholeHasher(Kind),
    /// The entry with this number.
    PackEntry(u32),
    /// The id with this number in [`Streamed::base_ids`].
    Id(u32),
}

/// Objects of a pack at most: what tells kinds of bases apart is in their numbers.
const OBJECTS_MAX: u32 = BASE_ID - 1;
/// Numbers from here on are those of ids, the last ones those of kinds.
const BASE_ID: u32 = 1 << 31;
const KINDS: [Kind; 4] = [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag];
const FIRST_KIND: u32 = u32::MAX - 3;

impl PackEntry {
    pub(crate) fn new(offset: u64, crc32: u32, base: EntryBase) -> PackEntry {
        let base = match base {
            EntryBase::PackEntry(n) => n,
            EntryBase::Id(n) => BASE_ID + n,
            EntryBase::WholeHasher(kind) => {
                FIRST_KIND + KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u32
            }
        };
        PackEntry { offset, crc32, base }
    }

    pub(crate) fn base(&self) -> EntryBase {
        match self.base {
            n if n < BASE_ID => EntryBase::PackEntry(n),
            n if n < FIRST_KIND => EntryBase::Id(n - BASE_ID),
            n => EntryBase::WholeHasher(KINDS[(n - FIRST_KIND) as usize]),
        }
    }
}

/// The pack after the first pass.
pub(crate) struct Streamed<'a> {
    pub(crate) hash: HashKind,
    pub(crate) data: PackData,
    pub(crate) entries: Vec<PackEntry>,
    pub(crate) base_ids: Vec<Oid>,
    /// Ids by entry number: those of whole objects.
    pub(crate) ids: Ids,
    /// What whole objects name.
    pub(crate) named: NamedId,
    pub(crate) links: Links<'a>,
    pub(crate) checksum: Oid,
    /// Inflated deltas by entry number: where [`Streamed::kept_delta`] finds them, or [`NOT_KEPT`].
    delta_starts: Vec<u32>,
    delta_bytes: Vec<u8>,
    /// Bytes of all whole objects.
    pub(crate) inflated_bytes: u64,
    /// Content of whole objects by entry number, ascending, as far as memory allows: most are bases, each
    /// taken once.
    pub(crate) kept: Vec<(u32, Mutex<Vec<u8>>)>,
}

const NOT_KEPT: u32 = u32::MAX;
/// The length that stands before each delta that is kept.
const LENGTH_BYTES: usize = size_of::<u32>();

impl Streamed<'_> {
    /// The head of entry `n`, which was parsed when it came.
    pub(crate) fn head(&self, n: u32) -> Result<EntryHead> {
        let offset = self.entries[n as usize].offset;
        let head = EntryHead::parse(self.hash, &self.data[offset as usize..]);
        head.map_or_else(|| bad_pack(format!("no entry at byte {offset}")), Ok)
    }

    /// The inflated delta of entry `n`, if it is kept.
    pub(crate) fn kept_delta(&self, n: u32) -> Option<&[u8]> {
        let start = self.delta_starts[n as usize];
        let (len, rest) =
            self.delta_bytes.get(start as usize..).filter(|_| start != NOT_KEPT)?.split_first_chunk()?;
        rest.get(..u32::from_le_bytes(*len) as usize)
    }

    /// Gives the memory of deltas back.
    pub(crate) fn drop_deltas(&mut self) {
        buffers::give(std::mem::take(&mut self.delta_bytes));
        self.delta_starts = Vec::new();
        self.kept = Vec::new();
    }
}

struct Input<'a, 's> {
    inner: &'a mut dyn Read,
    spool: PackSpool<'s>,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the pack of `buf[start]`.
    position: u64,
    /// Everything in `buf` before these is in the checksum and in the CRC.
    sum_mark: usize,
    crc_mark: usize,
    sum: PlainHasher,
    crc: crc32fast::Hasher,
    pack_bytes_max: u64,
    progress: &'a Progress,
}

impl Input<'_, '_> {
    fn flush_marks(&mut self) {
        self.sum.update(&self.buf[self.sum_mark..self.start]);
        self.crc.update(&self.buf[self.crc_mark..self.start]);
        (self.sum_mark, self.crc_mark) = (self.start, self.start);
    }

    /// Reads more; false at the end of the input.
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

    /// Has at least `n` bytes at hand, fewer only at the end of the input.
    fn ensure(&mut self, n: usize) -> Result<&[u8]> {
        while self.end - self.start < n {
            if !self.fill()? {
                break;
            }
        }
        Ok(&self.buf[self.start..self.end])
    }

    fn consume(&mut self, n: usize) {
        self.start += n;
        self.position += n as u64;
    }

    fn cut_off<T>(&self) -> Result<T> {
        bad_pack(format!("it ends after {} bytes, in the middle", self.position))
    }

    /// Inflates the stream at hand into `out`, whose last [`SLACK`] bytes catch what is too long.
    fn inflate(&mut self, inflate: &mut Inflate, out: &mut [u8], size: usize) -> Result<()> {
        // Stored blocks are the longest a sane encoder makes: 5 bytes every 16 KiB, and zlib's own 6.
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
    fn skip(&mut self, size: u64) -> Result<()> {
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
    fn hash_large(&mut self, hash: HashKind, inflate: &mut Inflate, size: u64) -> Result<Oid> {
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

const SLACK: usize = 16;

/// Whole objects on their way to be hashed.
type WholeObjects = Vec<WholeObject>;

/// Whole objects kept for the second pass, in bytes: all of a small pack, so that nothing of it is inflated
/// twice.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A whole object on its way to be hashed.
struct WholeObject {
    entry: u32,
    kind: Kind,
    data: Vec<u8>,
}

impl AsRef<[u8]> for WholeObject {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Hashes whole objects and gathers their links.
struct WholeHasher<'a> {
    hasher: BatchHasher<WholeObject>,
    links: Links<'a>,
    named: NamedId,
    ids: Ids,
    kept: Vec<(u32, Mutex<Vec<u8>>)>,
    kept_bytes: usize,
}

impl WholeHasher<'_> {
    fn take(&mut self, object: WholeObject) -> Result<()> {
        self.hasher.push(object.kind, object);
        self.take_hashed()
    }

    fn take_hashed(&mut self) -> Result<()> {
        while let Some((WholeObject { entry, kind, data }, oid)) = self.hasher.pop() {
            let oid = oid?;
            self.links.add(&self.named, entry, &oid, kind, &data)?;
            self.ids.grow(entry as usize + 1);
            self.ids.set(entry, &oid);
            // Commits are seldom bases.
            if kind != Kind::Commit && self.kept_bytes + data.len() <= KEPT_BYTES_MAX {
                self.kept_bytes += data.len();
                self.kept.push((entry, Mutex::new(data)));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.hasher.flush();
        self.take_hashed()?;
        // They come out as they are hashed; those who look for one expect the order of the pack.
        self.kept.sort_unstable_by_key(|k| k.0);
        Ok(())
    }

    fn run(mut self, batches: Receiver<WholeObjects>) -> Result<Self> {
        for batch in batches {
            for object in batch {
                self.take(object)?;
            }
        }
        self.finish()?;
        Ok(self)
    }
}

/// Where whole objects go from the reading thread.
enum Sink<'s, 'a> {
    Inline(&'s mut WholeHasher<'a>),
    Thread { sender: SyncSender<WholeObjects>, batch: WholeObjects, batch_bytes: usize },
}

impl Sink<'_, '_> {
    fn take(&mut self, object: WholeObject) -> Result<()> {
        match self {
            Sink::Inline(whole) => whole.take(object),
            Sink::Thread { sender, batch, batch_bytes } => {
                *batch_bytes += object.data.len() + 64;
                batch.push(object);
                if *batch_bytes >= BATCH_BYTES {
                    *batch_bytes = 0;
                    // The receiver is gone only after an error of its own, which is reported in this one's
                    // place.
                    if sender.send(std::mem::take(batch)).is_err() {
                        return bad_pack("an object of it is invalid");
                    }
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn stream<'a>(
    inner: &mut dyn Read,
    spill: SpillFn<'_>,
    options: &IngestOptions<'a>,
) -> Result<Streamed<'a>> {
    let hash = options.hash;
    let mut input = Input {
        inner,
        spool: PackSpool::new(spill),
        buf: buffers::take(),
        start: 0,
        end: 0,
        position: 0,
        sum_mark: 0,
        crc_mark: 0,
        sum: plain_sha(hash),
        crc: crc32fast::Hasher::new(),
        pack_bytes_max: options.limits.pack_bytes_max,
        progress: options.progress,
    };
    // The first byte may be long in coming: the upstream counts its objects before it sends one.
    options.progress.begin(Phase::Receiving, 0);
    input.buf.resize(BUFFER_BYTES, 0);
    let header = input.ensure(12)?;
    if header.len() < 12 {
        return bad_pack(if header.is_empty() { "it is empty" } else { "its header is cut off" });
    }
    if header[..4] != *b"PACK" || !matches!(header[4..8], [0, 0, 0, 2 | 3]) {
        return bad_pack("it does not start as a version 2 pack");
    }
    let count = u32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
    let objects_max = options.limits.objects_max.min(OBJECTS_MAX);
    if count > objects_max {
        return Err(Error::Limit {
            what: format!("{count} objects"),
            limit: objects_max.into(),
            option: "limits.objects_max",
        });
    }
    input.consume(12);
    options.progress.begin(Phase::Receiving, count.into());
    let shallow = options.shallow;
    let mut whole = WholeHasher {
        hasher: BatchHasher::new(hash),
        links: Links::new(hash, count, shallow),
        named: NamedId::new(hash, count),
        ids: Ids::new(hash),
        kept: Vec::new(),
        kept_bytes: 0,
    };
    // What the tables take of an object is not there for deltas.
    let delta_bytes_max = options
        .delta_bytes_max
        .saturating_sub(count as usize * TABLE_BYTES)
        .max(options.delta_bytes_max / 16);
    let mut parts = Parts {
        delta_bytes: buffers::take(),
        entries: Vec::with_capacity(count.min(THREADED_OBJECTS_MIN) as usize),
        ..Parts::default()
    };
    if count < THREADED_OBJECTS_MIN || options.threads < 2 {
        read_entries(
            &mut input,
            count,
            &options.limits,
            delta_bytes_max,
            &mut Sink::Inline(&mut whole),
            &mut parts,
            hash,
        )?;
        whole.finish()?;
    } else {
        input.buf.resize(LARGE_BUFFER_BYTES, 0);
        let (sender, receiver) = sync_channel(BATCHES_IN_FLIGHT_MAX);
        whole = std::thread::scope(|scope| {
            let hashing = scope.spawn(move || whole.run(receiver));
            let mut sink = Sink::Thread { sender, batch: Vec::new(), batch_bytes: 0 };
            let read = read_entries(
                &mut input,
                count,
                &options.limits,
                delta_bytes_max,
                &mut sink,
                &mut parts,
                hash,
            );
            if let Sink::Thread { sender, batch, .. } = sink {
                let _ = sender.send(batch);
            }
            let hashed = hashing.join().expect("hashing does not panic");
            // An error of the hashing thread is the cause of one here.
            hashed.and_then(|whole| read.map(|()| whole))
        })?;
    }
    whole.ids.grow(count as usize);
    for (entry, oid) in &parts.large {
        whole.ids.set(*entry, oid);
    }
    input.flush_marks();
    let computed = input.sum.clone().finish();
    let trailer = input.ensure(hash.len())?;
    let Some(checksum) = trailer.get(..hash.len()).and_then(|t| Oid::from_bytes(hash, t)) else {
        return input.cut_off();
    };
    if checksum != computed {
        return bad_pack("its checksum is wrong");
    }
    input.consume(hash.len());
    if input.start < input.end || input.fill()? {
        return bad_pack("bytes follow its end");
    }
    buffers::give(input.buf);
    let data = input.spool.finish()?;
    Ok(Streamed {
        hash,
        data,
        entries: parts.entries,
        base_ids: parts.base_ids,
        ids: whole.ids,
        named: whole.named,
        links: whole.links,
        checksum,
        delta_starts: parts.delta_starts,
        delta_bytes: parts.delta_bytes,
        inflated_bytes: parts.inflated_bytes,
        kept: whole.kept,
    })
}

#[derive(Default)]
struct Parts {
    entries: Vec<PackEntry>,
    base_ids: Vec<Oid>,
    large: Vec<(u32, Oid)>,
    delta_starts: Vec<u32>,
    delta_bytes: Vec<u8>,
    inflated_bytes: u64,
}

fn read_entries(
    input: &mut Input<'_, '_>,
    count: u32,
    limits: &IngestLimits,
    delta_bytes_max: usize,
    sink: &mut Sink<'_, '_>,
    parts: &mut Parts,
    hash: HashKind,
) -> Result<()> {
    let mut inflate = Inflate::default();
    for number in 0..count {
        input.progress.set_done(number.into());
        let offset = input.position;
        input.flush_marks();
        input.crc = crc32fast::Hasher::new();
        let Some(head) = EntryHead::parse(hash, input.ensure(HEAD_BYTES_MAX)?) else {
            return if input.end - input.start < HEAD_BYTES_MAX {
                bad_pack(format!("it says {count} objects and ends after {number}"))
            } else {
                bad_pack(format!("no entry at byte {offset}, where object {number} of {count} should start"))
            };
        };
        if head.size > limits.object_bytes_max {
            return Err(Error::Limit {
                what: format!("an object of {} bytes", head.size),
                limit: limits.object_bytes_max,
                option: "limits.object_bytes_max",
            });
        }
        let base = match head.stored {
            Stored::Whole(kind) => EntryBase::WholeHasher(kind),
            Stored::OfsDelta(distance) => {
                let found = offset
                    .checked_sub(distance)
                    .and_then(|at| parts.entries.binary_search_by_key(&at, |e| e.offset).ok());
                let Some(base) = found else {
                    return bad_pack(format!("the delta at byte {offset} has no base"));
                };
                EntryBase::PackEntry(base as u32)
            }
            Stored::RefDelta(at) => {
                let id = &input.buf[input.start + at..input.start + at + hash.len()];
                parts.base_ids.push(Oid::from_bytes(hash, id).expect("of its length"));
                EntryBase::Id(parts.base_ids.len() as u32 - 1)
            }
        };
        input.consume(head.len);
        match base {
            EntryBase::WholeHasher(kind) => {
                parts.inflated_bytes += head.size;
                check_inflated(parts.inflated_bytes, limits)?;
                if head.size > HELD_BYTES_MAX && kind == Kind::Blob {
                    parts.large.push((number, input.hash_large(hash, &mut inflate, head.size)?));
                } else if head.size > PARSED_BYTES_MAX {
                    return bad_pack(format!("a {} of {} bytes", kind.name(), head.size));
                } else {
                    let size = head.size as usize;
                    let mut data = vec![0; size + SLACK];
                    input.inflate(&mut inflate, &mut data, size)?;
                    data.truncate(size);
                    sink.take(WholeObject { entry: number, kind, data })?;
                }
                parts.delta_starts.push(NOT_KEPT);
            }
            EntryBase::PackEntry(_) | EntryBase::Id(_) => {
                let (start, size) = (parts.delta_bytes.len(), head.size as usize);
                // Starts are 32-bit and `NOT_KEPT` is the last of them.
                let kept =
                    size <= delta_bytes_max.min(NOT_KEPT as usize - 1).saturating_sub(start + LENGTH_BYTES);
                if kept {
                    let data = start + LENGTH_BYTES;
                    parts.delta_bytes.extend_from_slice(&(size as u32).to_le_bytes());
                    parts.delta_bytes.resize(data + size + SLACK, 0);
                    input.inflate(&mut inflate, &mut parts.delta_bytes[data..], size)?;
                    parts.delta_bytes.truncate(data + size);
                } else {
                    input.skip(head.size)?;
                }
                parts.delta_starts.push(if kept { start as u32 } else { NOT_KEPT });
            }
        }
        input.flush_marks();
        let crc32 = input.crc.clone().finalize();
        parts.entries.push(PackEntry::new(offset, crc32, base));
    }
    Ok(())
}

/// Refuses a pack whose objects are too many bytes together.
pub(crate) fn check_inflated(bytes: u64, limits: &IngestLimits) -> Result<()> {
    if bytes <= limits.inflated_bytes_max {
        return Ok(());
    }
    Err(Error::Limit {
        what: "the size of all objects".to_owned(),
        limit: limits.inflated_bytes_max,
        option: "limits.inflated_bytes_max",
    })
}
