//! Reads the features that a repository's configuration offers (git-config: `uploadpack.*`,
//! `uploadpackfilter.*`, `transfer.*`, `lsrefs.*`).

use weir_repo::{GitConfig, Result};

use crate::policy::{Features, FilterPolicy, WantPolicy};

impl Features {
    /// Returns the features that `git upload-pack` offers with `config`. One difference: in v2, too, only
    /// objects that refs reach may be wanted, unless the configuration allows more.
    ///
    /// # Errors
    /// If a value is invalid for its key.
    pub fn from_git_config(config: &GitConfig) -> Result<Features> {
        let truth = |key: &str| -> Result<bool> { Ok(config.truth(key)?.unwrap_or(false)) };
        let any = truth("uploadpack.allowanysha1inwant")?;
        let early = if any {
            WantPolicy::Any
        } else if truth("uploadpack.allowreachablesha1inwant")? {
            WantPolicy::Reachable
        } else {
            WantPolicy::Advertised
        };
        Ok(Features {
            wants: if any { WantPolicy::Any } else { WantPolicy::Reachable },
            wants_before_v2: Some(early),
            hidden_tips: truth("uploadpack.allowtipsha1inwant")?,
            filters: FilterPolicy {
                enabled: truth("uploadpack.allowfilter")?,
                others: config.truth("uploadpackfilter.allow")?.unwrap_or(true),
                sorts: config.truths_of("uploadpackfilter", "allow")?,
                tree_depth_max: config.number("uploadpackfilter.tree.maxdepth")?,
            },
            ref_in_want: truth("uploadpack.allowrefinwant")?,
            sideband_all: truth("uploadpack.allowsidebandall")?,
            object_info: config.truth("transfer.advertiseobjectinfo")?.unwrap_or(true),
            session_id: None,
            stateless: false,
            bundles: None,
            unborn: config.get("lsrefs.unborn") != Some("ignore"),
        })
    }
}
