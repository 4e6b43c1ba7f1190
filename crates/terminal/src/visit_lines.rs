//! Events of visits as lines, for the terminal and the log.

use std::path::Path;

use weir_catalog::clock::now;
use weir_catalog::{ArchiveUpdate, EventKind, LfsFacts, PoolEvent, VisitFacts, VisitFailure};
use weir_ground::Timestamp;

use crate::output;

/// The line that says that visits are made again.
pub const RESUMED: &str = "resumed    the cause of the pause is gone";

/// Returns a line about a pause of visits to `host`, or of all.
pub fn pause_line(host: Option<&str>, cause: &str, until: Timestamp) -> String {
    let what = host.map_or("all visits".to_owned(), |host| format!("visits to {host}"));
    format!("paused     {what} for {}: {cause}", output::span((until - now()).max(0)))
}

/// Returns a line about repositories that a run left as they were because of `cause`.
pub fn left_line(cause: &str, left: usize) -> String {
    let repositories = if left == 1 { "1 repository" } else { &format!("{left} repositories") };
    format!("left       {repositories}, not visited: {cause}")
}

/// Returns a line about an update.
pub fn updated_line(name: &str, update: &ArchiveUpdate) -> String {
    let what = if update.is_new { "cloned " } else { "updated" };
    format!(
        "{what}    {name}  +{} ~{} -{} refs, {} objects, {} in {:.1} s",
        update.refs_added,
        update.refs_updated,
        update.refs_deleted,
        update.objects_added,
        output::bytes(update.bytes_appended),
        update.visit.seconds
    )
}

/// Returns the remedy for a failed visit of the repository of this name, if the program has one to tell.
pub type RemedyOf = fn(&str, &VisitFailure) -> Option<String>;

/// Returns a line about a failed visit.
pub fn failed_line(name: &str, failure: &VisitFailure, remedy: RemedyOf) -> String {
    let remedy = remedy(name, failure).map_or_else(String::new, |remedy| format!("; {remedy}"));
    format!("failed     {name}: {} ({}){remedy}", failure.error, failure.class)
}

/// Returns a line about the LFS objects of a visit, if there is something to report.
pub fn lfs_line(name: &str, facts: &VisitFacts) -> Option<String> {
    let LfsFacts { added, bytes, absent, incomplete } = facts.lfs?;
    let absent = if absent > 0 { format!(", {absent} missing") } else { String::new() };
    let later = if incomplete { ", the next visit tries again" } else { "" };
    let is_told = added > 0 || !absent.is_empty() || incomplete;
    is_told.then(|| format!("lfs        {name}  {added} objects, {}{absent}{later}", output::bytes(bytes)))
}

/// Returns a line about a damaged archive that was kept at `damaged`.
pub fn damaged_line(name: &str, damaged: &Path) -> String {
    format!("warning    {name}: its archive was damaged and is kept as '{}'; cloned again", damaged.display())
}

/// Writes an event to the log of the process.
pub fn log_event(event: &PoolEvent, remedy: RemedyOf) {
    let name = event.subject.as_ref().map_or("", |subject| subject.name.as_str());
    match &event.kind {
        EventKind::Update(update) => tracing::info!("{}", updated_line(name, update)),
        EventKind::Unchanged(_) => tracing::debug!("unchanged  {name}"),
        EventKind::Failed(failure) => tracing::warn!("{}", failed_line(name, failure, remedy)),
        EventKind::Paused { host, cause, until } => {
            tracing::warn!("{}", pause_line(host.as_deref(), cause, *until));
        }
        EventKind::Resumed => tracing::info!("{RESUMED}"),
        EventKind::Left { cause, left } => tracing::warn!("{}", left_line(cause, *left)),
        // The commands that do this tell of it themselves.
        EventKind::Listed { .. }
        | EventKind::ListingFailed { .. }
        | EventKind::Metadata { .. }
        | EventKind::Mined { .. } => {}
    }
    let Some(facts) = event.kind.facts() else { return };
    if let Some(line) = lfs_line(name, facts) {
        tracing::info!("{line}");
    }
    if let Some(damaged) = &facts.damaged {
        tracing::warn!("{}", damaged_line(name, damaged));
    }
    if let Some(lost) = &facts.lost {
        tracing::error!("{}", output::lost_line(name, lost));
    }
}
