//! The bodies of an archive as bundles, each with what one update brought (gitformat-bundle; git-bundle-uri's
//! "creationToken").

use std::collections::HashMap;

use weir_archive::Region;
use weir_git::{HashKind, Oid, OidSet, plain_sha};

use crate::answer::export::bundle_signature;
use crate::error::{Result, corrupt};
use crate::objects::pack::{PACK_HEADER_BYTES, pack_header};
use crate::refs::list::Refs;
use crate::refs::states::{RefsCommit, refs_commits, refs_of};
use crate::repo::bodies::{Body, BodyBundle, RefClass};
use crate::repo::repository::Repo;

/// The token of the first bundle, which needs nothing. It stays the same when an archive is compacted: a
/// client that has the first bundle must not fetch it again.
const FIRST_TOKEN: u64 = 1;

/// A bundle in the form in which it is sent.
pub struct BundleParts {
    /// Everything before the pack's entries.
    pub header: Vec<u8>,
    /// The entries.
    pub entries: Region,
    /// The checksum of the pack.
    pub trailer: Oid,
}

impl Repo {
    /// Returns the bodies of HEAD, branches and tags as bundles, oldest first. Returns none unless everything
    /// in them is reachable now. The result is computed once per open repository.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn body_bundles(&self) -> Result<&[BodyBundle]> {
        if let Some(bundles) = self.caches.bundles.get() {
            return Ok(bundles);
        }
        let found = self.find_bundles()?;
        Ok(self.caches.bundles.get_or_init(|| found))
    }

    fn find_bundles(&self) -> Result<Vec<BodyBundle>> {
        let Some(archive) = &self.archive else { return Ok(Vec::new()) };
        if self.bodies.heads.is_none() || !self.history().shallow.is_empty() {
            return Ok(Vec::new());
        }
        let bodies: Vec<&Body> =
            self.bodies.list.iter().filter(|b| b.class == RefClass::HeadsAndTags).collect();
        let offsets: HashMap<u64, usize> = bodies
            .iter()
            .zip(0..)
            .map(|(body, n)| (self.objects().packs[body.pack as usize].data().file_offset(), n))
            .collect();
        // The number of the commit that brought each body.
        let mut seqs = vec![None; bodies.len()];
        for record in archive.records() {
            let record = record?;
            for n in record.members.iter().filter(|m| m.1 >= record.start).filter_map(|m| offsets.get(&m.1)) {
                seqs[*n] = Some(record.seq);
            }
        }
        let places = refs_commits(archive)?;
        let place_at = |seq: u64| places[..places.partition_point(|place| place.seq <= seq)].last().copied();
        let mut bundles = Vec::new();
        for (body, seq) in bodies.into_iter().zip(seqs) {
            let pack = &self.objects().packs[body.pack as usize];
            let Some(seq) = seq else {
                return corrupt("weir/commit", format!("no record of {}.pack", pack.name()));
            };
            let is_first = bundles.is_empty();
            bundles.push(BodyBundle {
                token: if is_first { FIRST_TOKEN } else { seq.max(FIRST_TOKEN + 1) },
                name: pack.index().pack_checksum(),
                body: *body,
                // In a compacted archive the first body is committed before the refs.
                refs: place_at(seq).or_else(|| places.first().copied()),
                refs_before: if is_first { None } else { place_at(seq.saturating_sub(1)) },
            });
        }
        Ok(bundles)
    }

    /// Returns the parts of `bundle`, which is one of [`Repo::body_bundles`].
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn bundle_parts(&self, bundle: &BodyBundle) -> Result<BundleParts> {
        let pack = &self.objects().packs[bundle.body.pack as usize];
        let Some(entries) = pack.data().slice(PACK_HEADER_BYTES..bundle.body.sent_end) else {
            return corrupt(pack.name(), "shorter than what was sent of it");
        };
        let trailer = match self.caches.body_trailers.get(bundle.body.pack as usize) {
            _ if bundle.body.sent_end == pack.entries_end()
                && bundle.body.sent_count == pack.index().count() =>
            {
                bundle.name
            }
            Some(known) => *known.get_or_init(|| sum(self.hash(), bundle.body.sent_count, &entries)),
            None => sum(self.hash(), bundle.body.sent_count, &entries),
        };
        let mut header = bundle_signature(self.hash());
        if let Some(archive) = &self.archive {
            let refs_at = |place: Option<RefsCommit>| {
                place.map_or_else(|| Ok(Refs::default()), |place| refs_of(archive, self.hash(), &place))
            };
            let before = refs_at(bundle.refs_before)?;
            let mut needed: Vec<Oid> =
                before.list().iter().filter(|r| r.name.starts_with(b"refs/heads/")).map(|r| r.oid).collect();
            needed.sort_unstable();
            needed.dedup();
            for oid in needed {
                header.push(b'-');
                push_line(&mut header, &oid, b"");
            }
            self.push_refs(&mut header, &refs_at(bundle.refs)?);
        }
        header.push(b'\n');
        header.extend_from_slice(&pack_header(bundle.body.sent_count));
        Ok(BundleParts { header, entries, trailer })
    }

    /// Writes branches and tags as they were. A branch that is gone while its commit is still here is named
    /// by the commit's id.
    fn push_refs(&self, header: &mut Vec<u8>, refs: &Refs) {
        let mut nameless = OidSet::default();
        for r in refs.list() {
            let is_head = r.name.starts_with(b"refs/heads/");
            if self.refs.get(&r.name).is_some() && (is_head || r.name.starts_with(b"refs/tags/")) {
                push_line(header, &r.oid, &r.name);
            } else if is_head && self.contains(&r.oid) && nameless.insert(r.oid) {
                push_line(header, &r.oid, format!("refs/heads/{}", r.oid).as_bytes());
            }
        }
    }
}

fn push_line(out: &mut Vec<u8>, oid: &Oid, name: &[u8]) {
    oid.push_hex(out);
    out.push(b' ');
    out.extend_from_slice(name);
    out.push(b'\n');
}

fn sum(hash: HashKind, count: u32, entries: &Region) -> Oid {
    let mut sum = plain_sha(hash);
    sum.update(&pack_header(count));
    sum.update(entries);
    sum.finish()
}
