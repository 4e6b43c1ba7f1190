//! Bodies of an archive as bundles, each of what one update brought (gitformat-bundle; git-bundle-uri's "creationToken").

use weir_archive::Region;
use weir_git::{HashKind, Oid, OidSet, plain_sha};

use crate::bodies::{Body, RefClass, pack_header};
use crate::error::{Result, corrupt};
use crate::export::bundle_signature;
use crate::history::refs_in;
use crate::pack::PACK_HEADER_BYTES;
use crate::refs::Refs;
use crate::repo::Repo;

/// The token of the first bundle, which needs nothing. It stays the same when an archive is compacted: who has had the first
/// one is not to take it again.
const FIRST_TOKEN: u64 = 1;

/// A body that can be had as a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyBundle {
    /// Greater than that of each bundle it builds on (git-bundle-uri, "creationToken").
    pub token: u64,
    /// Checksum of the pack it is a part of: its name.
    pub name: Oid,
    body: Body,
    /// The commit it came with, and the one before.
    seq: u64,
    previous: Option<u64>,
}

/// A bundle as it is sent.
pub struct BundleParts {
    /// All before the pack's entries.
    pub header: Vec<u8>,
    /// The entries.
    pub entries: Region,
    /// The pack's checksum.
    pub trailer: Oid,
}

impl Repo {
    /// The bodies of HEAD, branches and tags as bundles, oldest first; none unless everything in them is reachable now. Found
    /// out once for an open repository.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn body_bundles(&self) -> Result<&[BodyBundle]> {
        if let Some(bundles) = self.bundles.get() {
            return Ok(bundles);
        }
        let found = self.find_bundles()?;
        Ok(self.bundles.get_or_init(|| found))
    }

    fn find_bundles(&self) -> Result<Vec<BodyBundle>> {
        let Some(archive) = &self.archive else { return Ok(Vec::new()) };
        if self.bodies.heads.is_none() || !self.shallow.is_empty() {
            return Ok(Vec::new());
        }
        let records = archive.records()?;
        let mut bundles = Vec::new();
        for body in self.bodies.list.iter().filter(|b| b.class == RefClass::HeadsAndTags) {
            let pack = &self.packs[body.pack as usize];
            let member = format!("{}.pack", pack.name());
            // The oldest record that lists it: full ones repeat everything.
            let Some(at) = records.iter().rposition(|r| r.members.iter().any(|m| m.0 == member)) else {
                return corrupt("weir/commit", format!("no record of {member}"));
            };
            let (seq, previous) = (records[at].seq, records.get(at + 1).map(|r| r.seq));
            let (token, previous) = if bundles.is_empty() { (FIRST_TOKEN, None) } else { (seq.max(FIRST_TOKEN + 1), previous) };
            bundles.push(BodyBundle { token, name: pack.index().pack_checksum(), body: *body, seq, previous });
        }
        Ok(bundles)
    }

    /// What `bundle`, one of [`Repo::body_bundles`], consists of.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn bundle_parts(&self, bundle: &BodyBundle) -> Result<BundleParts> {
        let pack = &self.packs[bundle.body.pack as usize];
        let Some(entries) = pack.data().slice(PACK_HEADER_BYTES..bundle.body.sent_end) else {
            return corrupt(pack.name(), "shorter than what was sent of it");
        };
        let trailer = match self.body_trailers.get(bundle.body.pack as usize) {
            _ if bundle.body.sent_end == pack.entries_end() && bundle.body.sent_count == pack.index().count() => bundle.name,
            Some(known) => *known.get_or_init(|| sum(self.hash, bundle.body.sent_count, &entries)),
            None => sum(self.hash, bundle.body.sent_count, &entries),
        };
        let mut header = bundle_signature(self.hash);
        if let Some(archive) = &self.archive {
            let refs_at = |seq: u64| match archive.at(seq)? {
                Some(older) => Ok(refs_in(&older, self.hash)?.unwrap_or_default()),
                None => corrupt("weir/commit", format!("record {seq} is gone")),
            };
            let before = bundle.previous.map_or_else(|| Ok(Refs::default()), refs_at)?;
            let mut needed: Vec<Oid> = before.list().iter().filter(|r| r.name.starts_with(b"refs/heads/")).map(|r| r.oid).collect();
            needed.sort_unstable();
            needed.dedup();
            for oid in needed {
                header.push(b'-');
                push_line(&mut header, &oid, b"");
            }
            self.push_refs(&mut header, &refs_at(bundle.seq)?);
        }
        header.push(b'\n');
        header.extend_from_slice(&pack_header(bundle.body.sent_count));
        Ok(BundleParts { header, entries, trailer })
    }

    /// Branches and tags as they were. What is reachable still, but has lost its name, gets one that tells nothing.
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
