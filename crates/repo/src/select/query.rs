//! A client's request, and what it is sent.

use weir_git::{Oid, OidMap, OidSet};

use crate::error::Result;
use crate::objects::bits::Bits;
use crate::objects::lookup::{Location, Objects};
use crate::objects::reader::peel_through;
use crate::reach::steps::Budget;
use crate::select::filter::Filter;

/// Where history ends for one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The commits that become shallow at the client, sorted by id.
    pub shallow: Vec<Oid>,
    /// The commits that the client had without their parents, and will have with them.
    pub unshallow: Vec<Oid>,
    /// The commits at which walks stop: all shallow commits of the client, old and new.
    pub commits: OidSet,
    /// The parents of [`Cut::unshallow`]: wanted besides what the client named.
    pub wants: Vec<Oid>,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// The ids that are wanted.
    pub wants: &'q [Oid],
    /// The ids that the client has; those that are not here are skipped.
    pub haves: &'q [Oid],
    /// Where history ends, for shallow clients.
    pub cut: Option<&'q Cut>,
    /// The filter of a partial clone.
    pub filter: Option<&'q Filter>,
    /// The bounds of the selection.
    pub budget: Budget<'q>,
}

/// The objects to send.
#[derive(Debug, Default)]
pub struct Selection {
    /// The ids of objects to send, each once: tags, commits from the newest, then trees and blobs.
    pub objects: Vec<Oid>,
    /// Ids that the client is known to have, near what it lacks: bases for thin deltas.
    pub client_has: OidSet,
    /// For a tree or blob to send, the object that was at its path before.
    pub previous: OidMap<Oid>,
    /// Further objects to send, by pack and rank in it, ascending, each once and none of
    /// [`Selection::objects`].
    pub ranks: Vec<(u32, u32)>,
    /// All objects that the client has, by number, if they were found with bitmaps.
    pub(crate) client_numbers: Option<Bits>,
}

impl Selection {
    /// Makes a selection of just `objects`, each named once.
    pub fn of(objects: Vec<Oid>) -> Selection {
        Selection { objects, ..Selection::default() }
    }

    /// Adds those of `tags` (tag object and peeled id) whose target is sent, with the tags between the two
    /// (git's `add_tag_chain`).
    ///
    /// # Errors
    /// If an index is corrupt.
    pub fn include_tags(&mut self, objects: &Objects, tags: impl Iterator<Item = (Oid, Oid)>) -> Result<()> {
        let mut sent: OidSet = self.objects.iter().copied().collect();
        let ranks = &self.ranks;
        let mut reader = objects.reader();
        let is_ranked = |oid: &Oid| -> Result<bool> {
            Ok(match objects.locate(oid) {
                Some(Location::Packed { pack, position }) if !ranks.is_empty() => {
                    ranks.binary_search(&(pack, objects.packs[pack as usize].rank(position)?)).is_ok()
                }
                _ => false,
            })
        };
        for (tag, target) in tags {
            if !sent.contains(&target) && !is_ranked(&target)? {
                continue;
            }
            // Tags of tags need all tags between them. Several refs may name one tag object.
            let chain = peel_through(&mut reader, &tag)?.map_or_else(Vec::new, |(_, _, tags)| tags);
            for tag in chain {
                if !is_ranked(&tag)? && sent.insert(tag) {
                    self.objects.push(tag);
                }
            }
        }
        Ok(())
    }
}
