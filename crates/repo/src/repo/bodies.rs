//! Packs as bodies: which part of each was sent, to which class of refs it belongs, and which runs of bodies
//! are whole clones.
//!
//! A full clone whose answer is a set of whole, closed bodies is sent as the bytes lie
//! (`docs/archive-format.md`, section 8). The update that commits a body decides which bodies are whole
//! clones.
//!
//! Invariants, which the reader checks again when it opens an archive:
//! - A body ends within its pack, and has no more objects than the pack.
//! - A whole clone has as many objects as its bodies together.
//! - An archive with a base has no whole clone.

use std::sync::Arc;

use weir_archive::Archive;
use weir_git::{HashKind, Oid};

use crate::error::{Result, corrupt};
use crate::objects::pack::{PACK_HEADER_BYTES, Pack};
use crate::refs::states::RefsCommit;
use crate::repo::keys::ALTERNATES;

/// The refs that a body was fetched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefClass {
    /// HEAD, branches and tags: what an ordinary clone takes.
    HeadsAndTags,
    /// All other refs, `refs/pull/*` and the like.
    Rest,
    /// No refs now: the body is kept for older states.
    History,
}

impl RefClass {
    /// Returns the name of the class in an archive.
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
    /// The index of the pack in [`crate::Objects::packs`].
    pub pack: u32,
    /// The refs for which the body was fetched.
    pub class: RefClass,
    /// Where the part that was sent ends in the pack. Bases that complete the pack follow.
    pub sent_end: u64,
    /// The number of objects in that part.
    pub sent_count: u32,
}

/// Bodies which together are exactly the objects reachable from a class of refs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeClone {
    /// The number of objects in all of the bodies.
    pub count: u32,
    /// The checksum of header and bodies as they are sent, if it is known. Several bodies are summed only
    /// when they are sent: otherwise each update would read the whole archive.
    pub trailer: Option<Oid>,
}

/// A body that can be sent as a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyBundle {
    /// A number greater than the token of each bundle it builds on (git-bundle-uri, "creationToken").
    pub token: u64,
    /// The checksum of the pack that the body is part of: its name.
    pub name: Oid,
    pub(crate) body: Body,
    /// The refs of the commit that brought the body, and of the commit before, if there are any.
    pub(crate) refs: Option<RefsCommit>,
    pub(crate) refs_before: Option<RefsCommit>,
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
    /// A message for each whole clone whose object count does not match its bodies. weir ignores such clones.
    pub(crate) contradictions: Vec<String>,
}

pub(crate) const HEADS_KEY: &str = "clone.heads";
pub(crate) const ALL_KEY: &str = "clone.all";

/// Stands in an attribute for a checksum that is not known.
const UNKNOWN: &str = "-";

/// Returns the value of [`HEADS_KEY`] or [`ALL_KEY`].
pub(crate) fn whole_value(whole: &WholeClone) -> String {
    match whole.trailer {
        Some(trailer) => format!("{} {trailer}", whole.count),
        None => format!("{} {UNKNOWN}", whole.count),
    }
}

/// Parses what [`whole_value`] wrote; returns `None` if it is malformed.
pub(crate) fn parse_whole(hash: HashKind, value: &str) -> Option<WholeClone> {
    let (count, trailer) = value.split_once(' ')?;
    let trailer = if trailer == UNKNOWN { None } else { Some(Oid::from_hex(hash, trailer.as_bytes())?) };
    Some(WholeClone { count: count.parse().ok()?, trailer })
}

pub(crate) fn body_key(short_pack_name: &str) -> String {
    format!("body.{short_pack_name}")
}

impl Bodies {
    /// Reads the bodies of `packs`. The first `of_base` packs belong to another archive.
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
        // An archive with a base has no whole clone, whatever its attributes say.
        let is_part = archive.member(ALTERNATES).is_some();
        // In version 1 pull requests could build on what only history holds, and still count as whole.
        let is_rest_behind_history =
            list.iter().skip_while(|b| b.class != RefClass::History).any(|b| b.class == RefClass::Rest);
        let is_doubtful =
            |key: &str| archive.state().record.version < 2 && key == ALL_KEY && is_rest_behind_history;
        let mut contradictions = Vec::new();
        let mut whole = |key: &str, classes: &[RefClass]| {
            let Some(value) = archive.attribute(key).filter(|_| !is_part && !is_doubtful(key)) else {
                return Ok(None);
            };
            let Some(whole) = parse_whole(hash, value) else { return bad(key) };
            let bodies = list.iter().filter(|body| classes.contains(&body.class));
            let count: u64 = bodies.map(|body| u64::from(body.sent_count)).sum();
            if count == u64::from(whole.count) {
                return Ok(Some(whole));
            }
            contradictions
                .push(format!("attribute '{key}' says {} objects, its bodies {count}", whole.count));
            Ok(None)
        };
        let heads = whole(HEADS_KEY, &[RefClass::HeadsAndTags])?;
        let all = whole(ALL_KEY, &[RefClass::HeadsAndTags, RefClass::Rest])?;
        Ok(Bodies { list, heads, all, contradictions })
    }

    /// Returns whether refs are known to reach every object of pack number `pack`.
    pub(crate) fn is_reachable_whole(&self, pack: u32) -> bool {
        let class = self.list.iter().find(|b| b.pack == pack).map(|b| b.class);
        match class {
            Some(RefClass::HeadsAndTags) => self.heads.is_some() || self.all.is_some(),
            Some(RefClass::Rest) => self.all.is_some(),
            Some(RefClass::History) | None => false,
        }
    }
}
