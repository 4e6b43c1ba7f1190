//! Packs as bodies: what of each was sent, to which class of refs it belongs, and which runs of them are
//! whole clones.
//!
//! A full clone whose answer is a set of whole, closed bodies is sent as the bytes lie
//! (`docs/archive-format.md`, section 8). What makes that sound is decided here, when an update is committed.

use std::sync::Arc;

use weir_archive::{Archive, Region};
use weir_git::{HashKind, Oid, OidSet, plain_sha};

use crate::error::{Result, corrupt};
use crate::ingest::Ingested;
use crate::objects::index::{IndexEntry, write_index};
use crate::objects::pack::{PACK_HEADER_BYTES, Pack};
use crate::reach::walk::{Steps, all_reachable_from};
use crate::refs::list::Refs;
use crate::repo::repository::Repo;

/// Commits looked at to find out whether a tip that went away is still reachable.
const REACHABLE_COMMITS_MAX: usize = 50_000;

/// Which refs a body was fetched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefClass {
    /// HEAD, branches and tags: what an ordinary clone takes.
    HeadsAndTags,
    /// All other refs, `refs/pull/*` and the like.
    Rest,
    /// Nothing now: kept for older states.
    History,
}

impl RefClass {
    /// Its name in an archive.
    pub fn name(self) -> &'static str {
        match self {
            RefClass::HeadsAndTags => "heads",
            RefClass::Rest => "rest",
            RefClass::History => "history",
        }
    }

    fn from_name(name: &str) -> Option<RefClass> {
        match name {
            "heads" => Some(RefClass::HeadsAndTags),
            "rest" => Some(RefClass::Rest),
            "history" => Some(RefClass::History),
            _ => None,
        }
    }
}

/// A pack as a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Which of [`Repo::packs`].
    pub pack: u32,
    /// For which refs it was fetched.
    pub class: RefClass,
    /// Where the part that was sent ends in the pack; completing bases follow.
    pub sent_end: u64,
    /// Objects in that part.
    pub sent_count: u32,
}

/// Bodies which together are exactly the objects reachable from a class of refs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeClone {
    /// Objects in all of them.
    pub count: u32,
    /// Checksum of header and bodies as they are sent, if it is known: several bodies are summed only when
    /// they are sent, or each update would read the whole archive.
    pub trailer: Option<Oid>,
}

/// A whole clone as it is sent: its header, these regions, its trailer.
pub struct StoredClone {
    /// Objects in it.
    pub count: u32,
    /// The bodies' entries, in order.
    pub regions: Vec<Region>,
    /// The packs they are of.
    packs: Vec<Arc<Pack>>,
    trailer: Option<Oid>,
    with_rest: bool,
}

impl StoredClone {
    /// The checksum it ends with, if that is known already.
    pub fn known_trailer(&self, repo: &Repo) -> Option<Oid> {
        self.trailer.or_else(|| repo.trailers[usize::from(self.with_rest)].get().copied())
    }

    /// The checksum it ends with. If it is not known all of it is read, once for an open repository.
    pub fn trailer(&self, repo: &Repo) -> Oid {
        self.trailer.unwrap_or_else(|| {
            *repo.trailers[usize::from(self.with_rest)].get_or_init(|| {
                let mut sum = plain_sha(repo.hash);
                sum.update(&pack_header(self.count));
                for region in &self.regions {
                    sum.update(region);
                }
                sum.finish()
            })
        })
    }
}

/// Where the index of a whole clone is.
pub enum CloneIndex {
    /// In the archive.
    Stored(Region),
    /// It was made of those of several packs.
    Merged(Vec<u8>),
}

impl StoredClone {
    /// The index (gitformat-pack) of the one pack that header, regions and trailer make.
    ///
    /// # Errors
    /// If an index is damaged, or does not name as many objects as there are.
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
                // What completes a thin pack was not sent.
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
        Ok(CloneIndex::Merged(write_index(repo.hash, entries.into_iter(), &trailer)))
    }
}

/// What is known of an archive's packs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Bodies {
    /// All bodies, oldest first.
    pub list: Vec<Body>,
    /// Set if the bodies of class [`RefClass::HeadsAndTags`] are exactly what HEAD, branches and tags reach.
    pub heads: Option<WholeClone>,
    /// Set if the bodies of that class and of [`RefClass::Rest`] are exactly what all refs reach.
    pub all: Option<WholeClone>,
}

pub(crate) const HEADS_KEY: &str = "clone.heads";
pub(crate) const ALL_KEY: &str = "clone.all";

/// What stands in an attribute for a checksum that is not known.
const UNKNOWN: &str = "-";

/// The value of [`HEADS_KEY`] or [`ALL_KEY`].
pub(crate) fn whole_value(whole: &WholeClone) -> String {
    match whole.trailer {
        Some(trailer) => format!("{} {trailer}", whole.count),
        None => format!("{} {UNKNOWN}", whole.count),
    }
}

/// What [`whole_value`] wrote; `None` if it is malformed.
pub(crate) fn parse_whole(hash: HashKind, value: &str) -> Option<WholeClone> {
    let (count, trailer) = value.split_once(' ')?;
    let trailer = if trailer == UNKNOWN { None } else { Some(Oid::from_hex(hash, trailer.as_bytes())?) };
    Some(WholeClone { count: count.parse().ok()?, trailer })
}

pub(crate) fn body_key(short_pack_name: &str) -> String {
    format!("body.{short_pack_name}")
}

impl Bodies {
    /// Of `packs` the first `of_base` are another archive's.
    pub(crate) fn parse(
        hash: HashKind,
        archive: &Archive,
        packs: &[Arc<Pack>],
        of_base: usize,
    ) -> Result<Bodies> {
        fn bad<T>(key: &str) -> Result<T> {
            corrupt("weir/commit", format!("attribute '{key}' is malformed"))
        }
        let mut list = Vec::new();
        for (number, pack) in packs.iter().enumerate().skip(of_base) {
            let key = body_key(pack.name().strip_prefix("objects/pack/").unwrap_or(pack.name()));
            let Some(value) = archive.attribute(&key) else { continue };
            let mut words = value.split(' ');
            let mut word = || words.next().unwrap_or("");
            let (class, end, count) =
                (RefClass::from_name(word()), word().parse::<u64>(), word().parse::<u32>());
            match (class, end, count) {
                (Some(class), Ok(sent_end), Ok(sent_count))
                    if (PACK_HEADER_BYTES..=pack.entries_end()).contains(&sent_end)
                        && sent_count <= pack.index().count() =>
                {
                    list.push(Body { pack: number as u32, class, sent_end, sent_count });
                }
                _ => return bad(&key),
            }
        }
        // What builds on another is no whole clone, whatever it says.
        let is_part = archive.member(crate::repo::base::ALTERNATES).is_some();
        // In version 1 pull requests could build on what only history holds, and count as whole all the same.
        let is_rest_behind_history =
            list.iter().skip_while(|b| b.class != RefClass::History).any(|b| b.class == RefClass::Rest);
        let is_doubtful =
            |key: &str| archive.state().record.version < 2 && key == ALL_KEY && is_rest_behind_history;
        let whole = |key: &str| match archive.attribute(key).filter(|_| !is_part && !is_doubtful(key)) {
            None => Ok(None),
            Some(value) => parse_whole(hash, value).map_or_else(|| bad(key), |w| Ok(Some(w))),
        };
        Ok(Bodies { list, heads: whole(HEADS_KEY)?, all: whole(ALL_KEY)? })
    }

    /// Whether refs are known to reach every object of pack number `pack`.
    pub(crate) fn is_reachable_whole(&self, pack: u32) -> bool {
        let class = self.list.iter().find(|b| b.pack == pack).map(|b| b.class);
        match class {
            Some(RefClass::HeadsAndTags) => self.heads.is_some() || self.all.is_some(),
            Some(RefClass::Rest) => self.all.is_some(),
            Some(RefClass::History) | None => false,
        }
    }

    /// The whole clone that answers `wants` exactly; `None` if the answer must be computed.
    pub fn whole_clone(&self, repo: &Repo, wants: &OidSet) -> Option<StoredClone> {
        let matches = |tips: OidSet| tips == *wants;
        let (whole, with_rest) =
            if let Some(whole) = self.heads.filter(|_| matches(repo.refs().head_and_tag_tips().collect())) {
                (whole, false)
            } else {
                (self.all.filter(|_| matches(repo.refs().tips().collect()))?, true)
            };
        let (packs, regions) = self.sent_regions(&repo.packs, with_rest)?;
        Some(StoredClone { count: whole.count, regions, packs, trailer: whole.trailer, with_rest })
    }

    fn sent_regions(&self, packs: &[Arc<Pack>], with_rest: bool) -> Option<(Vec<Arc<Pack>>, Vec<Region>)> {
        let sent = |b: &&Body| b.class == RefClass::HeadsAndTags || (with_rest && b.class == RefClass::Rest);
        let of = |b: &Body| {
            let pack = &packs[b.pack as usize];
            Some((pack.clone(), pack.data().slice(PACK_HEADER_BYTES..b.sent_end)?))
        };
        self.list.iter().filter(sent).map(of).collect()
    }
}

/// What an update adds to a class of bodies.
pub(crate) struct Addition<'a> {
    pub(crate) class: RefClass,
    pub(crate) pack: &'a Ingested,
}

impl Addition<'_> {
    /// Ids of the objects that were sent; those that complete the pack are left out.
    fn sent(&self) -> impl Iterator<Item = Oid> {
        self.pack.objects.iter().filter(|e| e.offset < self.pack.sent_end).map(|e| e.oid)
    }

    /// Ids of the objects that complete the pack: bases of what was sent.
    fn completing(&self) -> impl Iterator<Item = Oid> {
        self.pack.objects.iter().filter(|e| e.offset >= self.pack.sent_end).map(|e| e.oid)
    }

    fn has_sent(&self, oid: &Oid) -> bool {
        self.pack.objects.get(oid).is_some_and(|e| e.offset < self.pack.sent_end)
    }
}

/// Whether the bodies of a class are still exactly what its refs reach, after `old`'s refs have become `new`
/// and `addition` came in. Saying no is always safe.
pub(crate) fn still_exact(
    old: Option<&Repo>,
    new: &Refs,
    addition: Option<&Addition<'_>>,
    all: bool,
) -> Result<bool> {
    let tips = |refs: &Refs| -> OidSet {
        if all { refs.tips().collect() } else { refs.head_and_tag_tips().collect() }
    };
    let is_of_class = |class: RefClass| class == RefClass::HeadsAndTags || (all && class == RefClass::Rest);
    let new_tips = tips(new);
    // What only older states of the refs reach is sent to nobody.
    let addition = addition.filter(|a| is_of_class(a.class));
    if addition.is_some_and(|a| !a.pack.unreferenced.iter().all(|oid| new_tips.contains(oid))) {
        return Ok(false);
    }
    let Some(old) = old else { return Ok(true) };
    let was_exact = if all { old.bodies.all } else { old.bodies.heads };
    if was_exact.is_none() && !old.bodies.list.is_empty() {
        return Ok(false);
    }
    let sent = old.limited_to(|b| b.is_some_and(|b| is_of_class(b.class)));
    if let Some(a) = addition {
        // All that the new objects name or are deltas of must be sent, too, and nothing twice: what is sent
        // is then whole and closed, whatever it was fetched on.
        let is_closed = a.pack.outside.iter().copied().chain(a.completing()).all(|oid| sent.contains(&oid));
        if !is_closed || a.sent().any(|oid| sent.contains(&oid)) {
            return Ok(false);
        }
    }
    // So must tips: a restored ref may lead to what only history holds.
    if !new_tips.iter().all(|tip| sent.contains(tip) || addition.is_some_and(|a| a.has_sent(tip))) {
        return Ok(false);
    }
    let outside: OidSet = addition.map_or_else(OidSet::default, |a| a.pack.outside.iter().copied().collect());
    let gone: Vec<Oid> =
        tips(&old.refs).into_iter().filter(|t| !new_tips.contains(t) && !outside.contains(t)).collect();
    if gone.is_empty() {
        return Ok(true);
    }
    let sources: Vec<Oid> = new_tips.into_iter().chain(outside).filter(|oid| sent.contains(oid)).collect();
    all_reachable_from(&sent, &sources, &gone, REACHABLE_COMMITS_MAX, &mut Steps::unbounded())
}

/// The header of a pack of `count` objects.
pub fn pack_header(count: u32) -> [u8; 12] {
    let mut header = *b"PACK\0\0\0\x02\0\0\0\0";
    header[8..].copy_from_slice(&count.to_be_bytes());
    header
}
