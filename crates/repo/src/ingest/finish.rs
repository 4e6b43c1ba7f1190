//! Third pass: what is new, is it connected, and the pack as it will be stored.

use weir_git::{Oid, OidMap, plain_sha};

use super::resolve::Resolved;
use super::spool::Spool;
use super::stream::{Base, Streamed};
use super::{Ingested, Options, PackData, SpillFn};
use crate::entry::{push_ofs_delta_head, push_ref_delta_head, push_whole_head};
use crate::error::{Error, Result};
use crate::index::IndexEntry;
use crate::pack::PACK_HEADER_BYTES;
use crate::zlib::Deflate;

/// Level of bases appended to complete a pack: they are stored, never sent.
const COMPLETION_LEVEL: u8 = 6;

pub(crate) fn finish(
    mut streamed: Streamed<'_>,
    resolved: Resolved,
    spill: SpillFn<'_>,
    options: &Options<'_>,
) -> Result<Option<Ingested>> {
    let mut sorted: Vec<(Oid, u32)> = resolved.oids.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    // Ids that are named and not in the pack stay; unreferenced ones are kept.
    let named = &mut streamed.links.named;
    let mut unreferenced: Vec<Oid> = Vec::new();
    for (i, (oid, _)) in sorted.iter().enumerate() {
        let is_first = i == 0 || sorted[i - 1].0 != *oid;
        if is_first && named.remove(oid).is_none() {
            unreferenced.push(*oid);
        }
    }
    let outside = check_connected(&streamed, &sorted, options)?;
    let tags = std::mem::take(&mut streamed.links.tags);
    let keep = |i: usize| {
        let (oid, _) = &sorted[i];
        (i == 0 || sorted[i - 1].0 != *oid) && !options.base.is_some_and(|b| b.has(oid))
    };
    let mut kept: Vec<(Oid, u32)> = (0..sorted.len()).filter(|&i| keep(i)).map(|i| sorted[i]).collect();
    // A fork's first pack may be large, and repeat what its base has; it is never sent as it lies.
    let may_repeat = options.base.is_some_and(|b| b.base().is_some()) && streamed.data.len() > REPEATS_BYTES_MIN;
    if may_repeat && !kept.is_empty() && sorted.windows(2).all(|w| w[0].0 != w[1].0) {
        kept.clone_from(&sorted);
    }
    if kept.is_empty() {
        return Ok(None);
    }
    if kept.len() < sorted.len() {
        unreferenced.retain(|oid| kept.binary_search_by_key(oid, |k| k.0).is_ok());
    }
    let sent_count = kept.len() as u32;
    let mut store = if kept.len() == sorted.len() {
        let entries = kept.iter().map(|&(oid, n)| (oid, &streamed.entries[n as usize]));
        let index = entries.map(|(oid, e)| IndexEntry { oid, offset: e.offset, crc32: e.crc32 }).collect();
        let end = streamed.data.len() as u64 - options.hash.len() as u64;
        Store { data: streamed.data, index, end, outside_bases: resolved.outside_bases, unchanged: Some(streamed.checksum) }
    } else {
        rewrite(&streamed, &resolved, &kept, spill, options)?
    };
    let sent_end = store.end;
    store.complete(options)?;
    let checksum = store.seal(options)?;
    Ok(Some(Ingested { data: store.data, index: store.index, checksum, sent_end, sent_count, unreferenced, outside, tags }))
}

/// Every id that is named outside the pack must be here, and everything wanted in it or here. Returns the ids that are here.
fn check_connected(streamed: &Streamed<'_>, sorted: &[(Oid, u32)], options: &Options<'_>) -> Result<Vec<Oid>> {
    let in_pack = |oid: &Oid| sorted.binary_search_by(|probe| probe.0.cmp(oid)).is_ok();
    let here = |oid: &Oid| options.base.is_some_and(|b| b.has(oid));
    let mut outside = Vec::new();
    let mut missing: Option<(Oid, String)> = None;
    let mut missing_count = 0;
    for (oid, &referrer) in &streamed.links.named {
        if here(oid) {
            outside.push(*oid);
            continue;
        }
        missing_count += 1;
        if missing.as_ref().is_none_or(|m| *oid < m.0) {
            let name = sorted.iter().find(|s| s.1 == referrer).map_or(String::new(), |s| format!("object {}", s.0));
            missing = Some((*oid, name));
        }
    }
    for oid in options.wanted {
        if missing.is_none() && !in_pack(oid) && !here(oid) {
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
struct Store {
    data: PackData,
    index: Vec<IndexEntry>,
    /// Where its entries end.
    end: u64,
    /// Bases its deltas need and it lacks.
    outside_bases: Vec<Oid>,
    /// Its checksum, as long as nothing was changed.
    unchanged: Option<Oid>,
}

impl Store {
    /// Appends the bases that are missing, whole.
    fn complete(&mut self, options: &Options<'_>) -> Result<()> {
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
            // Small deltas may build on large objects: what a pack takes here has the limit of what is sent.
            if offset > options.limits.pack_bytes_max {
                return Err(Error::Limit {
                    what: format!("with what its deltas build on more than {} bytes", options.limits.pack_bytes_max),
                    limit: options.limits.pack_bytes_max,
                    option: "limits.pack_bytes_max",
                });
            }
            self.index.push(IndexEntry { oid: *oid, offset, crc32 });
        }
        self.append(&mut appended)?;
        self.index.sort_unstable_by_key(|e| e.oid);
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

    /// Sets count and checksum.
    fn seal(&mut self, options: &Options<'_>) -> Result<Oid> {
        if let Some(checksum) = self.unchanged {
            return Ok(checksum);
        }
        self.data.write_at(&(self.index.len() as u32).to_be_bytes(), 8)?;
        let mut sum = plain_sha(options.hash);
        sum.update(&self.data[..self.end as usize]);
        let checksum = sum.finish();
        self.data.write_at(checksum.as_bytes(), self.end)?;
        Ok(checksum)
    }
}

/// Copies the entries that are kept. A delta whose base is not kept becomes one against that base's id, outside.
fn rewrite(streamed: &Streamed<'_>, resolved: &Resolved, kept: &[(Oid, u32)], spill: SpillFn<'_>, options: &Options<'_>) -> Result<Store> {
    let mut by_offset: Vec<(u32, Oid)> = kept.iter().map(|&(oid, n)| (n, oid)).collect();
    by_offset.sort_unstable();
    let mut new_offsets: OidMap<u64> = OidMap::default();
    let mut out = Spool::new(spill);
    out.write(b"PACK\0\0\0\x02\0\0\0\0")?;
    debug_assert_eq!(out.len(), PACK_HEADER_BYTES);
    let mut index = Vec::with_capacity(kept.len());
    let mut outside_bases = Vec::new();
    let entries_end = streamed.data.len() - options.hash.len();
    let mut head = Vec::new();
    for &(n, oid) in &by_offset {
        let e = &streamed.entries[n as usize];
        let body_start = e.offset as usize + usize::from(e.head_len);
        let body_end = streamed.entries.get(n as usize + 1).map_or(entries_end, |next| next.offset as usize);
        let offset = out.len();
        head.clear();
        match e.base {
            Base::Whole(kind) => push_whole_head(&mut head, kind, e.size),
            Base::Entry(_) | Base::Id(_) => {
                let base = match e.base {
                    Base::Entry(b) => resolved.oids[b as usize],
                    Base::Id(id) => streamed.base_ids[id as usize],
                    Base::Whole(_) => unreachable!("matched above"),
                };
                match new_offsets.get(&base) {
                    Some(base_offset) => push_ofs_delta_head(&mut head, offset - base_offset, e.size),
                    None => {
                        push_ref_delta_head(&mut head, base.as_bytes(), e.size);
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
        index.push(IndexEntry { oid, offset, crc32: crc.finalize() });
        new_offsets.insert(oid, offset);
    }
    // A delta may build on an object that is kept but stands after it: that base is inside, found by its id.
    outside_bases.retain(|oid| !new_offsets.contains_key(oid));
    outside_bases.sort_unstable();
    outside_bases.dedup();
    index.sort_unstable_by_key(|e| e.oid);
    let end = out.len();
    // Its checksum is set when it is sealed.
    out.write(&vec![0; options.hash.len()])?;
    Ok(Store { data: out.finish()?, index, end, outside_bases, unchanged: None })
}

/// Smaller packs are rewritten where they repeat what is here.
const REPEATS_BYTES_MIN: usize = 64 << 20;
/// Bases are appended when so many bytes of them are there.
const COMPLETION_BUFFER_BYTES: usize = 8 << 20;
