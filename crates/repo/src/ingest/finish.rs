//! The third pass: finds what is new, checks that it is connected, and makes the pack that is stored.

use std::convert::Infallible;

use weir_git::{Oid, plain_sha};

use super::ids::Ids;
use super::ingested::Ingested;
use super::links::Named;
use super::options::IngestOptions;
use super::spool::{PackData, PackSpool, SpillFn};
use super::stream::{EntryBase, Streamed};
use super::table::PackTable;
use crate::error::{Error, Result};
use crate::objects::entry::{DELTA_CHAIN_MAX, push_ofs_delta_head, push_ref_delta_head, push_whole_head};
use crate::objects::index::IndexEntry;
use crate::objects::pack::PACK_HEADER_BYTES;
use crate::objects::zlib::Deflate;
use crate::progress::Phase;

/// The zlib level of bases appended to complete a pack: they are stored, never sent.
const COMPLETION_LEVEL: u8 = 6;

/// Finishes the pack; `outside_bases` are the ids of bases that it lacks.
pub(crate) fn finish(
    mut streamed: Streamed<'_>,
    outside_bases: Vec<Oid>,
    spill: SpillFn<'_>,
    options: &IngestOptions<'_>,
) -> Result<Option<Ingested>> {
    options.progress.begin(Phase::Connecting, 0);
    let order = streamed.ids.order();
    let id = |i: usize| streamed.ids.get(order[i]);
    let is_first = |i: usize| i == 0 || id(i - 1) != id(i);
    // Named ids that are not in the pack stay unanswered.
    let unnamed = (0..order.len()).filter(|&i| is_first(i) && !streamed.named.answer(&id(i)));
    let mut unreferenced: Vec<Oid> = unnamed.map(id).collect();
    let outside = check_connected(&streamed, &order, options)?;
    let is_kept = |i: usize| is_first(i) && !options.base.is_some_and(|b| b.has(&id(i)));
    let mut kept: Vec<u32> = (0..order.len()).filter(|&i| is_kept(i)).map(|i| order[i]).collect();
    // A large pack of a fork may repeat what its base has. It is kept so: it is never sent as it lies.
    let may_repeat =
        options.base.is_some_and(|b| b.base().is_some()) && streamed.data.len() > REPEATS_BYTES_MIN;
    if may_repeat && !kept.is_empty() && (0..order.len()).all(is_first) {
        kept.clone_from(&order);
    }
    let chain_len = chain_len(&streamed, &order);
    drop(order);
    let tags = std::mem::take(&mut streamed.links.tags);
    streamed.named = Named::new(streamed.hash, 0);
    if kept.is_empty() {
        return Ok(None);
    }
    if kept.len() < streamed.entries.len() {
        unreferenced.retain(|oid| find(&streamed.ids, &kept, oid).is_some());
    }
    let sent_count = kept.len() as u32;
    let mut store = if kept.len() == streamed.entries.len() {
        let end = streamed.data.len() as u64 - options.hash.len() as u64;
        let objects = PackTable::new(streamed.ids, streamed.entries, kept);
        StoredPack { data: streamed.data, objects, end, outside_bases, unchanged: Some(streamed.checksum) }
    } else {
        rewrite(&streamed, &kept, spill, options)?
    };
    let sent_end = store.end;
    store.complete(options)?;
    let checksum = store.seal(options)?;
    Ok(Some(Ingested {
        data: store.data,
        objects: store.objects,
        checksum,
        sent_end,
        sent_count,
        unreferenced,
        outside,
        chain_len,
        tags,
    }))
}

/// Returns the length of the longest chain of deltas in the pack, whose entries in ascending order of id are
/// `order`; 0 if the pack is too small for a long one.
fn chain_len(streamed: &Streamed<'_>, order: &[u32]) -> u32 {
    /// Stands for an entry that was not looked at yet.
    const OPEN: u32 = u32::MAX;
    if streamed.entries.len() <= usize::from(DELTA_CHAIN_MAX) {
        return 0;
    }
    let mut lens = vec![OPEN; streamed.entries.len()];
    let mut waiting = Vec::new();
    for n in 0..streamed.entries.len() as u32 {
        waiting.push(n);
        // Deltas were resolved, so that none builds on itself.
        while let Some(&n) = waiting.last() {
            let base = match streamed.entries[n as usize].base() {
                EntryBase::Whole(_) => None,
                EntryBase::Entry(base) => Some(Some(base)),
                EntryBase::Id(id) => Some(find(&streamed.ids, order, &streamed.base_ids[id as usize])),
            };
            let len = match base {
                None => 0,
                // A base from outside is appended whole.
                Some(None) => 1,
                Some(Some(base)) if lens[base as usize] == OPEN => {
                    waiting.push(base);
                    continue;
                }
                Some(Some(base)) => lens[base as usize] + 1,
            };
            lens[n as usize] = len;
            waiting.pop();
        }
    }
    lens.into_iter().max().unwrap_or_default()
}

/// Returns the number of the entry with the id `oid` among those of `order`, which are in ascending order of
/// id.
fn find(ids: &Ids, order: &[u32], oid: &Oid) -> Option<u32> {
    order.binary_search_by(|&number| ids.get(number).cmp(oid)).ok().map(|i| order[i])
}

/// Checks that every named id outside the pack is here, and that everything wanted is in the pack or here.
/// Returns the named ids that are here.
fn check_connected(streamed: &Streamed<'_>, order: &[u32], options: &IngestOptions<'_>) -> Result<Vec<Oid>> {
    let here = |oid: &Oid| options.base.is_some_and(|b| b.has(oid));
    let mut outside = Vec::new();
    let mut missing: Option<(Oid, String)> = None;
    let mut missing_count = 0;
    streamed.named.unanswered(|oid, referrer| {
        if here(&oid) {
            outside.push(oid);
            return;
        }
        if options.lost.contains(&oid) {
            return;
        }
        missing_count += 1;
        if missing.as_ref().is_none_or(|m| oid < m.0) {
            missing = Some((oid, format!("object {}", streamed.ids.get(referrer))));
        }
    });
    for oid in options.wanted {
        if missing.is_none()
            && find(&streamed.ids, order, oid).is_none()
            && !here(oid)
            && !options.lost.contains(oid)
        {
            missing_count += 1;
            missing = Some((*oid, "a ref".to_owned()));
        }
    }
    match missing {
        Some((missing, referrer)) => Err(Error::NotConnected { referrer, missing, count: missing_count }),
        None => Ok(outside),
    }
}

/// A pack on its way to be stored.
struct StoredPack {
    data: PackData,
    objects: PackTable,
    /// Where the entries end.
    end: u64,
    /// The bases that the deltas need and the pack lacks.
    outside_bases: Vec<Oid>,
    /// The checksum of the pack, as long as nothing was changed.
    unchanged: Option<Oid>,
}

impl StoredPack {
    /// Appends the missing bases, stored whole.
    fn complete(&mut self, options: &IngestOptions<'_>) -> Result<()> {
        let Some(base) = options.base.filter(|_| !self.outside_bases.is_empty()) else { return Ok(()) };
        let mut reader = base.reader();
        let mut deflate = Deflate::new(COMPLETION_LEVEL);
        let mut appended = Vec::new();
        for oid in &std::mem::take(&mut self.outside_bases) {
            if appended.len() > COMPLETION_BUFFER_BYTES {
                self.append(&mut appended)?;
            }
            let start = appended.len();
            if let Some(entry) = reader.whole_entry(oid)? {
                appended.extend_from_slice(entry);
            } else {
                let object = reader.require(oid)?;
                push_whole_head(&mut appended, object.kind, object.data.len() as u64);
                deflate.append(&object.data, &mut appended);
            }
            let crc32 = crc32fast::hash(&appended[start..]);
            let offset = self.end + start as u64;
            // Small deltas may build on large objects. So a completed pack has the same limit as a sent one.
            if offset > options.limits.pack_bytes_max {
                return Err(Error::Limit {
                    what: format!(
                        "with what its deltas build on more than {} bytes",
                        options.limits.pack_bytes_max
                    ),
                    limit: options.limits.pack_bytes_max,
                    option: "limits.pack_bytes_max",
                });
            }
            self.objects.push(IndexEntry { oid: *oid, offset, crc32 });
        }
        self.append(&mut appended)?;
        self.objects.sort();
        self.unchanged = None;
        Ok(())
    }

    /// Writes `bytes` behind the entries, and empties it.
    fn append(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        self.data.write_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        bytes.clear();
        Ok(())
    }

    /// Writes the count and the checksum. Returns the checksum.
    fn seal(&mut self, options: &IngestOptions<'_>) -> Result<Oid> {
        if let Some(checksum) = self.unchanged {
            return Ok(checksum);
        }
        self.data.write_at(&(self.objects.len() as u32).to_be_bytes(), 8)?;
        let mut sum = plain_sha(options.hash);
        let mut rest = self.end as usize;
        let Ok(()) = self.data.in_pieces(|piece| {
            let part = &piece[..piece.len().min(rest)];
            rest -= part.len();
            sum.update(part);
            Ok::<_, Infallible>(())
        });
        let checksum = sum.finish();
        self.data.write_at(checksum.as_bytes(), self.end)?;
        Ok(checksum)
    }
}

/// Copies the entries that are kept, whose numbers are in ascending order of id. If the base of a delta is
/// not kept, the delta names it by its id, as an outside base.
fn rewrite(
    streamed: &Streamed<'_>,
    kept: &[u32],
    spill: SpillFn<'_>,
    options: &IngestOptions<'_>,
) -> Result<StoredPack> {
    debug_assert!(kept.is_sorted_by(|&a, &b| streamed.ids.get(a) < streamed.ids.get(b)));
    let mut by_offset = kept.to_vec();
    by_offset.sort_unstable();
    // By number; 0 for entries not written yet.
    let mut new_offsets = vec![0u64; streamed.entries.len()];
    let mut out = PackSpool::new(spill, None);
    out.write(b"PACK\0\0\0\x02\0\0\0\0")?;
    debug_assert_eq!(out.len(), PACK_HEADER_BYTES);
    let mut objects = PackTable::new(Ids::new(options.hash), Vec::with_capacity(kept.len()), Vec::new());
    let mut outside_bases = Vec::new();
    let entries_end = streamed.data.len() - options.hash.len();
    let mut head = Vec::new();
    for &n in &by_offset {
        let (e, old_head) = (&streamed.entries[n as usize], streamed.head(n)?);
        let body_start = e.offset as usize + old_head.len;
        let body_end = streamed.entries.get(n as usize + 1).map_or(entries_end, |next| next.offset as usize);
        let offset = out.len();
        head.clear();
        let base = match e.base() {
            EntryBase::Whole(kind) => {
                push_whole_head(&mut head, kind, old_head.size);
                None
            }
            EntryBase::Entry(b) => Some(streamed.ids.get(b)),
            EntryBase::Id(id) => Some(streamed.base_ids[id as usize]),
        };
        if let Some(base) = base {
            match find(&streamed.ids, kept, &base).map(|b| new_offsets[b as usize]) {
                Some(base_offset) if base_offset > 0 => {
                    push_ofs_delta_head(&mut head, offset - base_offset, old_head.size)
                }
                inside => {
                    push_ref_delta_head(&mut head, base.as_bytes(), old_head.size);
                    // A delta may build on a kept object that comes after it. That base is inside, and found
                    // by its id.
                    if inside.is_none() {
                        outside_bases.push(base);
                    }
                }
            }
        }
        let body = &streamed.data[body_start..body_end];
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        crc.update(body);
        out.write(&head)?;
        out.write(body)?;
        streamed.data.was_read(e.offset as usize..body_end);
        objects.push(IndexEntry { oid: streamed.ids.get(n), offset, crc32: crc.finalize() });
        new_offsets[n as usize] = offset;
    }
    outside_bases.sort_unstable();
    outside_bases.dedup();
    objects.sort();
    let end = out.len();
    // The checksum is set when the pack is sealed.
    out.write(&vec![0; options.hash.len()])?;
    Ok(StoredPack { data: out.finish()?, objects, end, outside_bases, unchanged: None })
}

/// Smaller packs are rewritten if they repeat objects that are here.
const REPEATS_BYTES_MIN: usize = 64 << 20;
/// Bases are appended once this many bytes of them are buffered.
const COMPLETION_BUFFER_BYTES: usize = 8 << 20;
