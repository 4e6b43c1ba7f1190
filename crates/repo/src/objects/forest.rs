//! All objects of a repository as a forest of delta trees, each decoded once, depth first.
//!
//! A reader that wants one object inflates the chain of deltas below it. A reader that wants all objects
//! inflates each entry once, if it follows the deltas from their bases upwards.

use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use weir_git::{Kind, Oid};
use weir_ground::thread::on_threads;

use crate::error::{Error, Result};
use crate::large::LargeTurn;
use crate::objects::entry::{EntryHead, Stored, apply_delta, delta_sizes};
use crate::objects::id_finder::IdFinder;
use crate::objects::lookup::Objects;
use crate::objects::pack::PackOrder;
use crate::objects::zlib::Inflate;

/// The number that stands for no object.
pub const NO_OBJECT: u32 = u32::MAX;

/// The number of entries whose heads a thread reads at once.
const HEADS_AT_ONCE: usize = 1 << 14;
/// The number of ids that are looked up at once.
const IDS_AT_ONCE: usize = 64;
/// The number of buffers kept for reuse.
const SPARE_MAX: usize = 64;
/// The longest buffer that is kept.
const SPARE_BYTES_MAX: usize = 4 << 20;
/// The most bytes of bases that one delta tree may hold at a time.
const HELD_BYTES_MAX: usize = 1 << 30;

/// The objects of a repository by number: packed ones in pack order, pack after pack, then loose ones.
/// Takes 15 bytes an object beside the order of the packs.
pub struct Forest<'o> {
    objects: &'o Objects,
    orders: Vec<&'o PackOrder>,
    finders: Vec<IdFinder<'o>>,
    /// The first number of each pack, then the first number of the loose objects.
    firsts: Vec<u32>,
    /// Loose objects that no pack has, by id, with the number of their folder.
    loose: Vec<(Oid, u32)>,
    /// The kind of each object, 0 if its entry is malformed.
    kinds: Vec<u8>,
    bases: Vec<u32>,
    /// `starts[n]..starts[n + 1]` of `children` are the deltas on object `n`, those with most descendants
    /// last.
    starts: Vec<u32>,
    children: Vec<u32>,
}

impl<'o> Forest<'o> {
    /// Reads the head of every entry of `objects`, on `threads` threads.
    ///
    /// # Errors
    /// If an index is corrupt, a folder of loose objects cannot be read, or there are 2^32 objects or more.
    pub fn new(objects: &'o Objects, threads: usize) -> Result<Forest<'o>> {
        let mut orders = Vec::new();
        let mut firsts = vec![0u32];
        let too_many = || Error::Unsupported("2^32 objects or more in one repository".to_owned());
        for pack in objects.packs() {
            orders.push(pack.order()?);
            let first = firsts[firsts.len() - 1];
            firsts.push(first.checked_add(pack.index().count()).ok_or_else(too_many)?);
        }
        let mut forest = Forest {
            objects,
            orders,
            finders: objects.packs().iter().map(|pack| IdFinder::new(pack.index())).collect(),
            firsts,
            loose: objects.loose_only()?,
            kinds: Vec::new(),
            bases: Vec::new(),
            starts: Vec::new(),
            children: Vec::new(),
        };
        let count = forest.packed_count() as usize + forest.loose.len();
        if count >= NO_OBJECT as usize {
            return Err(too_many());
        }
        forest.kinds = vec![0; count];
        forest.bases = vec![NO_OBJECT; count];
        forest.read_heads(threads);
        forest.resolve_kinds();
        forest.read_loose_kinds();
        forest.gather_children();
        Ok(forest)
    }

    /// Returns the number of objects. Numbers are below it.
    pub fn count(&self) -> u32 {
        self.kinds.len() as u32
    }

    /// Returns the objects that the forest was made of.
    pub fn objects(&self) -> &'o Objects {
        self.objects
    }

    /// Returns the kind of object `number`, `None` if its entry is malformed.
    #[inline]
    pub fn kind(&self, number: u32) -> Option<Kind> {
        Kind::from_pack_type(self.kinds[number as usize])
    }

    /// Returns the number of the object that `number` is stored as a delta of.
    #[inline]
    pub fn base(&self, number: u32) -> Option<u32> {
        Some(self.bases[number as usize]).filter(|&base| base != NO_OBJECT)
    }

    /// Returns the number of the object at the root of the delta tree of `number`.
    pub fn root(&self, number: u32) -> u32 {
        let mut at = number;
        while let Some(base) = self.base(at) {
            at = base;
        }
        at
    }

    /// Returns the numbers of the objects stored as deltas of `number`.
    pub fn children(&self, number: u32) -> &[u32] {
        let number = number as usize;
        &self.children[self.starts[number] as usize..self.starts[number + 1] as usize]
    }

    /// Returns the raw id of object `number`.
    #[inline]
    pub fn id(&self, number: u32) -> &[u8] {
        match self.place(number) {
            Some((pack, rank)) => {
                self.objects.packs()[pack].index().raw_id(self.orders[pack].index_by_rank[rank as usize])
            }
            None => self.loose[(number - self.packed_count()) as usize].0.as_bytes(),
        }
    }

    /// Returns the id of object `number`.
    pub fn oid(&self, number: u32) -> Oid {
        Oid::from_bytes(self.objects.hash(), self.id(number)).expect("of its length")
    }

    /// Returns the number of the object with the raw id `id`.
    #[inline]
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        self.find_behind(0, id)
    }

    /// Returns the number of the object with the raw id `id` that is not in the first `packs` packs.
    fn find_behind(&self, packs: usize, id: &[u8]) -> Option<u32> {
        for (finder, (order, first)) in
            self.finders.iter().zip(self.orders.iter().zip(&self.firsts)).skip(packs)
        {
            if let Some(position) = finder.find(id) {
                return Some(first + order.rank_by_index[position as usize]);
            }
        }
        let at = self.loose.binary_search_by(|(oid, _)| oid.as_bytes().cmp(id)).ok()?;
        Some(self.packed_count() + at as u32)
    }

    /// Replaces `numbers` by the numbers of the objects with the raw ids in `ids`, which follow each other;
    /// `NO_OBJECT` stands for one that is not here. Several times as fast as finding them one by one: the
    /// memory is asked for all of them at once.
    pub fn find_all(&self, ids: &[u8], numbers: &mut Vec<u32>) {
        numbers.clear();
        let len = self.objects.hash().len();
        let (Some(finder), Some(order)) = (self.finders.first(), self.orders.first()) else {
            numbers.extend(ids.chunks_exact(len).map(|id| self.find(id).unwrap_or(NO_OBJECT)));
            return;
        };
        for some in ids.chunks(len * IDS_AT_ONCE) {
            let touched = some.chunks_exact(len).fold(0, |all, id| all ^ finder.touch(id));
            std::hint::black_box(touched);
            let start = numbers.len();
            numbers.extend(some.chunks_exact(len).map(|id| finder.find(id).unwrap_or(NO_OBJECT)));
            for (number, id) in numbers[start..].iter_mut().zip(some.chunks_exact(len)) {
                *number = match *number {
                    NO_OBJECT => self.find_behind(1, id).unwrap_or(NO_OBJECT),
                    position => order.rank_by_index[position as usize],
                };
            }
        }
    }

    /// Returns the size of object `number` in bytes, from the heads of its entry.
    ///
    /// # Errors
    /// If the entry is malformed.
    pub fn size(&self, number: u32, inflate: &mut Inflate) -> Result<u64> {
        let Some((pack, rank)) = self.place(number) else {
            let (oid, folder) = &self.loose[(number - self.packed_count()) as usize];
            return Ok(self.objects.loose[*folder as usize].read(oid, inflate)?.1.len() as u64);
        };
        let offset = self.orders[pack].offset(rank);
        let pack = &self.objects.packs()[pack];
        let head = pack.entry(offset)?;
        if matches!(head.stored, Stored::Whole(_)) {
            return Ok(head.size);
        }
        let mut start = [0; 20];
        let len = start.len().min(head.size as usize);
        let body = &pack.data()[offset as usize + head.len..pack.entries_end() as usize];
        inflate
            .prefix(body, &mut start[..len])
            .and_then(|n| delta_sizes(&start[..n]))
            .map(|(_, size)| size)
            .ok_or_else(|| self.corrupt(number, "bad delta"))
    }

    fn packed_count(&self) -> u32 {
        self.firsts[self.firsts.len() - 1]
    }

    /// Returns the pack and the rank of a packed object.
    #[inline]
    fn place(&self, number: u32) -> Option<(usize, u32)> {
        if number >= self.packed_count() {
            return None;
        }
        // Most repositories have one large pack, and it comes first.
        let pack =
            if number < self.firsts[1] { 0 } else { self.firsts.partition_point(|&f| f <= number) - 1 };
        Some((pack, number - self.firsts[pack]))
    }

    fn corrupt(&self, number: u32, what: &str) -> Error {
        Error::Corrupt { file: format!("object {}", self.oid(number)), what: what.to_owned() }
    }

    fn read_heads(&mut self, threads: usize) {
        let (mut kinds, mut bases) = (std::mem::take(&mut self.kinds), std::mem::take(&mut self.bases));
        let forest = &*self;
        for (n, ends) in forest.firsts.windows(2).enumerate() {
            let numbers = ends[0] as usize..ends[1] as usize;
            let kinds = kinds[numbers.clone()].chunks_mut(HEADS_AT_ONCE);
            let parts = kinds.zip(bases[numbers].chunks_mut(HEADS_AT_ONCE));
            let parts = Mutex::new((0u32..).step_by(HEADS_AT_ONCE).zip(parts));
            let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            on_threads("weir-heads", threads, || {
                while let Some((rank, (kinds, bases))) = next() {
                    forest.read_some_heads(n, rank, kinds, bases);
                }
            });
        }
        (self.kinds, self.bases) = (kinds, bases);
    }

    /// Reads the heads of the entries of pack `n` from `rank` on. Deltas have no kind yet.
    fn read_some_heads(&self, n: usize, rank: u32, kinds: &mut [u8], bases: &mut [u32]) {
        let (pack, order, first) = (&self.objects.packs()[n], self.orders[n], self.firsts[n]);
        for (rank, (kind, base)) in (rank..).zip(kinds.iter_mut().zip(bases)) {
            let offset = order.offset(rank);
            let Ok(EntryHead { stored, .. }) = pack.entry(offset) else { continue };
            match stored {
                Stored::Whole(whole) => *kind = whole as u8,
                Stored::OfsDelta(distance) => {
                    if let Some(rank) = order.rank_at(offset - distance) {
                        *base = first + rank;
                    }
                }
                Stored::RefDelta(at) => {
                    let start = offset as usize + at;
                    let id = &pack.data()[start..start + self.objects.hash().len()];
                    let in_pack = self.finders[n].find(id).map(|p| first + order.rank_by_index[p as usize]);
                    if let Some(number) = in_pack.or_else(|| self.find(id)) {
                        *base = number;
                    }
                }
            }
        }
    }

    /// Gives deltas the kind of their base. Cuts cycles of deltas.
    fn resolve_kinds(&mut self) {
        let mut chain = Vec::new();
        for number in 0..self.packed_count() {
            let mut at = number;
            while self.kinds[at as usize] == 0
                && self.bases[at as usize] != NO_OBJECT
                && chain.len() <= self.kinds.len()
            {
                chain.push(at);
                at = self.bases[at as usize];
            }
            let kind = self.kinds[at as usize];
            for link in chain.drain(..) {
                self.kinds[link as usize] = kind;
                if kind == 0 {
                    self.bases[link as usize] = NO_OBJECT;
                }
            }
        }
    }

    fn read_loose_kinds(&mut self) {
        let mut inflate = Inflate::default();
        let first = self.packed_count() as usize;
        for (n, (oid, folder)) in self.loose.iter().enumerate() {
            if let Ok((kind, _)) = self.objects.loose[*folder as usize].read(oid, &mut inflate) {
                self.kinds[first + n] = kind as u8;
            }
        }
    }

    fn gather_children(&mut self) {
        let count = self.kinds.len();
        let mut starts = vec![0u32; count + 2];
        let mut weights = vec![1u32; count];
        for number in (0..count).rev() {
            let base = self.bases[number] as usize;
            if base != NO_OBJECT as usize {
                starts[base + 2] += 1;
                weights[base] = weights[base].saturating_add(weights[number]);
            }
        }
        for n in 2..starts.len() {
            starts[n] += starts[n - 1];
        }
        self.children = vec![0; starts[count + 1] as usize];
        for number in 0..count {
            let base = self.bases[number] as usize;
            if base != NO_OBJECT as usize {
                self.children[starts[base + 1] as usize] = number as u32;
                starts[base + 1] += 1;
            }
        }
        self.starts = starts;
        for number in 0..count {
            let (start, end) = (self.starts[number] as usize, self.starts[number + 1] as usize);
            if end - start > 1 {
                self.children[start..end].sort_by_key(|&child| weights[child as usize]);
            }
        }
    }
}

/// The object that another one is a delta of.
pub struct DeltaBase<'d, K> {
    /// Its content.
    pub data: &'d [u8],
    /// What the visitor kept of it.
    pub kept: &'d K,
    /// The delta, which is well-formed.
    pub delta: &'d [u8],
}

/// Is told of the objects of a delta tree.
pub trait ForestVisit {
    /// What is kept of an object for as long as deltas on it wait.
    type Kept;

    /// Returns whether object `number`, or an object built on it, is wanted.
    fn wants(&mut self, number: u32) -> bool;

    /// Takes object `number`. `base` is the object that it is a delta of.
    fn object(
        &mut self,
        number: u32,
        data: &Rc<Vec<u8>>,
        base: Option<DeltaBase<'_, Self::Kept>>,
    ) -> Self::Kept;

    /// Is told that object `number` cannot be decoded. Objects built on it are reported one by one.
    fn failed(&mut self, number: u32, error: &Error);
}

/// A base that deltas wait for.
struct WaitingBase<K> {
    number: u32,
    data: Rc<Vec<u8>>,
    kept: K,
    /// The place of the next child in `Forest::children`.
    next: u32,
}

/// Decodes delta trees. Has buffers of its own, for one thread.
pub struct ForestReader<'f, 'o> {
    forest: &'f Forest<'o>,
    inflate: Inflate,
    /// The delta that was applied last.
    delta: Vec<u8>,
    spare: Vec<Vec<u8>>,
    bytes_max: u64,
}

impl<'f, 'o> ForestReader<'f, 'o> {
    /// Makes a reader of `forest`. Objects above `bytes_max` bytes fail.
    pub fn new(forest: &'f Forest<'o>, bytes_max: u64) -> ForestReader<'f, 'o> {
        ForestReader { forest, inflate: Inflate::default(), delta: Vec::new(), spare: Vec::new(), bytes_max }
    }

    /// Visits `root` and all that is built on it, as far as `visit` wants it.
    pub fn walk<V: ForestVisit>(&mut self, root: u32, visit: &mut V) {
        if !visit.wants(root) {
            return;
        }
        // Readers of many repositories at a time would hold as many large objects.
        let packed = self.forest.place(root).map(|_| self.forest.size(root, &mut self.inflate).unwrap_or(0));
        let mut turn = LargeTurn::for_bytes(packed.unwrap_or(0));
        let data = match self.whole(root) {
            Ok(data) => Rc::new(data),
            Err(e) => return self.fail(root, &e, visit),
        };
        let kept = visit.object(root, &data, None);
        let mut stack =
            vec![WaitingBase { number: root, data, kept, next: self.forest.starts[root as usize] }];
        let mut held = stack[0].data.len();
        while let Some(frame) = stack.last_mut() {
            let end = self.forest.starts[frame.number as usize + 1];
            let Some(&child) = self.forest.children[..end as usize].get(frame.next as usize) else {
                held -= frame.data.len();
                let frame = stack.pop().expect("it has a last one");
                self.recycle(frame.data);
                continue;
            };
            frame.next += 1;
            if !visit.wants(child) {
                continue;
            }
            if turn.is_none() {
                turn = LargeTurn::for_bytes(held as u64);
            }
            let made = match held > HELD_BYTES_MAX {
                true => Err(self.forest.corrupt(child, "its delta tree holds too many bytes at a time")),
                false => self.apply(child, &frame.data),
            };
            let data = match made {
                Ok(data) => Rc::new(data),
                Err(e) => {
                    self.fail(child, &e, visit);
                    continue;
                }
            };
            let kept = visit.object(
                child,
                &data,
                Some(DeltaBase { data: &frame.data, kept: &frame.kept, delta: &self.delta }),
            );
            let next = self.forest.starts[child as usize];
            let is_leaf = next == self.forest.starts[child as usize + 1];
            // The last child releases its base, so that a chain of deltas holds two objects.
            if frame.next == end {
                held -= frame.data.len();
                let frame = stack.pop().expect("it has a last one");
                self.recycle(frame.data);
            }
            if is_leaf {
                self.recycle(data);
            } else {
                held += data.len();
                stack.push(WaitingBase { number: child, data, kept, next });
            }
        }
    }

    fn fail<V: ForestVisit>(&mut self, number: u32, error: &Error, visit: &mut V) {
        let mut failed = vec![number];
        while let Some(number) = failed.pop() {
            if visit.wants(number) {
                visit.failed(number, error);
                failed.extend(self.forest.children(number));
            }
        }
    }

    fn whole(&mut self, number: u32) -> Result<Vec<u8>> {
        let forest = self.forest;
        let mut out = self.spare.pop().unwrap_or_default();
        match forest.place(number) {
            Some((pack, rank)) => self.inflate_entry(number, pack, rank, &mut out)?,
            None => {
                let (oid, folder) = &forest.loose[(number - forest.packed_count()) as usize];
                out = forest.objects.loose[*folder as usize].read(oid, &mut self.inflate)?.1;
            }
        }
        Ok(out)
    }

    fn apply(&mut self, number: u32, base: &[u8]) -> Result<Vec<u8>> {
        let (pack, rank) = self.forest.place(number).expect("a delta is in a pack");
        let mut delta = std::mem::take(&mut self.delta);
        delta.shrink_to(SPARE_BYTES_MAX);
        self.inflate_entry(number, pack, rank, &mut delta)?;
        let mut out = self.spare.pop().unwrap_or_default();
        let applied = apply_delta(base, &delta, self.bytes_max, &mut out);
        self.delta = delta;
        applied.ok_or_else(|| self.forest.corrupt(number, "bad delta, or too large"))?;
        Ok(out)
    }

    fn inflate_entry(&mut self, number: u32, pack: usize, rank: u32, out: &mut Vec<u8>) -> Result<()> {
        let order = self.forest.orders[pack];
        let (offset, end) = (order.offset(rank), order.offset(rank + 1));
        let pack = &self.forest.objects.packs()[pack];
        let head = pack.entry(offset)?;
        if head.size > self.bytes_max {
            return Err(Error::TooLarge {
                oid: self.forest.oid(number),
                size: head.size,
                limit: self.bytes_max,
            });
        }
        let start = offset as usize + head.len;
        match pack.data().get(start..).and_then(|body| self.inflate.exact_vec(body, head.size as usize, out))
        {
            Some(len) if (start + len) as u64 <= end => Ok(()),
            _ => Err(self.forest.corrupt(number, "bad compressed data")),
        }
    }

    fn recycle(&mut self, buffer: Rc<Vec<u8>>) {
        if let Ok(buffer) = Rc::try_unwrap(buffer)
            && self.spare.len() < SPARE_MAX
            && buffer.capacity() <= SPARE_BYTES_MAX
        {
            self.spare.push(buffer);
        }
    }
}
