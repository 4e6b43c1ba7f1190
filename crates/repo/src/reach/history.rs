//! A repository's history: its objects, the commits at which it ends, and the derived files that make walks
//! faster.

use std::sync::{Arc, OnceLock};

use weir_archive::Region;
use weir_git::{HashKind, Oid};

use crate::error::{Result, corrupt};
use crate::objects::lookup::Objects;
use crate::objects::pack::Pack;
use crate::reach::bitmap::Bitmaps;
use crate::reach::commit_graph::CommitGraph;
use crate::reach::delta_reuse::Changes;

/// The files derived from a history (`docs/archive-format.md`, section 8), as stored in an archive.
#[derive(Clone, Default)]
pub(crate) struct Derived {
    /// `objects/info/commit-graph`.
    pub(crate) graph: Option<Region>,
    /// The bitmaps of the first pack.
    pub(crate) bitmaps: Option<Region>,
}

/// Objects, the commits at which their history ends, and what is known of them.
pub struct History {
    pub(crate) objects: Objects,
    pub(crate) shallow: Vec<Oid>,
    /// The history of the base, whose packs come first.
    base: Option<Arc<History>>,
    derived: Derived,
    graph: OnceLock<Option<CommitGraph>>,
    bitmaps: OnceLock<Option<Bitmaps>>,
    /// What commits bring, and deltas that were made for clients.
    pub(crate) changes: Changes,
}

impl History {
    /// Returns the history of `objects`, which ends at the commits `shallow` and builds on `base`.
    pub(crate) fn new(
        objects: Objects,
        shallow: Vec<Oid>,
        derived: Derived,
        base: Option<Arc<History>>,
    ) -> History {
        History {
            objects,
            shallow,
            base,
            derived,
            graph: OnceLock::new(),
            bitmaps: OnceLock::new(),
            changes: Changes::default(),
        }
    }

    /// Returns this history with `packs` in place of its own and its base's. The rest of the base is kept
    /// only if `with_base`.
    pub(crate) fn with_packs(&self, packs: Vec<Arc<Pack>>, with_base: bool) -> History {
        let objects = Objects::of_packs(self.objects.hash, packs);
        let base = self.base.clone().filter(|_| with_base);
        History::new(objects, self.shallow.clone(), self.derived.clone(), base)
    }

    /// Returns the objects of this history.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the commits whose parents are not here although they have some (a shallow repository).
    pub fn shallow(&self) -> &[Oid] {
        &self.shallow
    }

    /// Returns the commit-graph, if there is a readable one.
    pub(crate) fn commit_graph(&self) -> Option<&CommitGraph> {
        self.graph
            .get_or_init(|| CommitGraph::open(self.derived.graph.clone()?, self.objects.hash).ok())
            .as_ref()
            .or_else(|| self.base.as_ref()?.commit_graph())
    }

    /// Returns the bitmaps of the first pack, if there are readable ones.
    pub(crate) fn bitmaps(&self) -> Option<&Bitmaps> {
        if let Some(base) = self.base.as_ref().filter(|base| !base.objects.packs.is_empty()) {
            return base.bitmaps();
        }
        self.bitmaps
            .get_or_init(|| {
                let (pack, data) = (self.objects.packs.first()?, self.derived.bitmaps.clone()?);
                let name = format!("{}.bitmap", pack.name());
                Bitmaps::open(&name, data, self.objects.hash, &pack.checksum(), pack.index().count()).ok()
            })
            .as_ref()
    }
}

/// Parses a `shallow` file: an id per line.
pub(crate) fn parse_shallow(hash: HashKind, data: &[u8]) -> Result<Vec<Oid>> {
    data.split(|&c| c == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| Oid::from_hex(hash, l).map_or_else(|| corrupt("shallow", "not a list of object ids"), Ok))
        .collect()
}
