//! What is served beyond the plain protocol: which objects may be wanted, which filters, which features.

use weir_repo::{Filter, FilterSort};

/// Which objects a client may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WantPolicy {
    /// Only what refs point at.
    Advertised,
    /// Whatever refs reach. What a force-push removed is not for everybody.
    #[default]
    Reachable,
    /// Whatever is here (git's `uploadpack.allowAnySHA1InWant`).
    Any,
}

/// Which filters are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPolicy {
    /// Whether any is.
    pub enabled: bool,
    /// Whether those not named in `sorts` are.
    pub others: bool,
    /// By git's names: `blob:none`, `blob:limit`, `tree`, `object:type`, `sparse:oid`, `combine`.
    pub sorts: Vec<(String, bool)>,
    /// The largest depth of `tree:<depth>`.
    pub tree_depth_max: Option<u64>,
}

impl Default for FilterPolicy {
    fn default() -> Self {
        FilterPolicy { enabled: true, others: true, sorts: Vec::new(), tree_depth_max: None }
    }
}

impl FilterPolicy {
    /// Why `filter` is refused, in git's words; `None` if it is not.
    pub(crate) fn refusal(&self, filter: &Filter) -> Option<String> {
        filter.sorts().iter().find_map(|sort| {
            let allowed = self
                .sorts
                .iter()
                .rev()
                .find(|(name, _)| name == sort.name())
                .map_or(self.others, |(_, allowed)| *allowed);
            match (sort, self.tree_depth_max) {
                _ if !allowed => Some(format!("filter '{}' not supported", sort.name())),
                (FilterSort::Tree(depth), Some(max)) if *depth > max => {
                    Some(format!("tree filter allows max depth {max}, but got {depth}"))
                }
                _ => None,
            }
        })
    }
}

/// What is offered. Names are git's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Which objects may be wanted.
    pub wants: WantPolicy,
    /// The same before v2, where a client is told beforehand; `None` if it is the same.
    pub wants_before_v2: Option<WantPolicy>,
    /// What hidden refs point at may be wanted too (git's `uploadpack.allowTipSHA1InWant`).
    pub hidden_tips: bool,
    /// Which filters are served.
    pub filters: FilterPolicy,
    /// `want-ref`: refs may be wanted by name (v2).
    pub ref_in_want: bool,
    /// All of an answer may be asked for in the side-band (v2).
    pub sideband_all: bool,
    /// The command `object-info` (v2).
    pub object_info: bool,
    /// An id of this conversation, for the logs of both sides.
    pub session_id: Option<String>,
    /// Each request comes over a connection of its own (HTTP): a conversation is one request and its answer.
    pub stateless: bool,
    /// Where bundles of an archive are, relative to the repository's URL: the command `bundle-uri` (v2) tells
    /// of them.
    pub bundles: Option<String>,
    /// `unborn`: what HEAD will be is told before it is (v2).
    pub unborn: bool,
}

impl Features {
    /// Which objects may be wanted before v2.
    pub(crate) fn early_wants(&self) -> WantPolicy {
        self.wants_before_v2.unwrap_or(self.wants)
    }
}

impl Default for Features {
    fn default() -> Self {
        Features {
            wants: WantPolicy::default(),
            wants_before_v2: None,
            hidden_tips: false,
            filters: FilterPolicy::default(),
            ref_in_want: true,
            sideband_all: true,
            object_info: true,
            session_id: None,
            stateless: false,
            bundles: None,
            unborn: true,
        }
    }
}
