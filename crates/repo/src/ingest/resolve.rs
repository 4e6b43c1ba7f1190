//! The second pass: resolves every delta tree once, depth first.

use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use weir_git::{BatchHasher, Kind, ObjectHasher, Oid, OidMap};
use weir_ground::thread::on_threads;

use super::links::Links;
use super::options::{IngestLimits, IngestOptions};
use super::stream::{EntryBase, Streamed, check_inflated};
use crate::error::{Error, Result, bad_pack};
use crate::large::{LARGE_BYTES, LargeTurn};
use crate::objects::entry::{apply_delta, delta_sizes};
use crate::objects::zlib::Inflate;
use crate::progress::{Phase, Progress};

/// The number of buffers kept for reuse: as many as wait to be hashed, and some bases.
const SPARE_MAX: usize = 24;
/// The longest buffer that is kept.
const SPARE_BYTES_MAX: usize = 4 << 20;
/// With fewer deltas, more threads do not pay.
const THREADED_DELTAS_MIN: usize = 5000;
/// The number of deltas that are reported at once. With smaller numbers threads would wait for each other.
const TOLD_AT_ONCE: u64 = 256;

/// Deltas by their base.
struct Children {
    /// `starts[n]..starts[n + 1]` of `list` build on entry `n`, in ascending order of weight.
    starts: Vec<u32>,
    list: Vec<u32>,
    /// Deltas by the id of their base.
    by_id: OidMap<Vec<u32>>,
}

impl Children {
    fn new(streamed: &Streamed<'_>) -> Children {
        let entries = &streamed.entries;
        let mut starts = vec![0u32; entries.len() + 2];
        let mut by_id: OidMap<Vec<u32>> = OidMap::default();
        // How many objects build on each entry, itself included. Bases come before their deltas, so one pass
        // backwards is enough.
        let mut weight = vec![1u32; entries.len()];
        for (n, e) in entries.iter().enumerate().rev() {
            match e.base() {
                EntryBase::Whole(_) => {}
                EntryBase::Entry(base) => {
                    starts[base as usize + 2] += 1;
                    weight[base as usize] = weight[base as usize].saturating_add(weight[n]);
                }
                EntryBase::Id(id) => by_id.entry(streamed.base_ids[id as usize]).or_default().push(n as u32),
            }
        }
        for n in 2..starts.len() {
            starts[n] += starts[n - 1];
        }
        let mut list = vec![0u32; starts[starts.len() - 1] as usize];
        for (n, e) in entries.iter().enumerate() {
            if let EntryBase::Entry(base) = e.base() {
                let at = &mut starts[base as usize + 1];
                list[*at as usize] = n as u32;
                *at += 1;
            }
        }
        for n in 0..entries.len() {
            let of_one = &mut list[starts[n] as usize..starts[n + 1] as usize];
            if of_one.len() > 1 {
                of_one.sort_unstable_by_key(|&c| weight[c as usize]);
            }
        }
        Children { starts, list, by_id }
    }

    fn of(&self, n: u32) -> &[u32] {
        &self.list[self.starts[n as usize] as usize..self.starts[n as usize + 1] as usize]
    }
}

/// A base to start from.
enum Root {
    /// A whole object of the pack.
    Entry(u32),
    /// An object that the repository has already.
    Outside(Oid),
}

/// A base that is being worked on, and the deltas that still wait for it. The last delta releases the base.
struct Frame {
    data: Rc<Vec<u8>>,
    waiting: Vec<u32>,
}

/// An object whose id is being computed.
struct Hashing {
    entry: u32,
    kind: Kind,
    data: Rc<Vec<u8>>,
}

impl AsRef<[u8]> for Hashing {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// The bytes of objects that the delta trees of one pack hold at a time: bases that deltas wait for, and the
/// objects made of them.
#[derive(Default)]
struct HeldBytes {
    bytes: AtomicU64,
    turn: Mutex<Option<LargeTurn>>,
}

impl HeldBytes {
    /// Counts the bytes of an object, and fails if they exceed the limit.
    fn add(&self, bytes: u64, limits: &IngestLimits) -> Result<()> {
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held > limits.held_bytes_max {
            let what = "bases that deltas wait for, and what they make of them".to_owned();
            return Err(Error::Limit { what, limit: limits.held_bytes_max, option: "limits.held_bytes_max" });
        }
        if held > LARGE_BYTES {
            let mut turn = self.turn.lock().expect("not poisoned");
            if turn.is_none() {
                *turn = LargeTurn::for_bytes(held);
            }
        }
        Ok(())
    }

    fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

struct ResolveWorker<'w, 's> {
    streamed: &'w Streamed<'s>,
    children: &'w Children,
    claimed: &'w [AtomicBool],
    inflated: &'w AtomicU64,
    held: &'w HeldBytes,
    limits: &'w IngestLimits,
    inflate: Inflate,
    links: Links<'s>,
    hasher: BatchHasher<Hashing>,
    /// Whether deltas name bases by ids that may turn up in the pack. Then each id is needed at once.
    ids_first: bool,
    spare: Vec<Vec<u8>>,
    delta: Vec<u8>,
    progress: &'w Progress,
    /// Deltas that were not yet reported.
    untold: u64,
}

impl ResolveWorker<'_, '_> {
    /// Returns the deltas on entry `n` and on the id `oid` (if any), heaviest first, so that the heaviest is
    /// popped last. Each delta is returned once, even if the pack holds its base twice.
    fn waiting(&self, n: Option<u32>, oid: Option<&Oid>) -> Vec<u32> {
        let mut waiting: Vec<u32> =
            n.map_or(Vec::new(), |n| self.children.of(n).iter().rev().copied().collect());
        if !self.children.by_id.is_empty()
            && let Some(more) = oid.and_then(|oid| self.children.by_id.get(oid))
        {
            waiting.extend(more);
        }
        waiting.retain(|&c| !self.claimed[c as usize].swap(true, Ordering::Relaxed));
        waiting
    }

    /// Returns the whole object of entry `n`, and counts its bytes as held.
    fn whole(&mut self, n: u32) -> Result<Vec<u8>> {
        // For a kept object nothing of the pack is read: pages that are read stay in memory until the read is
        // noted.
        if let Ok(i) = self.streamed.kept.binary_search_by_key(&n, |k| k.0) {
            let data = std::mem::take(&mut *self.streamed.kept[i].1.lock().expect("not poisoned"));
            self.held.add(data.len() as u64, self.limits)?;
            return Ok(data);
        }
        self.held.add(self.streamed.head(n)?.size, self.limits)?;
        let mut data = self.spare.pop().unwrap_or_default();
        self.inflate_entry(n, &mut data)?;
        Ok(data)
    }

    fn inflate_entry(&mut self, n: u32, out: &mut Vec<u8>) -> Result<()> {
        let head = self.streamed.head(n)?;
        let start = self.streamed.entries[n as usize].offset as usize + head.len;
        // The size was checked when the pack was received. Since then the data was on a disk.
        if head.size > self.limits.object_bytes_max {
            return bad_pack(format!("bad data at byte {start}"));
        }
        out.clear();
        out.resize(head.size as usize, 0);
        let Some(consumed) = self.inflate.exact(&self.streamed.data[start..], out) else {
            return bad_pack(format!("bad compressed data at byte {start}"));
        };
        self.streamed.data.was_read(start..start + consumed);
        Ok(())
    }

    /// Returns the object that delta `n` makes of `base`, and counts its bytes as held.
    fn apply(&mut self, n: u32, base: &[u8]) -> Result<Vec<u8>> {
        let mut out = self.spare.pop().unwrap_or_default();
        let make = |delta: &[u8], out: &mut Vec<u8>| -> Result<Option<()>> {
            let Some((_, size)) =
                delta_sizes(delta).filter(|(_, size)| *size <= self.limits.object_bytes_max)
            else {
                return Ok(None);
            };
            self.held.add(size, self.limits)?;
            Ok(apply_delta(base, delta, self.limits.object_bytes_max, out))
        };
        let applied = match self.streamed.kept_delta(n) {
            Some(delta) => make(delta, &mut out)?,
            None => {
                let mut delta = std::mem::take(&mut self.delta);
                self.held.add(self.streamed.head(n)?.size, self.limits)?;
                self.inflate_entry(n, &mut delta)?;
                let applied = make(&delta, &mut out)?;
                self.held.remove(delta.len());
                self.delta = if delta.capacity() <= SPARE_BYTES_MAX { delta } else { Vec::new() };
                applied
            }
        };
        if applied.is_none() {
            let offset = self.streamed.entries[n as usize].offset;
            return bad_pack(format!(
                "the delta at byte {offset} does not fit its base, or makes too large an object"
            ));
        }
        Ok(out)
    }

    /// Resolves everything that builds on `data`, whose bytes are counted as held already.
    fn tree(&mut self, kind: Kind, data: Vec<u8>, waiting: Vec<u32>) -> Result<()> {
        let mut stack = vec![Frame { data: Rc::new(data), waiting }];
        while let Some(mut frame) = stack.pop() {
            let Some(n) = frame.waiting.pop() else { continue };
            let out = Rc::new(self.apply(n, &frame.data)?);
            if frame.waiting.is_empty() {
                self.held.remove(frame.data.len());
                self.recycle(frame.data);
            } else {
                stack.push(frame);
            }
            self.untold += 1;
            if self.untold == TOLD_AT_ONCE {
                self.progress.add(std::mem::take(&mut self.untold));
            }
            let inflated = self.inflated.fetch_add(out.len() as u64, Ordering::Relaxed) + out.len() as u64;
            check_inflated(inflated, self.limits)?;
            let waiting = if self.ids_first {
                let oid = ObjectHasher::hash(self.streamed.hash, kind, &out)?;
                self.take(n, kind, oid, &out)?;
                self.waiting(Some(n), Some(&oid))
            } else {
                self.hasher.push(kind, Hashing { entry: n, kind, data: Rc::clone(&out) });
                self.take_hashed()?;
                self.waiting(Some(n), None)
            };
            // The largest branch comes last, so an honest pack holds few bases. A chain made to hold many is
            // refused before it takes the memory.
            if waiting.is_empty() {
                self.held.remove(out.len());
                self.recycle(out);
            } else {
                stack.push(Frame { data: out, waiting });
            }
        }
        Ok(())
    }

    /// Records an object whose id is known.
    fn take(&mut self, entry: u32, kind: Kind, oid: Oid, data: &[u8]) -> Result<()> {
        self.links.add(&self.streamed.named, entry, &oid, kind, data)?;
        self.streamed.ids.set(entry, &oid);
        Ok(())
    }

    fn take_hashed(&mut self) -> Result<()> {
        while let Some((Hashing { entry, kind, data }, oid)) = self.hasher.pop() {
            self.take(entry, kind, oid?, &data)?;
            self.recycle(data);
        }
        Ok(())
    }

    /// Keeps a buffer for the next object, if nothing else refers to it.
    fn recycle(&mut self, buffer: Rc<Vec<u8>>) {
        if let Ok(buffer) = Rc::try_unwrap(buffer)
            && self.spare.len() < SPARE_MAX
            && buffer.capacity() <= SPARE_BYTES_MAX
        {
            self.spare.push(buffer);
        }
    }
}

/// Computes the ids of all deltas, and the objects they name. Returns the ids of bases that are not in the
/// pack.
pub(crate) fn resolve<'a>(streamed: &mut Streamed<'a>, options: &IngestOptions<'a>) -> Result<Vec<Oid>> {
    let n = streamed.entries.len();
    let is_whole = |n: &u32| matches!(streamed.entries[*n as usize].base(), EntryBase::Whole(_));
    let delta_count = n - (0..n as u32).filter(is_whole).count();
    if delta_count == 0 {
        streamed.drop_deltas();
        return Ok(Vec::new());
    }
    options.progress.begin(Phase::Resolving, delta_count as u64);
    let children = Children::new(streamed);
    let claimed: Vec<AtomicBool> = (0..n).map(|_| AtomicBool::new(false)).collect();
    let inflated = AtomicU64::new(streamed.inflated_bytes);
    let has_children = |&n: &u32| {
        !children.of(n).is_empty()
            || (!children.by_id.is_empty() && children.by_id.contains_key(&streamed.ids.get(n)))
    };
    let inside: Vec<Root> =
        (0..n as u32).filter(|n| is_whole(n) && has_children(n)).map(Root::Entry).collect();
    let threads = if delta_count < THREADED_DELTAS_MIN { 1 } else { options.threads.max(1) };
    let ids_first = children.by_id.keys().any(|oid| !options.base.is_some_and(|b| b.has(oid)));
    // A single thread goes on with the links of the first pass.
    let no_links = Links::new(streamed.hash, 0, options.shallow);
    let links = Mutex::new((threads == 1).then(|| std::mem::replace(&mut streamed.links, no_links)));
    let held = HeldBytes::default();
    let shared = ResolveState {
        links: &links,
        streamed,
        children: &children,
        claimed: &claimed,
        inflated: &inflated,
        held: &held,
        ids_first,
        options,
    };
    let mut gathered = run(&shared, &inside, threads)?;
    let mut outside_bases: Vec<Oid> = children
        .by_id
        .iter()
        .filter(|(_, deltas)| deltas.iter().any(|&d| !claimed[d as usize].load(Ordering::Relaxed)))
        .map(|(oid, _)| *oid)
        .filter(|oid| options.base.is_some_and(|b| b.has(oid)))
        .collect();
    outside_bases.sort_unstable();
    if !outside_bases.is_empty() {
        let roots: Vec<Root> = outside_bases.iter().map(|oid| Root::Outside(*oid)).collect();
        gathered.extend(run(&shared, &roots, threads)?);
    }
    if let Some(open) =
        (0..n as u32).position(|n| !is_whole(&n) && !claimed[n as usize].load(Ordering::Relaxed))
    {
        let e = &streamed.entries[open];
        let base = match e.base() {
            EntryBase::Id(id) => streamed.base_ids[id as usize].to_string(),
            _ => "another such delta".to_owned(),
        };
        return bad_pack(format!(
            "the delta at byte {} builds on {base}, which is neither in the pack nor here",
            e.offset
        ));
    }
    drop(children);
    streamed.drop_deltas();
    for mut links in gathered {
        streamed.links.tags.append(&mut links.tags);
    }
    Ok(outside_bases)
}

struct ResolveState<'w, 'a> {
    /// The links to go on with, for the first worker that takes them.
    links: &'w Mutex<Option<Links<'a>>>,
    streamed: &'w Streamed<'a>,
    children: &'w Children,
    claimed: &'w [AtomicBool],
    inflated: &'w AtomicU64,
    held: &'w HeldBytes,
    ids_first: bool,
    options: &'w IngestOptions<'a>,
}

impl<'a> ResolveState<'_, 'a> {
    /// Works through the roots that no other thread has taken, until none is left.
    fn work(&self, roots: &[Root], next: &AtomicUsize) -> Result<Links<'a>> {
        let streamed = self.streamed;
        let new_links = || Links::new(streamed.hash, streamed.entries.len() as u32, self.options.shallow);
        let mut worker = ResolveWorker {
            streamed,
            children: self.children,
            claimed: self.claimed,
            inflated: self.inflated,
            held: self.held,
            limits: &self.options.limits,
            inflate: Inflate::default(),
            links: self.links.lock().expect("not poisoned").take().unwrap_or_else(new_links),
            hasher: BatchHasher::new(streamed.hash),
            ids_first: self.ids_first,
            spare: Vec::new(),
            delta: Vec::new(),
            progress: self.options.progress,
            untold: 0,
        };
        let mut reader = self.options.base.map(|b| b.reader());
        while let Some(root) = roots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (kind, data, waiting) = match root {
                Root::Entry(n) => {
                    let EntryBase::Whole(kind) = streamed.entries[*n as usize].base() else { continue };
                    let waiting = worker.waiting(Some(*n), Some(&streamed.ids.get(*n)));
                    if waiting.is_empty() {
                        continue;
                    }
                    (kind, worker.whole(*n)?, waiting)
                }
                Root::Outside(oid) => {
                    let waiting = worker.waiting(None, Some(oid));
                    let Some(reader) = reader.as_mut().filter(|_| !waiting.is_empty()) else { continue };
                    let size = reader.kind_and_size(oid)?.ok_or(Error::Missing(*oid))?.1;
                    worker.held.add(size, worker.limits)?;
                    let object = reader.require(oid)?;
                    (object.kind, object.data.as_ref().clone(), waiting)
                }
            };
            worker.tree(kind, data, waiting)?;
        }
        worker.hasher.flush();
        worker.take_hashed()?;
        worker.progress.add(worker.untold);
        Ok(worker.links)
    }
}

/// Works through `roots` on `threads` threads.
fn run<'a>(shared: &ResolveState<'_, 'a>, roots: &[Root], threads: usize) -> Result<Vec<Links<'a>>> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let work = || match shared.work(roots, &next) {
        Ok(links) => Some(links),
        Err(e) => {
            // Stops the other threads at their next root.
            next.store(usize::MAX / 2, Ordering::Relaxed);
            failed.lock().expect("not poisoned").get_or_insert(e);
            None
        }
    };
    let gathered = on_threads("resolve", threads, work);
    match failed.into_inner().expect("not poisoned") {
        Some(e) => Err(e),
        None => Ok(gathered.into_iter().flatten().collect()),
    }
}
