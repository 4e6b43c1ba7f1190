//! Checks of a pool: they find faults before a visit or a client meets them.

mod hosts;
mod machine;
mod report;
mod settings;
mod store;

use std::path::Path;

use crate::error::Result;
use crate::running::Pool;

pub use report::{CheckFinding, CheckLevel, CheckRemedy, CheckReport, TellFinding};

/// Checks who owns the files of the pool at `path`, which need not be one that can be opened.
///
/// # Errors
/// If the function that takes findings fails.
pub fn check_owner(path: &Path, report: &mut CheckReport<'_>) -> Result<()> {
    machine::owner(path, report)
}

/// Checks an open pool, and, unless `offline`, the hosts of its upstreams and forges.
///
/// # Errors
/// If the catalog fails, weir cannot look at the store, or the function that takes findings
/// fails.
pub fn check_pool(pool: &Pool, offline: bool, report: &mut CheckReport<'_>) -> Result<()> {
    settings::configuration(pool, report)?;
    machine::space(pool, report)?;
    machine::clock(pool, report)?;
    machine::limits(pool, report)?;
    store::catalog(pool, report)?;
    store::archives(pool, report)?;
    settings::collectors(pool, report)?;
    settings::hooks(pool, report)?;
    if !offline {
        hosts::hosts(pool, report)?;
        hosts::forges(pool, report)?;
    }
    Ok(())
}
