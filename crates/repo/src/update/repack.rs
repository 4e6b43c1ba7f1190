//! Makes a new body for compaction. Stored deltas are kept, and new ones are made where packs that came one
//! by one repeat each other. Objects are laid out so that history reads sequentially.
//!
//! The order is: commits, tags, trees, blobs. In each, what came last is first, as upstreams order their
//! packs, too. A base always comes before its deltas. Two whole objects of one pack are not tried again, as
//! in git: the maker of that pack has tried. They are tried only if all of it is little, for not every pack
//! was made with care. Candidates are found not by path but by content: objects that share their least hashes
//! (Broder, "On the resemblance and containment of documents", 1997) share most of their content.

use std::collections::VecDeque;
use std::io::Write;

use weir_git::{Kind, Oid};

use crate::answer::pack_writer::PackWriter;
use crate::error::{Result, corrupt};
use crate::objects::delta::DeltaSource;
use crate::objects::entry::{
    DELTA_CHAIN_MAX, Stored, push_ofs_delta_head, push_ref_delta_head, push_whole_head,
};
use crate::objects::lookup::Objects;
use crate::objects::reader::ObjectReader;
use crate::objects::resident::Resident;
use crate::objects::zlib::Deflate;
use crate::repo::repository::Repo;

/// The longest chain of deltas, as in git.
const DEPTH_MAX: u32 = 50;
/// The number of earlier objects that an object is compared with.
const WINDOW: usize = 10;
/// The sizes in bytes of objects that are worth a try.
const SIZES: std::ops::RangeInclusive<u64> = 64..=16 << 20;
/// The most bytes of new deltas that are kept until they are written.
const NEW_BYTES_MAX: usize = 512 << 20;
/// The zlib level of new deltas, which are made once and read often.
const LEVEL: u8 = 6;
const SKETCHES: usize = 3;
const IN_A_CIRCLE: &str = "deltas that build on each other in a circle";
/// Stands for no number.
const NONE: u32 = u32::MAX;
/// With at most this many compressed bytes everything is tried.
const LITTLE_BYTES: u64 = 16 << 20;

/// An object in a pack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    /// The number that [`Objects::place`] gives.
    pub(crate) place: u32,
    pub(crate) kind: Kind,
}

/// How an object will be stored.
#[derive(Clone, Copy)]
enum How {
    /// As it is stored: whole.
    Whole,
    /// As the stored delta, on another object of the body.
    Kept(u32),
    /// As the stored delta, on an object of an earlier body.
    Outside,
    /// As a new delta.
    New(u32),
    /// Whole, though it is stored as a delta: its base goes elsewhere.
    Inflated,
}

/// An object of the body: 20 bytes.
struct Item {
    place: u32,
    rank: u32,
    how: How,
    kind: Kind,
    /// The longest chain of deltas that build on it.
    height: u8,
}

/// A delta that was made here.
struct NewDelta {
    base: u32,
    size: u64,
    compressed: Vec<u8>,
}

/// A body as it will be written.
pub(crate) struct Repack {
    items: Vec<Item>,
    new: Vec<NewDelta>,
    /// The numbers of items in the order of the body; bases that must come earlier are moved up when writing.
    order: Vec<u32>,
}

impl Repack {
    /// Plans a body of `objects`; deltas may build on objects in `earlier`.
    ///
    /// # Errors
    /// If an object is missing or corrupt.
    pub(crate) fn new(here: &Objects, objects: Vec<Packed>, earlier: Option<&Repo>) -> Result<Repack> {
        let mut number_by_place = vec![NONE; here.packed_count() as usize];
        for (number, object) in objects.iter().enumerate() {
            debug_assert_eq!(number_by_place[object.place as usize], NONE, "an object is packed twice");
            number_by_place[object.place as usize] = number as u32;
        }
        let items = objects.into_iter().map(|Packed { place, kind }| {
            let (pack, position) = here.at_place(place);
            let p = &here.packs[pack as usize];
            let head = p.entry(p.offset(position)?)?;
            // Trees may name other trees as if they were files. The object's own entry tells its kind.
            let kind = if let Stored::Whole(kind) = head.stored { kind } else { kind };
            let how = match base_of(here, pack, position)? {
                None => How::Whole,
                Some(base) => match here
                    .locate(&base)
                    .and_then(|at| here.place(at))
                    .map(|place| number_by_place[place as usize])
                {
                    Some(base) if base != NONE => How::Kept(base),
                    _ if earlier.is_some_and(|e| e.has(&base)) => How::Outside,
                    _ => How::Inflated,
                },
            };
            Ok(Item { place, rank: p.rank(position)?, how, kind, height: 0 })
        });
        let items = items.collect::<Result<Vec<_>>>()?;
        drop(number_by_place);
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        let place = |kind: Kind| match kind {
            Kind::Commit => 0,
            Kind::Tag => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
        };
        order.sort_unstable_by_key(|&n| {
            let item = &items[n as usize];
            (place(item.kind), u32::MAX - here.at_place(item.place).0, item.rank)
        });
        let mut plan = Repack { items, new: Vec::new(), order };
        plan.break_long_chains()?;
        plan.measure_heights();
        plan.make_deltas(here)?;
        Ok(plan)
    }

    /// Returns the number of the base of `n`.
    fn base(&self, n: u32) -> Option<u32> {
        match self.items[n as usize].how {
            How::Kept(base) => Some(base),
            How::New(new) => Some(self.new[new as usize].base),
            _ => None,
        }
    }

    /// Returns the number of the pack that holds `n`.
    fn pack(&self, here: &Objects, n: u32) -> u32 {
        here.at_place(self.items[n as usize].place).0
    }

    fn oid(&self, here: &Objects, n: u32) -> Oid {
        let (pack, position) = here.at_place(self.items[n as usize].place);
        here.packs[pack as usize].index().oid(position)
    }

    /// Returns the bytes of the stored entry of `n`.
    fn stored_len(&self, here: &Objects, n: u32) -> Result<u64> {
        let item = &self.items[n as usize];
        let (_, start, end) = here.packs[here.at_place(item.place).0 as usize].extent(item.rank)?;
        Ok(end.saturating_sub(start))
    }

    /// Stores objects whole where chains of deltas are longer than git writes them.
    fn break_long_chains(&mut self) -> Result<()> {
        let depths = self.depths(|_, depth| depth)?;
        if depths.into_iter().all(|depth| depth <= u32::from(DELTA_CHAIN_MAX)) {
            return Ok(());
        }
        // As git has it, chains that are made anew are short.
        let depths =
            self.depths(
                |item, depth| {
                    if depth > DEPTH_MAX && matches!(item.how, How::Kept(_)) { 0 } else { depth }
                },
            )?;
        for (item, depth) in self.items.iter_mut().zip(depths) {
            if depth == 0 && matches!(item.how, How::Kept(_)) {
                item.how = How::Inflated;
            }
        }
        Ok(())
    }

    /// Returns how many deltas each object is made of, where `choose` gets that number and may give another.
    fn depths(&self, choose: impl Fn(&Item, u32) -> u32) -> Result<Vec<u32>> {
        let mut depths = vec![NONE; self.items.len()];
        let mut chain = Vec::new();
        for n in 0..self.items.len() as u32 {
            let mut next = Some(n).filter(|&n| depths[n as usize] == NONE);
            while let Some(n) = next {
                if chain.len() > self.items.len() {
                    return corrupt("a pack", IN_A_CIRCLE);
                }
                chain.push(n);
                next = self.base(n).filter(|&base| depths[base as usize] == NONE);
            }
            while let Some(n) = chain.pop() {
                let item = &self.items[n as usize];
                let depth = match (self.base(n), item.how) {
                    (Some(base), _) => depths[base as usize] + 1,
                    (None, How::Outside) => 1,
                    (None, _) => 0,
                };
                depths[n as usize] = choose(item, depth);
            }
        }
        Ok(depths)
    }

    fn measure_heights(&mut self) {
        for n in 0..self.items.len() as u32 {
            self.raise(n);
        }
    }

    /// Updates the heights of the bases of `n`.
    fn raise(&mut self, mut n: u32) {
        while let Some(base) = self.base(n) {
            // Heights stop at the limit: a chain may be as long as the body, or form a cycle if the archive
            // is damaged.
            let height = (self.items[n as usize].height + 1).min(DEPTH_MAX as u8);
            if self.items[base as usize].height >= height {
                return;
            }
            self.items[base as usize].height = height;
            n = base;
        }
    }

    /// Returns how many deltas lead to `n`; `None` if `other` is `n` or among its bases.
    fn depth_without(&self, mut n: u32, other: u32) -> Option<u32> {
        let mut depth = 0;
        while n != other {
            match self.base(n) {
                Some(base) => (n, depth) = (base, depth + 1),
                None => return Some(depth),
            }
        }
        None
    }

    /// Makes deltas of whole objects that resemble objects of another pack.
    fn make_deltas(&mut self, here: &Objects) -> Result<()> {
        let is_candidate = |item: &Item| {
            matches!(item.how, How::Whole | How::Inflated) && matches!(item.kind, Kind::Tree | Kind::Blob)
        };
        let candidates: Vec<u32> =
            self.order.iter().copied().filter(|&n| is_candidate(&self.items[n as usize])).collect();
        let first_pack = candidates.first().map(|&n| self.pack(here, n));
        let mut bytes = 0;
        for &n in &candidates {
            bytes += self.stored_len(here, n)?;
        }
        let is_little = bytes <= LITTLE_BYTES;
        if !is_little && candidates.iter().all(|&n| Some(self.pack(here, n)) == first_pack) {
            return Ok(());
        }
        let mut reader = here.reader();
        let mut sketched: Vec<(u32, [u64; SKETCHES])> = Vec::with_capacity(candidates.len());
        for n in candidates {
            let oid = self.oid(here, n);
            if reader.kind_and_size(&oid)?.is_some_and(|(_, size)| SIZES.contains(&size)) {
                sketched.push((n, sketch(&reader.require(&oid)?.data)));
            }
        }
        // The order of the body breaks ties: what came last is met first and becomes the base.
        let mut position = vec![0u32; self.items.len()];
        for (at, &n) in self.order.iter().enumerate() {
            position[n as usize] = at as u32;
        }
        let mut deflate = Deflate::new(LEVEL);
        let mut new_bytes = 0;
        for which in 0..SKETCHES {
            sketched.sort_unstable_by_key(|(n, sketch)| (sketch[which], position[*n as usize]));
            for run in sketched.chunk_by(|a, b| a.1[which] == b.1[which]) {
                if run.len() > 1 && new_bytes < NEW_BYTES_MAX {
                    new_bytes += self.make_deltas_among(
                        &mut reader,
                        &mut deflate,
                        run.iter().map(|r| r.0),
                        is_little,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Compares each of `alike` with those before it. A whole object is compared with others of its own pack
    /// only if `everything` is set. Returns the bytes of the deltas it made.
    fn make_deltas_among(
        &mut self,
        reader: &mut ObjectReader<'_>,
        deflate: &mut Deflate,
        alike: impl Iterator<Item = u32>,
        everything: bool,
    ) -> Result<usize> {
        let mut window: VecDeque<(u32, Kind, DeltaSource)> = VecDeque::new();
        let mut made = 0;
        for n in alike {
            let here = reader.objects();
            let object = reader.require(&self.oid(here, n))?;
            if !matches!(self.items[n as usize].how, How::New(..)) {
                let mut best: Option<(u32, Vec<u8>)> = None;
                for (base, kind, source) in &window {
                    let item = &self.items[n as usize];
                    let is_tried = !everything
                        && matches!(item.how, How::Whole)
                        && self.pack(here, n) == self.pack(here, *base);
                    let depth =
                        if object.kind == *kind && !is_tried { self.depth_without(*base, n) } else { None };
                    if depth.is_none_or(|depth| depth + 1 + u32::from(item.height) > DEPTH_MAX) {
                        continue;
                    }
                    let most = best.as_ref().map_or(object.data.len() / 2, |b| b.1.len() - 1);
                    if let Some(delta) = source.encode(&object.data, most) {
                        best = Some((*base, delta));
                    }
                }
                if let Some((base, delta)) = best {
                    let mut compressed = Vec::new();
                    deflate.append(&delta, &mut compressed);
                    let is_shorter = (compressed.len() as u64) + 4 < self.stored_len(here, n)?;
                    let how = &mut self.items[n as usize].how;
                    if is_shorter || matches!(how, How::Inflated) {
                        made += compressed.len();
                        *how = How::New(self.new.len() as u32);
                        self.new.push(NewDelta { base, size: delta.len() as u64, compressed });
                        self.raise(n);
                    }
                }
            }
            window.push_front((n, object.kind, DeltaSource::new(object.data)));
            window.truncate(WINDOW);
        }
        Ok(made)
    }

    /// Writes the pack to `out`.
    ///
    /// # Errors
    /// If `out` fails, or if an object is corrupt. Then the pack is cut short.
    pub(crate) fn write(&self, here: &Objects, out: &mut dyn Write) -> Result<()> {
        let mut writer = PackWriter::new(here, out, self.items.len() as u32)?;
        let residents: Vec<Resident> =
            here.packs.iter().map(|pack| Resident::new(pack.data().clone())).collect();
        // 0 means not written yet; no entry starts there.
        let mut offsets = vec![0u64; self.items.len()];
        let mut chain = Vec::new();
        for &n in &self.order {
            chain.push(n);
            while let Some(&n) = chain.last() {
                if offsets[n as usize] != 0 {
                    chain.pop();
                    continue;
                }
                if let Some(base) = self.base(n)
                    && offsets[base as usize] == 0
                {
                    if chain.len() > self.items.len() {
                        return corrupt("a pack", IN_A_CIRCLE);
                    }
                    chain.push(base);
                    continue;
                }
                offsets[n as usize] = writer.position();
                self.write_item(here, &residents, &mut writer, n, &offsets)?;
                chain.pop();
            }
        }
        writer.finish()?;
        Ok(())
    }

    fn write_item(
        &self,
        here: &Objects,
        residents: &[Resident],
        writer: &mut PackWriter<'_, '_>,
        n: u32,
        offsets: &[u64],
    ) -> Result<()> {
        let item = &self.items[n as usize];
        let distance = |base: u32| offsets[n as usize] - offsets[base as usize];
        if let How::Inflated = item.how {
            return writer.repack(&self.oid(here, n));
        }
        if let How::New(new) = item.how {
            let NewDelta { base, size, compressed } = &self.new[new as usize];
            return writer.entry(|head| push_ofs_delta_head(head, distance(*base), *size), compressed);
        }
        let (number, position) = here.at_place(item.place);
        let pack = &here.packs[number as usize];
        let (_, offset, end) = pack.extent(item.rank)?;
        let head = pack.entry(offset)?;
        let Some(body) = pack.data().get(offset as usize + head.len..end as usize) else {
            return corrupt(format!("{}.pack", pack.name()), format!("the entry at {offset} has no end"));
        };
        let base = if let How::Outside = item.how { base_of(here, number, position)? } else { None };
        writer.entry(
            |out| match (item.how, &base) {
                (How::Kept(base), _) => push_ofs_delta_head(out, distance(base), head.size),
                (_, Some(base)) => push_ref_delta_head(out, base.as_bytes(), head.size),
                _ => push_whole_head(out, item.kind, head.size),
            },
            body,
        )?;
        residents[number as usize].was_read(offset as usize..end as usize);
        Ok(())
    }
}

/// Returns the id of the base of the object at `position` of a pack.
fn base_of(here: &Objects, pack: u32, position: u32) -> Result<Option<Oid>> {
    let p = &here.packs[pack as usize];
    let offset = p.offset(position)?;
    Ok(match p.entry(offset)?.stored {
        Stored::Whole(_) => None,
        Stored::OfsDelta(distance) => Some(p.index().oid(p.position_at(offset - distance)?)),
        Stored::RefDelta(at) => {
            let start = offset as usize + at;
            Oid::from_bytes(here.hash, &p.data()[start..start + here.hash.len()])
        }
    })
}

/// Returns the least of the hashes of all runs of 16 bytes, for three different hashes.
fn sketch(data: &[u8]) -> [u64; SKETCHES] {
    const FACTORS: [u64; SKETCHES] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9];
    let mut least = [u64::MAX; SKETCHES];
    // Each byte shifts the hash by four bits, so a byte read sixteen bytes ago is shifted out.
    let mut rolling = 0u64;
    for (n, &byte) in data.iter().enumerate() {
        rolling = (rolling << 4).wrapping_add((u64::from(byte) + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
        if n >= 15 {
            for (least, factor) in least.iter_mut().zip(FACTORS) {
                *least = (*least).min((rolling ^ (rolling >> 31)).wrapping_mul(factor));
            }
        }
    }
    least
}
