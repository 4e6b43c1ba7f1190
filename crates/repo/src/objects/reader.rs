//! Reading whole objects.

use std::rc::Rc;

use weir_git::{Kind, ObjectHasher, Oid, OidMap, tag_target};

use crate::error::{Error, Result, corrupt};
use crate::objects::delta_cache::DeltaCache;
use crate::objects::entry::{EntryHead, OBJECT_BYTES_MAX, Stored, apply_delta, delta_sizes};
use crate::objects::lookup::{Location, Objects};
use crate::objects::resident::Resident;
use crate::objects::zlib::Inflate;

/// The most bytes of a size at the start of a delta (gitformat-pack(5), "Deltified representation"): 64 bits,
/// seven per byte.
const DELTA_SIZE_BYTES_MAX: usize = 10;
const CACHE_BYTES_MAX: usize = 32 << 20;
/// Larger objects are not held whole to be hashed. They are read in pieces of the size below.
const STREAMED_BYTES_MIN: u64 = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// The most tags of tags that are followed. They are rare and short, and git itself has no bound. This bound
/// guards against cycles made with forged hashes.
pub(crate) const TAGS_OF_TAGS_MAX: usize = 256;
/// The most tags whose targets are remembered.
const TAGS_KEPT_MAX: usize = 65_536;

/// Entries and deltas larger than this are released as soon as they were used.
const RELEASED_BYTES_MIN: usize = 16 << 20;

/// An object in memory.
#[derive(Clone, Debug)]
pub struct Object {
    /// The kind of the object.
    pub kind: Kind,
    /// The content of the object.
    pub data: Rc<Vec<u8>>,
}

/// Reads objects of one repository; caches what delta chains share.
pub struct ObjectReader<'r> {
    objects: &'r Objects,
    inflate: Inflate,
    cache: DeltaCache,
    delta: Vec<u8>,
    /// The targets of tags: a request may ask for the same tags several times.
    tags: OidMap<(Oid, Kind)>,
    /// The number of a pack, and where the parts of it that are read are noted.
    resident: Option<(u32, &'r Resident)>,
}

impl Objects {
    /// Returns a reader with its own caches, for one thread.
    pub fn reader(&self) -> ObjectReader<'_> {
        ObjectReader::new(self)
    }

    /// Peels tags off `oid`; returns `None` if it is no tag.
    ///
    /// # Errors
    /// If an object is missing or corrupt.
    pub fn peel(&self, oid: &Oid) -> Result<Option<Oid>> {
        let mut reader = self.reader();
        let mut at = *oid;
        for depth in 0..TAGS_OF_TAGS_MAX {
            let object = reader.read(&at)?.ok_or(Error::Missing(at))?;
            if object.kind != Kind::Tag {
                return Ok((depth > 0).then_some(at));
            }
            at = tag_target(self.hash, &object.data).map_err(|source| Error::Object { oid: at, source })?.0;
        }
        corrupt(at.to_string(), format!("a chain of more than {TAGS_OF_TAGS_MAX} tags"))
    }
}

impl<'r> ObjectReader<'r> {
    pub(crate) fn new(objects: &'r Objects) -> Self {
        ObjectReader {
            objects,
            inflate: Inflate::default(),
            cache: DeltaCache::new(CACHE_BYTES_MAX),
            delta: Vec::new(),
            tags: OidMap::default(),
            resident: None,
        }
    }

    /// Notes in `resident` which parts of the pack with the number `pack` are read.
    pub(crate) fn note_in(&mut self, pack: u32, resident: &'r Resident) {
        self.resident = Some((pack, resident));
    }

    /// Returns the objects that this reader reads.
    pub fn objects(&self) -> &'r Objects {
        self.objects
    }

    /// Returns the object `oid`, if the repository has it.
    ///
    /// # Errors
    /// If the object is corrupt.
    pub fn read(&mut self, oid: &Oid) -> Result<Option<Object>> {
        match self.objects.locate(oid) {
            Some(location) => self.read_at(location, oid).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the object `oid`, which the repository must have.
    ///
    /// # Errors
    /// If it is missing or corrupt.
    pub fn require(&mut self, oid: &Oid) -> Result<Object> {
        self.read(oid)?.ok_or(Error::Missing(*oid))
    }

    /// Returns the target of `oid` and its kind, if `oid` is a tag that was read before.
    pub(crate) fn known_tag(&self, oid: &Oid) -> Option<(Oid, Kind)> {
        self.tags.get(oid).copied()
    }

    /// Returns the target of the tag `oid` and its kind; `None` if the target is missing.
    ///
    /// # Errors
    /// If the tag is missing, or the tag or its target is corrupt.
    pub(crate) fn tag(&mut self, oid: &Oid) -> Result<Option<(Oid, Kind)>> {
        let data = self.require(oid)?.data;
        let target =
            tag_target(self.objects.hash, &data).map_err(|source| Error::Object { oid: *oid, source })?.0;
        let Some(kind) = self.kind(&target)? else { return Ok(None) };
        if self.tags.len() < TAGS_KEPT_MAX {
            self.tags.insert(*oid, (target, kind));
        }
        Ok(Some((target, kind)))
    }

    /// Returns the object at `location`; `oid` is used for loose objects and messages.
    ///
    /// # Errors
    /// If it is corrupt.
    pub fn read_at(&mut self, location: Location, oid: &Oid) -> Result<Object> {
        match location {
            Location::Packed { pack, position } => {
                let offset = self.objects.packs[pack as usize].offset(position)?;
                self.read_entry(pack, offset)
            }
            Location::Loose(folder) => {
                let (kind, data) = self.objects.loose[folder as usize].read(oid, &mut self.inflate)?;
                Ok(Object { kind, data: Rc::new(data) })
            }
        }
    }

    /// Computes the id of the object at `location` from its content. Large objects that are stored whole are
    /// hashed piece by piece.
    ///
    /// # Errors
    /// If it is corrupt.
    pub(crate) fn computed_id(&mut self, location: Location, oid: &Oid) -> Result<Oid> {
        let hash = self.objects.hash;
        if let Location::Packed { pack: number, position } = location {
            let pack = &self.objects.packs[number as usize];
            let offset = pack.offset(position)?;
            let head = pack.entry(offset)?;
            if let Stored::Whole(kind) = head.stored
                && head.size > STREAMED_BYTES_MIN
            {
                let input = &pack.data()[offset as usize + head.len..pack.entries_end() as usize];
                return match self.hash_in_pieces(kind, head.size, input)? {
                    Some(oid) => Ok(oid),
                    None => {
                        corrupt(format!("{}.pack", pack.name()), format!("bad compressed data at {offset}"))
                    }
                };
            }
        }
        let object = self.read_at(location, oid)?;
        Ok(ObjectHasher::hash(hash, object.kind, &object.data)?)
    }

    /// Returns the id of the inflated `input`; `None` if that is not `size` bytes.
    fn hash_in_pieces(&mut self, kind: Kind, size: u64, mut input: &[u8]) -> Result<Option<Oid>> {
        let mut hasher = ObjectHasher::object(self.objects.hash, kind, size);
        let mut window = vec![0; 512 << 10];
        let decoder = self.inflate.decoder();
        decoder.reset();
        let mut produced = 0u64;
        loop {
            let (part, _) = input.split_at(input.len().min(PIECE_BYTES));
            let Ok(progress) = decoder.decompress(part, &mut window, part.len() == input.len()) else {
                return Ok(None);
            };
            hasher.update(progress.output);
            produced += progress.output.len() as u64;
            let (consumed, done, full) = (progress.consumed, progress.done, progress.full);
            input = &input[consumed..];
            if produced > size || (done && produced != size) {
                return Ok(None);
            }
            if done {
                return Ok(Some(hasher.finish()?));
            }
            if full {
                decoder.make_room(&mut window);
            } else if consumed == 0 && part.len() == input.len() {
                return Ok(None);
            }
        }
    }

    /// Returns the kind of an object, from the heads of its entries only; `None` if it is missing.
    ///
    /// # Errors
    /// If the object is corrupt, or a delta whose base is missing.
    pub(crate) fn kind(&mut self, oid: &Oid) -> Result<Option<Kind>> {
        let mut at = *oid;
        for _ in 0..=self.objects.packed_count() {
            let Some(Location::Packed { pack, position }) = self.objects.locate(&at) else {
                let object = self.read(&at)?;
                return if at == *oid {
                    Ok(object.map(|o| o.kind))
                } else {
                    Ok(Some(object.ok_or(Error::Missing(at))?.kind))
                };
            };
            let pack = &self.objects.packs[pack as usize];
            let mut offset = pack.offset(position)?;
            // The base of an ofs-delta is in the same pack, so no lookup is needed.
            at = loop {
                match pack.entry(offset)?.stored {
                    Stored::Whole(kind) => return Ok(Some(kind)),
                    Stored::OfsDelta(distance) => offset -= distance,
                    Stored::RefDelta(start) => {
                        let start = offset as usize + start;
                        break Oid::from_bytes(
                            self.objects.hash,
                            &pack.data()[start..start + self.objects.hash.len()],
                        )
                        .expect("of its length");
                    }
                }
            };
        }
        corrupt("a pack", format!("the delta chain of {oid} does not end"))
    }

    /// Returns the entry of an object, head and compressed content, if it is stored whole in a pack.
    ///
    /// # Errors
    /// If it is corrupt.
    pub(crate) fn whole_entry(&mut self, oid: &Oid) -> Result<Option<&'r [u8]>> {
        let Some(Location::Packed { pack: number, position }) = self.objects.locate(oid) else {
            return Ok(None);
        };
        let pack = &self.objects.packs[number as usize];
        let offset = pack.offset(position)?;
        let head = pack.entry(offset)?;
        if !matches!(head.stored, Stored::Whole(_)) || head.size > OBJECT_BYTES_MAX {
            return Ok(None);
        }
        // Only the compressed stream itself shows where it ends.
        let body = &pack.data()[offset as usize + head.len..pack.entries_end() as usize];
        match self.inflate.exact_vec(body, head.size as usize, &mut self.delta) {
            Some(len) => Ok(pack.data().get(offset as usize..offset as usize + head.len + len)),
            None => corrupt(format!("{}.pack", pack.name()), format!("bad compressed data at {offset}")),
        }
    }

    fn read_entry(&mut self, pack_number: u32, offset: u64) -> Result<Object> {
        let objects = self.objects;
        let (mut pack_number, mut offset) = (pack_number, offset);
        let mut chain: Vec<(u32, u64, EntryHead)> = Vec::new();
        let (kind, mut data) = loop {
            if let Some(found) = self.cache.get(pack_number, offset) {
                break found;
            }
            let pack = &objects.packs[pack_number as usize];
            let head = pack.entry(offset)?;
            if head.size > OBJECT_BYTES_MAX {
                // The object is stored whole and can be sent as it lies. Only callers that need all of it in
                // memory fail.
                return Err(Error::Unsupported(format!(
                    "an object of {} bytes is not read into memory",
                    head.size
                )));
            }
            // No chain of different objects is longer.
            if chain.len() as u64 > objects.packed_count() {
                return corrupt(
                    format!("{}.pack", pack.name()),
                    format!("the delta chain at {offset} does not end"),
                );
            }
            match head.stored {
                Stored::Whole(kind) => {
                    let mut data = Vec::new();
                    self.inflate_entry(pack_number, offset, &head, &mut data)?;
                    let data = Rc::new(data);
                    if !chain.is_empty() {
                        self.cache.put(pack_number, offset, kind, &data);
                    }
                    break (kind, data);
                }
                Stored::OfsDelta(distance) => {
                    chain.push((pack_number, offset, head));
                    offset -= distance;
                }
                Stored::RefDelta(at) => {
                    chain.push((pack_number, offset, head));
                    (pack_number, offset) = self.base_of_ref_delta(pack_number, offset, at)?;
                }
            }
        };
        while let Some((pack_number, offset, head)) = chain.pop() {
            let mut delta = std::mem::take(&mut self.delta);
            self.inflate_entry(pack_number, offset, &head, &mut delta)?;
            let mut out = Vec::new();
            if apply_delta(&data, &delta, OBJECT_BYTES_MAX, &mut out).is_none() {
                return corrupt(
                    format!("{}.pack", objects.packs[pack_number as usize].name()),
                    format!("bad delta at {offset}"),
                );
            }
            if delta.capacity() <= RELEASED_BYTES_MIN {
                self.delta = delta;
            }
            data = Rc::new(out);
            self.cache.put(pack_number, offset, kind, &data);
        }
        Ok(Object { kind, data })
    }

    /// Returns where the base of the delta at `offset` is. The base's id is `at` bytes behind that offset.
    fn base_of_ref_delta(&self, pack_number: u32, offset: u64, at: usize) -> Result<(u32, u64)> {
        let objects = self.objects;
        let pack = &objects.packs[pack_number as usize];
        let start = offset as usize + at;
        let base = &pack.data()[start..start + objects.hash.len()];
        if let Some(position) = pack.index().find(base) {
            return Ok((pack_number, pack.offset(position)?));
        }
        match objects.locate_raw(base) {
            Some(Location::Packed { pack, position }) => {
                Ok((pack, objects.packs[pack as usize].offset(position)?))
            }
            _ => corrupt(format!("{}.pack", pack.name()), format!("the delta at {offset} has no base")),
        }
    }

    fn inflate_entry(&mut self, number: u32, offset: u64, head: &EntryHead, out: &mut Vec<u8>) -> Result<()> {
        let pack = &self.objects.packs[number as usize];
        let start = offset as usize + head.len;
        let body = &pack.data()[start..pack.entries_end() as usize];
        match self.inflate.exact_vec(body, head.size as usize, out) {
            Some(consumed) => {
                if let Some((_, resident)) = self.resident.filter(|(of, _)| *of == number) {
                    resident.was_read(start..start + consumed);
                }
                // Pages that are read once need not stay in this process's memory beside the inflated data.
                if consumed > RELEASED_BYTES_MIN {
                    pack.data().release_pages(start..start + consumed);
                }
                Ok(())
            }
            None => corrupt(format!("{}.pack", pack.name()), format!("bad compressed data at {offset}")),
        }
    }

    /// Returns the kind and the size of an object, without inflating more than a delta's head.
    ///
    /// # Errors
    /// If it is corrupt.
    pub fn kind_and_size(&mut self, oid: &Oid) -> Result<Option<(Kind, u64)>> {
        let (mut pack_number, mut offset) = match self.objects.locate(oid) {
            None => return Ok(None),
            Some(Location::Loose(folder)) => {
                return self.objects.loose[folder as usize]
                    .read(oid, &mut self.inflate)
                    .map(|(k, d)| Some((k, d.len() as u64)));
            }
            Some(Location::Packed { pack, position }) => {
                (pack, self.objects.packs[pack as usize].offset(position)?)
            }
        };
        let mut size = None;
        for _ in 0..=self.objects.packed_count() {
            let pack = &self.objects.packs[pack_number as usize];
            let head = pack.entry(offset)?;
            if let Stored::Whole(kind) = head.stored {
                return Ok(Some((kind, size.unwrap_or(head.size))));
            }
            if size.is_none() {
                let mut start = [0; 2 * DELTA_SIZE_BYTES_MAX];
                let packed = &pack.data()[offset as usize + head.len..pack.entries_end() as usize];
                let sizes =
                    self.inflate.prefix(packed, &mut start).and_then(|len| delta_sizes(&start[..len]));
                let Some((_, result)) = sizes else {
                    return corrupt(format!("{}.pack", pack.name()), format!("bad delta at {offset}"));
                };
                size = Some(result);
            }
            match head.stored {
                Stored::OfsDelta(distance) => offset -= distance,
                Stored::RefDelta(at) => {
                    let start = offset as usize + at;
                    let base = Oid::from_bytes(
                        self.objects.hash,
                        &pack.data()[start..start + self.objects.hash.len()],
                    )
                    .expect("sized");
                    match self.objects.locate(&base) {
                        Some(Location::Packed { pack, position }) => {
                            offset = self.objects.packs[pack as usize].offset(position)?;
                            pack_number = pack;
                        }
                        _ => return Err(Error::Missing(base)),
                    }
                }
                Stored::Whole(_) => unreachable!("returned above"),
            }
        }
        corrupt(oid.to_string(), "its delta chain does not end")
    }
}

/// Follows tags from `oid` to an object of another kind. Returns that object and the tags passed; `None` if
/// an object is missing.
pub(crate) fn peel_through(
    reader: &mut ObjectReader<'_>,
    oid: &Oid,
) -> Result<Option<(Oid, Kind, Vec<Oid>)>> {
    let mut tags = Vec::new();
    let (mut at, mut kind) = (*oid, None);
    loop {
        let target = match reader.known_tag(&at) {
            Some(target) if tags.len() <= TAGS_OF_TAGS_MAX => Some(target),
            _ => {
                let Some(kind) = kind.map_or_else(|| reader.kind(&at), |kind| Ok(Some(kind)))? else {
                    return Ok(None);
                };
                if kind != Kind::Tag || tags.len() > TAGS_OF_TAGS_MAX {
                    return Ok(Some((at, kind, tags)));
                }
                reader.tag(&at)?
            }
        };
        tags.push(at);
        let Some((next, kind_of_next)) = target else { return Ok(None) };
        (at, kind) = (next, Some(kind_of_next));
    }
}
