//! The first pass: reads the pack as it arrives.

use std::io::Read;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use weir_git::{BatchHasher, HashKind, Kind, Oid};
use weir_ground::thread::spawn_scoped;

use super::buffers;
use super::ids::Ids;
use super::input::{Input, SLACK};
use super::links::{Links, Named};
use super::options::{IngestLimits, IngestOptions};
use super::spool::{PackData, PackSpool, SpillFn};
use crate::error::{Error, Result, bad_pack};
use crate::objects::entry::{EntryHead, HEAD_BYTES_MAX, Stored};
use crate::objects::zlib::Inflate;
use crate::progress::Phase;

/// Blobs larger than this are hashed as they are read, and never held whole.
const HELD_BYTES_MAX: u64 = 16 << 20;
/// Commits, trees and tags larger than this are refused: they must be parsed whole.
const PARSED_BYTES_MAX: u64 = 128 << 20;
/// For packs of fewer objects a second thread does not pay.
const THREADED_OBJECTS_MIN: u32 = 5000;
/// About the bytes that an object takes in the tables of all passes.
const TABLE_BYTES: usize = 64;
const BATCH_BYTES: usize = 256 << 10;
/// The most batches of whole objects on their way to the hashing thread.
const BATCHES_IN_FLIGHT_MAX: usize = 16;

/// One entry of the pack: 16 bytes. Its head is parsed again where needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackEntry {
    pub(crate) offset: u64,
    pub(crate) crc32: u32,
    base: u32,
}

/// The base of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryBase {
    Whole(Kind),
    /// The entry with this number.
    Entry(u32),
    /// The id with this number in [`Streamed::base_ids`].
    Id(u32),
}

/// The most objects of a pack: numbers above it tell ids and kinds apart.
const OBJECTS_MAX: u32 = BASE_ID - 1;
/// Numbers from here on stand for ids, and the last four for kinds.
const BASE_ID: u32 = 1 << 31;
const KINDS: [Kind; 4] = [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag];
const FIRST_KIND: u32 = u32::MAX - 3;

impl PackEntry {
    pub(crate) fn new(offset: u64, crc32: u32, base: EntryBase) -> PackEntry {
        let base = match base {
            EntryBase::Entry(n) => n,
            EntryBase::Id(n) => BASE_ID + n,
            EntryBase::Whole(kind) => FIRST_KIND + KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u32,
        };
        PackEntry { offset, crc32, base }
    }

    pub(crate) fn base(&self) -> EntryBase {
        match self.base {
            n if n < BASE_ID => EntryBase::Entry(n),
            n if n < FIRST_KIND => EntryBase::Id(n - BASE_ID),
            n => EntryBase::Whole(KINDS[(n - FIRST_KIND) as usize]),
        }
    }
}

/// The pack after the first pass.
pub(crate) struct Streamed<'a> {
    pub(crate) hash: HashKind,
    pub(crate) data: PackData,
    pub(crate) entries: Vec<PackEntry>,
    pub(crate) base_ids: Vec<Oid>,
    /// The ids of whole objects, by entry number.
    pub(crate) ids: Ids,
    /// The objects that whole objects name.
    pub(crate) named: Named,
    pub(crate) links: Links<'a>,
    pub(crate) checksum: Oid,
    /// Where [`Streamed::kept_delta`] finds inflated deltas, by entry number, or [`NOT_KEPT`].
    delta_starts: Vec<u32>,
    delta_bytes: Vec<u8>,
    /// The bytes of all whole objects.
    pub(crate) inflated_bytes: u64,
    /// The content of whole objects by entry number, ascending, as far as memory allows. Most are bases; each
    /// is taken once.
    pub(crate) kept: Vec<(u32, Mutex<Vec<u8>>)>,
}

const NOT_KEPT: u32 = u32::MAX;
/// The length in front of each delta that is kept.
const LENGTH_BYTES: usize = size_of::<u32>();

impl Streamed<'_> {
    /// Returns the head of entry `n`, which was parsed when the pack was received.
    pub(crate) fn head(&self, n: u32) -> Result<EntryHead> {
        let offset = self.entries[n as usize].offset;
        let head = EntryHead::parse(self.hash, &self.data[offset as usize..]);
        head.map_or_else(|| bad_pack(format!("no entry at byte {offset}")), Ok)
    }

    /// Returns the inflated delta of entry `n`, if it is kept.
    pub(crate) fn kept_delta(&self, n: u32) -> Option<&[u8]> {
        let start = self.delta_starts[n as usize];
        let (len, rest) =
            self.delta_bytes.get(start as usize..).filter(|_| start != NOT_KEPT)?.split_first_chunk()?;
        rest.get(..u32::from_le_bytes(*len) as usize)
    }

    /// Releases the memory of deltas and kept objects.
    pub(crate) fn drop_deltas(&mut self) {
        buffers::give(std::mem::take(&mut self.delta_bytes));
        self.delta_starts = Vec::new();
        self.kept = Vec::new();
    }
}

/// Whole objects on their way to be hashed.
type WholeObjects = Vec<WholeObject>;

/// The most bytes of whole objects kept for the second pass. A small pack is kept whole, so nothing of it is
/// inflated twice.
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
    named: Named,
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
        // Objects are added in the order they are hashed; lookups expect the order of the pack.
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

/// Where the reading thread sends whole objects.
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
                    // The receiver is gone only after an error of its own, which is reported instead of this
                    // one.
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
    let mut input = Input::new(inner, PackSpool::new(spill, options.arriving), options);
    let count = read_header(&mut input, options)?;
    let whole = WholeHasher {
        hasher: BatchHasher::new(hash),
        links: Links::new(hash, count, options.shallow),
        named: Named::new(hash, count),
        ids: Ids::new(hash),
        kept: Vec::new(),
        kept_bytes: 0,
    };
    // The memory that the tables need is not available for deltas.
    let delta_bytes_max = options
        .delta_bytes_max
        .saturating_sub(count as usize * TABLE_BYTES)
        .max(options.delta_bytes_max / 16);
    let mut entries = Entries {
        count,
        hash,
        limits: &options.limits,
        delta_bytes_max,
        parts: Parts {
            delta_bytes: buffers::take(),
            entries: Vec::with_capacity(count.min(THREADED_OBJECTS_MIN) as usize),
            ..Parts::default()
        },
    };
    let mut whole = if count < THREADED_OBJECTS_MIN || options.threads < 2 {
        entries.read_inline(&mut input, whole)?
    } else {
        entries.read_threaded(&mut input, whole)?
    };
    let parts = entries.parts;
    whole.ids.grow(count as usize);
    for (entry, oid) in &parts.large {
        whole.ids.set(*entry, oid);
    }
    let checksum = input.read_trailer(hash)?;
    Ok(Streamed {
        hash,
        data: input.finish()?,
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

/// Reads the header. Returns the number of objects that the pack claims to hold, if it is within the limits.
fn read_header(input: &mut Input<'_, '_>, options: &IngestOptions<'_>) -> Result<u32> {
    // The first byte may take long: the upstream counts its objects before it sends any.
    options.progress.begin(Phase::Receiving, 0);
    let header = input.ensure(12)?;
    if header.len() < 12 {
        return bad_pack(if header.is_empty() { "it is empty" } else { "its header is cut off" });
    }
    if header[..4] != *b"PACK" || !matches!(header[4..8], [0, 0, 0, 2 | 3]) {
        return bad_pack("it does not start as a version 2 pack");
    }
    let count = u32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
    if count > options.limits.objects_max.min(OBJECTS_MAX) {
        return Err(Error::Limit {
            what: format!("{count} objects"),
            limit: options.limits.objects_max.min(OBJECTS_MAX).into(),
            option: "limits.objects_max",
        });
    }
    input.consume(12);
    options.progress.begin(Phase::Receiving, count.into());
    Ok(count)
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

/// Reads the entries of a pack, one after the other.
struct Entries<'a> {
    count: u32,
    hash: HashKind,
    limits: &'a IngestLimits,
    /// The most bytes of inflated deltas that are kept for the second pass.
    delta_bytes_max: usize,
    parts: Parts,
}

impl Entries<'_> {
    fn read_inline<'a>(
        &mut self,
        input: &mut Input<'_, '_>,
        mut whole: WholeHasher<'a>,
    ) -> Result<WholeHasher<'a>> {
        self.read(input, &mut Sink::Inline(&mut whole))?;
        whole.finish()?;
        Ok(whole)
    }

    /// Reads the entries, and hashes on a second thread.
    fn read_threaded<'a>(
        &mut self,
        input: &mut Input<'_, '_>,
        whole: WholeHasher<'a>,
    ) -> Result<WholeHasher<'a>> {
        input.enlarge();
        let (sender, receiver) = sync_channel(BATCHES_IN_FLIGHT_MAX);
        std::thread::scope(|scope| {
            let hashing = spawn_scoped("hash", scope, move || whole.run(receiver))?;
            let mut sink = Sink::Thread { sender, batch: Vec::new(), batch_bytes: 0 };
            let read = self.read(input, &mut sink);
            if let Sink::Thread { sender, batch, .. } = sink {
                let _ = sender.send(batch);
            }
            let hashed = hashing.join().expect("hashing does not panic");
            // An error of the hashing thread is the cause of an error here.
            hashed.and_then(|whole| read.map(|()| whole))
        })
    }

    fn read(&mut self, input: &mut Input<'_, '_>, sink: &mut Sink<'_, '_>) -> Result<()> {
        let mut inflate = Inflate::default();
        for number in 0..self.count {
            let offset = input.begin_entry(number);
            let head = self.head(input, number, offset)?;
            let base = self.base(input, &head, offset)?;
            input.consume(head.len);
            match base {
                EntryBase::Whole(kind) => {
                    self.take_whole(input, &mut inflate, number, kind, head.size, sink)?;
                }
                EntryBase::Entry(_) | EntryBase::Id(_) => self.take_delta(input, &mut inflate, head.size)?,
            }
            let crc32 = input.end_entry();
            self.parts.entries.push(PackEntry::new(offset, crc32, base));
        }
        Ok(())
    }

    /// Returns the head of entry `number`, at byte `offset`.
    fn head(&self, input: &mut Input<'_, '_>, number: u32, offset: u64) -> Result<EntryHead> {
        let at_hand = input.ensure(HEAD_BYTES_MAX)?;
        let Some(head) = EntryHead::parse(self.hash, at_hand) else {
            let count = self.count;
            return if at_hand.len() < HEAD_BYTES_MAX {
                bad_pack(format!("it says {count} objects and ends after {number}"))
            } else {
                bad_pack(format!("no entry at byte {offset}, where object {number} of {count} should start"))
            };
        };
        if head.size > self.limits.object_bytes_max {
            return Err(Error::Limit {
                what: format!("an object of {} bytes", head.size),
                limit: self.limits.object_bytes_max,
                option: "limits.object_bytes_max",
            });
        }
        Ok(head)
    }

    /// Returns the base of the entry with this head, which is at byte `offset` and next in `input`.
    fn base(&mut self, input: &Input<'_, '_>, head: &EntryHead, offset: u64) -> Result<EntryBase> {
        let parts = &mut self.parts;
        Ok(match head.stored {
            Stored::Whole(kind) => EntryBase::Whole(kind),
            Stored::OfsDelta(distance) => {
                let found = offset
                    .checked_sub(distance)
                    .and_then(|at| parts.entries.binary_search_by_key(&at, |e| e.offset).ok());
                let Some(base) = found else {
                    return bad_pack(format!("the delta at byte {offset} has no base"));
                };
                EntryBase::Entry(base as u32)
            }
            Stored::RefDelta(at) => {
                let id = &input.at_hand()[at..at + self.hash.len()];
                parts.base_ids.push(Oid::from_bytes(self.hash, id).expect("of its length"));
                EntryBase::Id(parts.base_ids.len() as u32 - 1)
            }
        })
    }

    fn take_whole(
        &mut self,
        input: &mut Input<'_, '_>,
        inflate: &mut Inflate,
        number: u32,
        kind: Kind,
        size: u64,
        sink: &mut Sink<'_, '_>,
    ) -> Result<()> {
        self.parts.inflated_bytes += size;
        check_inflated(self.parts.inflated_bytes, self.limits)?;
        if size > HELD_BYTES_MAX && kind == Kind::Blob {
            self.parts.large.push((number, input.hash_large(self.hash, inflate, size)?));
        } else if size > PARSED_BYTES_MAX {
            return bad_pack(format!("a {} of {size} bytes", kind.name()));
        } else {
            let size = size as usize;
            let mut data = vec![0; size + SLACK];
            input.inflate(inflate, &mut data, size)?;
            data.truncate(size);
            sink.take(WholeObject { entry: number, kind, data })?;
        }
        self.parts.delta_starts.push(NOT_KEPT);
        Ok(())
    }

    fn take_delta(&mut self, input: &mut Input<'_, '_>, inflate: &mut Inflate, size: u64) -> Result<()> {
        let parts = &mut self.parts;
        let start = parts.delta_bytes.len();
        // Starts are 32-bit, and `NOT_KEPT` is the highest of them.
        let room = self.delta_bytes_max.min(NOT_KEPT as usize - 1).saturating_sub(start + LENGTH_BYTES);
        if size as usize > room {
            input.skip(size)?;
            parts.delta_starts.push(NOT_KEPT);
            return Ok(());
        }
        let (data, size) = (start + LENGTH_BYTES, size as usize);
        parts.delta_bytes.extend_from_slice(&(size as u32).to_le_bytes());
        parts.delta_bytes.resize(data + size + SLACK, 0);
        input.inflate(inflate, &mut parts.delta_bytes[data..], size)?;
        parts.delta_bytes.truncate(data + size);
        parts.delta_starts.push(start as u32);
        Ok(())
    }
}

/// Refuses a pack whose objects together have too many bytes.
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
