//! Writes packs for one answer. Stored deltas are copied if the client gets or has their base; the rest is
//! packed again.

use std::io::{self, Read, Seek, Write};

use weir_git::{Kind, Oid, PlainHasher, plain_sha};

use crate::error::{Error, Result, corrupt};
use crate::large::LargeTurn;
use crate::objects::delta::{delta_of, tree_delta};
use crate::objects::entry::{
    DELTA_CHAIN_MAX, Stored, push_ofs_delta_head, push_ref_delta_head, push_whole_head,
};
use crate::objects::lookup::Location;
use crate::objects::lookup::Objects;
use crate::objects::pack::pack_header;
use crate::objects::reader::ObjectReader;
use crate::objects::zlib::Deflate;
use crate::reach::delta_reuse::{Change, Changes};
use crate::reach::history::History;
use crate::select::query::Selection;

/// The zlib level of objects that are packed while a client waits.
const LEVEL: u8 = 1;
const CHUNK_BYTES: usize = 256 << 10;
/// Objects larger than this are not written as changes of others.
const CHANGE_BYTES_MAX: usize = 16 << 20;
/// The longest chain of deltas that changes make, as in git (pack.depth).
const CHANGE_DEPTH_MAX: u16 = 50;
/// How many earlier versions of an object are tried as a base that the client has.
const PREVIOUS_MAX: usize = 64;

/// The content of a pack, and how it is to be written.
pub struct PackPlan {
    /// Objects in packs, in the order they lie there.
    packed: Vec<EntryPlace>,
    loose: Vec<Oid>,
    selection: Selection,
    thin: bool,
    ofs_delta: bool,
}

/// The place of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EntryPlace {
    pack: u32,
    offset: u64,
    end: u64,
    rank: u32,
}

/// What was written of the packed objects of a plan, in their order.
#[derive(Default)]
struct WrittenEntries {
    /// Where each begins.
    offsets: Vec<u64>,
    /// How many deltas each is made of.
    depths: Vec<u16>,
}

/// The numbers of objects in a written pack, by their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenPack {
    /// The number of objects.
    pub count: u32,
    /// The number of deltas.
    pub deltas: u32,
    /// The number of deltas that were copied.
    pub copied_deltas: u32,
    /// The number of objects whose stored form was copied.
    pub copied: u32,
}

impl PackPlan {
    /// Plans a pack of the selected objects. `thin`: deltas may build on what the client has. `ofs_delta`:
    /// the client understands ofs-deltas.
    ///
    /// # Errors
    /// If an object is missing or an index corrupt.
    pub fn new(history: &History, selection: Selection, thin: bool, ofs_delta: bool) -> Result<PackPlan> {
        let objects = history.objects();
        let mut packed = Vec::with_capacity(selection.objects.len());
        let mut loose = Vec::new();
        for oid in &selection.objects {
            match objects.locate(oid).ok_or(Error::Missing(*oid))? {
                Location::Packed { pack, position } => {
                    let rank = objects.packs[pack as usize].rank(position)?;
                    let (_, offset, end) = objects.packs[pack as usize].extent(rank)?;
                    packed.push(EntryPlace { pack, offset, end, rank });
                }
                Location::Loose(_) => loose.push(*oid),
            }
        }
        debug_assert!(selection.ranks.is_sorted_by(|a, b| a < b), "ranks are out of order");
        for run in selection.ranks.chunk_by(|a, b| (a.0, a.1 + 1) == *b) {
            let (pack, first) = run[0];
            let starts = objects.packs[pack as usize].starts(first, run[run.len() - 1].1)?;
            packed.extend(starts.windows(2).zip(first..).map(|(w, rank)| EntryPlace {
                pack,
                offset: w[0],
                end: w[1],
                rank,
            }));
        }
        packed.sort_unstable();
        debug_assert!(packed.is_sorted_by(|a, b| a < b), "an object is planned twice");
        Ok(PackPlan { packed, loose, selection, thin, ofs_delta })
    }

    /// Returns the number of objects.
    pub fn count(&self) -> u32 {
        (self.packed.len() + self.loose.len()) as u32
    }

    /// Writes the pack to `out`, chunk by chunk.
    ///
    /// # Errors
    /// If `out` fails, or if an object is corrupt. Then the pack is cut short and has no trailer.
    pub fn write(&self, history: &History, out: &mut dyn Write) -> Result<WrittenPack> {
        let objects = history.objects();
        let mut writer = PackWriter::new(objects, out, self.count())?;
        let count = self.packed.len();
        let mut done =
            WrittenEntries { offsets: Vec::with_capacity(count), depths: Vec::with_capacity(count) };
        while let Some(place) = self.packed.get(done.offsets.len()) {
            debug_assert_eq!(done.offsets.len(), done.depths.len(), "an entry has no depth");
            let (run, deltas) = self.verbatim_run(history, &mut done.depths)?;
            if let Some(last) = run.last() {
                let position = writer.position();
                done.offsets.extend(run.iter().map(|p| position + (p.offset - place.offset)));
                (writer.copied, writer.copied_deltas, writer.deltas) =
                    (writer.copied + run.len() as u32, writer.copied_deltas + deltas, writer.deltas + deltas);
                writer.copy(
                    &objects.packs[place.pack as usize].data()[place.offset as usize..last.end as usize],
                )?;
            } else {
                done.offsets.push(writer.position());
                let depth = self.write_packed(history, &mut writer, &done, place)?;
                done.depths.push(depth);
            }
        }
        for oid in &self.loose {
            writer.repack(oid)?;
        }
        let (deltas, copied, copied_deltas) = (writer.deltas, writer.copied, writer.copied_deltas);
        writer.finish()?;
        Ok(WrittenPack { count: self.count(), deltas, copied_deltas, copied })
    }

    fn client_has(&self, history: &History, oid: &Oid) -> Result<bool> {
        let objects = history.objects();
        if self.selection.client_has.contains(oid) {
            return Ok(true);
        }
        let (Some(numbers), Some(location)) = (&self.selection.client_numbers, objects.locate(oid)) else {
            return Ok(false);
        };
        Ok(objects.number(location)?.is_some_and(|n| numbers.get(n)))
    }

    /// Returns the next entries that lie one after the other and can be copied as they are, heads included,
    /// in one piece, and adds their depths to `depths`, which has those of all entries before. Also returns
    /// how many of them are deltas. Returns none if only the first entry can be copied.
    fn verbatim_run(&self, history: &History, depths: &mut Vec<u16>) -> Result<(&[EntryPlace], u32)> {
        let objects = history.objects();
        let first = depths.len();
        let rest = &self.packed[first..];
        let start = rest[0];
        let follows = |a: &EntryPlace, b: &EntryPlace| a.pack == b.pack && a.end == b.offset;
        if rest.len() < 2 || !follows(&start, &rest[1]) {
            return Ok((&[], 0));
        }
        let pack = &objects.packs[start.pack as usize];
        let may_change = self.thin && !self.selection.previous.is_empty();
        let (mut len, mut deltas) = (0, 0);
        for place in rest {
            let is_next = len == 0 || follows(&rest[len - 1], place);
            if !is_next || (place.end - start.offset) as usize > CHUNK_BYTES {
                break;
            }
            let head = pack.entry(place.offset)?;
            let mut depth = 0;
            match head.stored {
                // An entry without an end is corrupt. That is reported when it is written by itself.
                _ if place.offset + head.len as u64 >= place.end => break,
                Stored::Whole(kind) if !may_change || !matches!(kind, Kind::Tree | Kind::Blob) => {}
                // The base is in the run, too, at the same distance.
                Stored::OfsDelta(distance) if self.ofs_delta && place.offset - distance >= start.offset => {
                    let base = place.offset - distance;
                    let Ok(base) = rest[..len].binary_search_by_key(&base, |p| p.offset) else { break };
                    depth = depths[first + base] + 1;
                    if depth > DELTA_CHAIN_MAX {
                        break;
                    }
                    deltas += 1;
                }
                _ => break,
            }
            depths.push(depth);
            len += 1;
        }
        if len < 2 {
            depths.truncate(first);
            return Ok((&[], 0));
        }
        Ok((&rest[..len], deltas))
    }

    /// Writes the entry `place`, whose offset is the last of `done`. Returns its depth.
    fn write_packed(
        &self,
        history: &History,
        writer: &mut PackWriter<'_, '_>,
        done: &WrittenEntries,
        place: &EntryPlace,
    ) -> Result<u16> {
        let objects = history.objects();
        let EntryPlace { pack: pack_number, offset, end, rank } = *place;
        let pack = &objects.packs[pack_number as usize];
        let head = pack.entry(offset)?;
        let body = offset as usize + head.len..end as usize;
        let Some(body) = pack.data().get(body) else {
            return corrupt(format!("{}.pack", pack.name()), format!("the entry at {offset} has no end"));
        };
        match head.stored {
            Stored::Whole(kind) => {
                if self.thin && matches!(kind, Kind::Tree | Kind::Blob) && !self.selection.previous.is_empty()
                {
                    let oid = pack.index().oid(pack.extent(rank)?.0);
                    if let Some(depth) = self.write_as_change(history, writer, done, &oid, body.len())? {
                        return Ok(depth);
                    }
                }
                push_whole_head(&mut writer.chunk, kind, head.size);
                writer.copied += 1;
                writer.copy(body)?;
                return Ok(0);
            }
            Stored::OfsDelta(distance) => {
                let base_offset = offset - distance;
                let sent = self.place_sent(done, (pack_number, base_offset));
                if let Some(i) = sent
                    && done.depths[i] < DELTA_CHAIN_MAX
                {
                    if self.ofs_delta {
                        let distance = done.offsets[done.offsets.len() - 1] - done.offsets[i];
                        push_ofs_delta_head(&mut writer.chunk, distance, head.size);
                    } else {
                        let id = pack.index().raw_id(pack.position_at(base_offset)?);
                        push_ref_delta_head(&mut writer.chunk, id, head.size);
                    }
                    writer.copy_delta(body)?;
                    return Ok(done.depths[i] + 1);
                }
                if self.thin && sent.is_none() {
                    let position = pack.position_at(base_offset)?;
                    if self.client_has(history, &pack.index().oid(position))? {
                        push_ref_delta_head(&mut writer.chunk, pack.index().raw_id(position), head.size);
                        writer.copy_delta(body)?;
                        return Ok(1);
                    }
                }
            }
            Stored::RefDelta(at) => {
                let start = offset as usize + at;
                let id = &pack.data()[start..start + objects.hash.len()];
                let base = Oid::from_bytes(objects.hash, id).expect("of its length");
                // The base is in this pack, or the client has it: a reader finds it by id. Only earlier
                // entries of this pack count: a later base could form a cycle with another delta that is
                // copied, too.
                if let Some(depth) = self.depth_as_base(history, done, &base, self.thin)?
                    && depth < DELTA_CHAIN_MAX
                {
                    push_ref_delta_head(&mut writer.chunk, id, head.size);
                    writer.copy_delta(body)?;
                    return Ok(depth + 1);
                }
            }
        }
        let oid = pack.index().oid(pack.extent(rank)?.0);
        if self.thin
            && let Some(depth) = self.write_as_change(history, writer, done, &oid, usize::MAX)?
        {
            return Ok(depth);
        }
        writer.repack(&oid)?;
        Ok(0)
    }

    /// Writes `oid` as a change of what was at its path before, if the client has that or has been sent it,
    /// and the change takes less than `bytes_max` and makes no long chain. Returns its depth if it did.
    fn write_as_change(
        &self,
        history: &History,
        writer: &mut PackWriter<'_, '_>,
        done: &WrittenEntries,
        oid: &Oid,
        bytes_max: usize,
    ) -> Result<Option<u16>> {
        if let Some(change) = history.changes.get(oid)
            && change.entry.len() < bytes_max
            && change.base != *oid
            && let Some(depth) = self.depth_as_base(history, done, &change.base, true)?
            && depth < CHANGE_DEPTH_MAX
        {
            writer.deltas += 1;
            writer.copy(&change.entry)?;
            return Ok(Some(depth + 1));
        }
        let mut previous = self.selection.previous.get(oid);
        for _ in 0..PREVIOUS_MAX {
            let Some(base) = previous.filter(|base| *base != oid) else { return Ok(None) };
            if let Some(depth) = self.depth_as_base(history, done, base, true)? {
                let is_written =
                    depth < CHANGE_DEPTH_MAX && writer.change(&history.changes, oid, base, bytes_max)?;
                return Ok(is_written.then_some(depth + 1));
            }
            previous = self.selection.previous.get(base);
        }
        Ok(None)
    }

    /// Returns the depth of the object `oid`, on which a delta is to build; `None` if the client cannot have
    /// it. What the client had before the answer counts as whole, if that may be a base: git completes a thin
    /// pack with whole objects.
    fn depth_as_base(
        &self,
        history: &History,
        done: &WrittenEntries,
        oid: &Oid,
        may_be_there: bool,
    ) -> Result<Option<u16>> {
        let objects = history.objects();
        if let Some(Location::Packed { pack, position }) = objects.locate(oid)
            && let Some(i) = self.place_sent(done, (pack, objects.packs[pack as usize].offset(position)?))
        {
            return Ok(Some(done.depths[i]));
        }
        Ok((may_be_there && self.client_has(history, oid)?).then_some(0))
    }

    /// Returns the number of the entry at `place`, a pack and an offset, if it comes before the entry that is
    /// being written.
    fn place_sent(&self, done: &WrittenEntries, place: (u32, u64)) -> Option<usize> {
        self.packed[..done.depths.len()].binary_search_by_key(&place, |p| (p.pack, p.offset)).ok()
    }
}

/// Writes a pack to a stream: header, entries, trailer.
pub struct PackWriter<'r, 'o> {
    reader: ObjectReader<'r>,
    out: &'o mut dyn Write,
    chunk: Vec<u8>,
    written: u64,
    sum: PlainHasher,
    deflate: Option<Deflate>,
    /// The number of copied entries, of copied deltas, and of all deltas.
    copied: u32,
    copied_deltas: u32,
    deltas: u32,
}

impl<'r, 'o> PackWriter<'r, 'o> {
    /// Starts a pack of `count` objects.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn new(objects: &'r Objects, out: &'o mut dyn Write, count: u32) -> Result<Self> {
        let chunk = pack_header(count).to_vec();
        Ok(PackWriter {
            reader: objects.reader(),
            out,
            chunk,
            written: 0,
            sum: plain_sha(objects.hash),
            deflate: None,
            copied: 0,
            copied_deltas: 0,
            deltas: 0,
        })
    }

    /// Returns the offset of the next entry.
    pub fn position(&self) -> u64 {
        self.written + self.chunk.len() as u64
    }

    /// Appends an entry whose content is already compressed.
    ///
    /// # Errors
    /// If `out` fails.
    pub(crate) fn entry(&mut self, push_head: impl FnOnce(&mut Vec<u8>), body: &[u8]) -> Result<()> {
        push_head(&mut self.chunk);
        self.copy(body)
    }

    fn copy_delta(&mut self, body: &[u8]) -> Result<()> {
        self.copied += 1;
        self.copied_deltas += 1;
        self.deltas += 1;
        self.copy(body)
    }

    fn copy(&mut self, body: &[u8]) -> Result<()> {
        if body.len() >= CHUNK_BYTES {
            self.flush()?;
            self.sum.update(body);
            self.out.write_all(body)?;
            self.written += body.len() as u64;
            return Ok(());
        }
        self.chunk.extend_from_slice(body);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Compresses an object and appends it whole.
    ///
    /// # Errors
    /// If `out` fails, or if the object is missing or corrupt.
    pub fn repack(&mut self, oid: &Oid) -> Result<()> {
        let size = self.reader.kind_and_size(oid)?.ok_or(Error::Missing(*oid))?.1;
        if let Some(turn) = LargeTurn::for_bytes(size) {
            // Getting the turn may have taken long. For a client that has gone meanwhile nothing is computed.
            self.out.flush()?;
            return self.repack_large(oid, turn);
        }
        let object = self.reader.require(oid)?;
        push_whole_head(&mut self.chunk, object.kind, object.data.len() as u64);
        self.deflate.get_or_insert_with(|| Deflate::new(LEVEL)).append(&object.data, &mut self.chunk);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Compresses a large object and appends it. It is compressed to a file first, so that a slow client does
    /// not keep the object in memory.
    fn repack_large(&mut self, oid: &Oid, turn: LargeTurn) -> Result<()> {
        let mut file = tempfile::tempfile()?;
        {
            let object = self.reader.require(oid)?;
            push_whole_head(&mut self.chunk, object.kind, object.data.len() as u64);
            self.deflate.get_or_insert_with(|| Deflate::new(LEVEL)).pieces(&object.data, |piece| {
                // This fails if the client no longer waits for the answer.
                self.out.flush()?;
                file.write_all(piece)
            })?;
        }
        drop(turn);
        file.rewind()?;
        let mut piece = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                n => self.copy(&piece[..n])?,
            }
        }
    }

    /// Appends an object as a delta that is made now, if the delta is smaller than `bytes_max` and saves
    /// enough. Returns whether it did.
    ///
    /// # Errors
    /// If `out` fails, or if the object is missing or corrupt.
    fn change(&mut self, changes: &Changes, oid: &Oid, base: &Oid, bytes_max: usize) -> Result<bool> {
        let mut size_of =
            |oid: &Oid| Ok::<_, Error>(self.reader.kind_and_size(oid)?.ok_or(Error::Missing(*oid))?.1);
        if size_of(oid)?.max(size_of(base)?) > CHANGE_BYTES_MAX as u64 {
            return Ok(false);
        }
        let (object, source) = (self.reader.require(oid)?, self.reader.require(base)?);
        if object.kind != source.kind {
            return Ok(false);
        }
        let half = object.data.len() / 2;
        let delta = match object.kind {
            Kind::Tree => tree_delta(self.reader.objects().hash, &source.data, &object.data, half),
            _ => delta_of(&source.data, &object.data, half),
        };
        let Some(delta) = delta else { return Ok(false) };
        let start = self.chunk.len();
        push_ref_delta_head(&mut self.chunk, base.as_bytes(), delta.len() as u64);
        self.deflate.get_or_insert_with(|| Deflate::new(LEVEL)).append(&delta, &mut self.chunk);
        if self.chunk.len() - start >= bytes_max {
            self.chunk.truncate(start);
            return Ok(false);
        }
        let entry = self.chunk[start..].into();
        changes.put(*oid, Change { base: *base, entry });
        self.deltas += 1;
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sum.update(&self.chunk);
        self.out.write_all(&self.chunk)?;
        self.written += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }

    /// Ends the pack and returns its checksum.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn finish(mut self) -> Result<Oid> {
        // Without its last bytes no client accepts a pack as complete.
        self.reader.objects().check_reads()?;
        self.flush()?;
        let sum = self.sum.finish();
        self.out.write_all(sum.as_bytes())?;
        self.out.flush()?;
        Ok(sum)
    }
}
