//! The policy beyond the plain protocol: which objects may be wanted, which filters and features are served.

use weir_repo::{Filter, FilterSort};

/// Which objects a client may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WantPolicy {
    /// Only objects that refs point at.
    Advertised,
    /// All objects that refs reach, but not what a force-push removed.
    #[default]
    Reachable,
    /// All objects that are here (git's `uploadpack.allowAnySHA1InWant`).
    Any,
}

/// Which filters are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPolicy {
    /// Whether any filter is served.
    pub enabled: bool,
    /// Whether the filters not named in `sorts` are served.
    pub others: bool,
    /// Whether each filter is served, by git's names: `blob:none`, `blob:limit`, `tree`, `object:type`,
    /// `sparse:oid`, `combine`.
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
    /// Returns why `filter` is refused, in git's words; `None` if it is served.
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

/// The features that are offered, with git's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Which objects may be wanted.
    pub wants: WantPolicy,
    /// Which objects may be wanted before v2, where this is advertised; `None` if the policy is the same.
    pub wants_before_v2: Option<WantPolicy>,
    /// Whether the tips of hidden refs may be wanted, too (git's `uploadpack.allowTipSHA1InWant`).
    pub hidden_tips: bool,
    /// Which filters are served.
    pub filters: FilterPolicy,
    /// Whether refs may be wanted by name: `want-ref` (v2).
    pub ref_in_want: bool,
    /// Whether the whole answer may be requested in the side-band (v2).
    pub sideband_all: bool,
    /// Whether the command `object-info` is offered (v2).
    pub object_info: bool,
    /// An id of this session, for the logs of both sides.
    pub session_id: Option<String>,
    /// Whether each request has its own connection (HTTP): a session is one request and its answer.
    pub stateless: bool,
    /// The folder of the archive's bundles, relative to the repository's URL, for the command `bundle-uri`
    /// (v2).
    pub bundles: Option<String>,
    /// Whether an unborn HEAD is listed: `unborn` (v2).
    pub unborn: bool,
}

impl Features {
    /// Returns which objects may be wanted before v2.
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
