//! Whole clones: answers stored in an archive as they are sent (`docs/archive-format.md`, section 8).

use std::sync::Arc;

use weir_archive::Region;
use weir_git::{Oid, OidSet, plain_sha};

use crate::error::{Result, corrupt};
use crate::objects::index::{IndexEntry, write_index};
use crate::objects::pack::{PACK_HEADER_BYTES, Pack, pack_header};
use crate::repo::bodies::{Body, RefClass};
use crate::repo::repository::Repo;

/// A whole clone as it is sent: its header, these regions, its trailer.
pub struct StoredClone {
    /// The number of objects in the clone.
    pub count: u32,
    /// The bodies' entries, in order.
    pub regions: Vec<Region>,
    /// The packs that the regions are part of.
    packs: Vec<Arc<Pack>>,
    trailer: Option<Oid>,
    with_rest: bool,
}

impl StoredClone {
    /// Returns the checksum of the pack that each region is part of, and the region's length in bytes. They
    /// tell regions apart: a region begins behind the header of its pack.
    pub fn parts(&self) -> impl Iterator<Item = (Oid, u64)> + '_ {
        self.packs.iter().zip(&self.regions).map(|(pack, region)| (pack.checksum(), region.len() as u64))
    }

    /// Returns the checksum at the end of the clone, if it is known already.
    pub fn known_trailer(&self, repo: &Repo) -> Option<Oid> {
        self.trailer.or_else(|| repo.caches.trailers[usize::from(self.with_rest)].get().copied())
    }

    /// Returns the checksum at the end of the clone. If it is not known, the whole clone is read, once per
    /// open repository.
    pub fn trailer(&self, repo: &Repo) -> Oid {
        self.trailer.unwrap_or_else(|| {
            *repo.caches.trailers[usize::from(self.with_rest)].get_or_init(|| {
                let mut sum = plain_sha(repo.hash());
                sum.update(&pack_header(self.count));
                for region in &self.regions {
                    sum.update(region);
                }
                sum.finish()
            })
        })
    }
}

/// The index of a whole clone.
pub enum CloneIndex {
    /// A part of the archive.
    Stored(Region),
    /// An index merged from those of several packs.
    Merged(Vec<u8>),
}

impl StoredClone {
    /// Returns the index (gitformat-pack) of the single pack that header, regions and trailer make.
    ///
    /// # Errors
    /// If an index is damaged, or the number of objects is wrong.
    pub fn index(&self, repo: &Repo) -> Result<CloneIndex> {
        let trailer = self.trailer(repo);
        if let [pack] = &*self.packs
            && pack.index().pack_checksum() == trailer
        {
            return Ok(CloneIndex::Stored(pack.index().data().clone()));
        }
        let mut entries = Vec::with_capacity(self.count as usize);
        let mut start = PACK_HEADER_BYTES;
        for (pack, region) in self.packs.iter().zip(&self.regions) {
            let end = PACK_HEADER_BYTES + region.len() as u64;
            for position in 0..pack.index().count() {
                let offset = pack.offset(position)?;
                // Objects that complete a thin pack were not sent.
                if offset < end {
                    let (oid, crc32) = (pack.index().oid(position), pack.index().crc32(position));
                    entries.push(IndexEntry { oid, offset: offset - PACK_HEADER_BYTES + start, crc32 });
                }
            }
            start += region.len() as u64;
        }
        if entries.len() != self.count as usize {
            return corrupt(
                "weir/commit",
                format!("{} objects are sent, and {} counted", entries.len(), self.count),
            );
        }
        entries.sort_unstable_by_key(|entry| entry.oid);
        Ok(CloneIndex::Merged(write_index(repo.hash(), entries.into_iter(), &trailer)))
    }
}

impl Repo {
    /// Returns the whole clone that answers `wants` exactly; `None` if the answer must be computed.
    pub fn whole_clone(&self, wants: &OidSet) -> Option<StoredClone> {
        let matches = |tips: OidSet| tips == *wants;
        let (whole, with_rest) = if let Some(whole) =
            self.bodies.heads.filter(|_| matches(self.refs().head_and_tag_tips().collect()))
        {
            (whole, false)
        } else {
            (self.bodies.all.filter(|_| matches(self.refs().tips().collect()))?, true)
        };
        let (packs, regions) = self.sent_regions(with_rest)?;
        Some(StoredClone { count: whole.count, regions, packs, trailer: whole.trailer, with_rest })
    }

    fn sent_regions(&self, with_rest: bool) -> Option<(Vec<Arc<Pack>>, Vec<Region>)> {
        let sent = |b: &&Body| b.class == RefClass::HeadsAndTags || (with_rest && b.class == RefClass::Rest);
        let of = |b: &Body| {
            let pack = &self.objects().packs[b.pack as usize];
            Some((pack.clone(), pack.data().slice(PACK_HEADER_BYTES..b.sent_end)?))
        };
        self.bodies.list.iter().filter(sent).map(of).collect()
    }
}
