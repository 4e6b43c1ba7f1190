//! Lines about visits, for a terminal and the log.

use std::path::Path;
use std::time::Duration;

use weir_catalog::Repository;
use weir_catalog::clock::now;
use weir_mirror::throttle::{Cause, Pause};
use weir_mirror::{Failure, LfsReport, Visited};
use weir_transport::TimeLimit;

use crate::output;

pub(crate) const GOES_ON: &str = "resumed    the cause of the pause is gone";

pub(crate) fn pause_line(pause: &Pause) -> String {
    let what = pause.host.as_ref().map_or("all visits".to_owned(), |host| format!("visits to {host}"));
    let seconds = (pause.until_ms / 1000).saturating_sub(now().as_u64());
    format!("paused     {what} for {}: {}", output::span(seconds as i64), pause.cause.name())
}

/// Returns a line about repositories that a run left as they were because of `cause`.
pub(crate) fn left_line(cause: Cause, left: usize) -> String {
    let repositories = if left == 1 { "1 repository" } else { &format!("{left} repositories") };
    format!("left       {repositories}, not visited: {}", cause.name())
}

pub(crate) fn updated_line(repository: &Repository, visited: &Visited, took: Duration) -> String {
    let Some((change, report)) = &visited.change else { return String::new() };
    let what = if repository.seq.is_none() { "cloned " } else { "updated" };
    format!(
        "{what}    {}  +{} ~{} -{} refs, {} objects, {} in {:.1} s",
        repository.name,
        change.added,
        change.updated,
        change.deleted,
        report.objects_added,
        output::bytes(report.bytes_appended),
        took.as_secs_f64()
    )
}

/// Returns a line about a failed visit, with the setting that is the remedy, if one is.
pub(crate) fn failed_line(repository: &Repository, failure: &Failure) -> String {
    let remedy = match failure.time_limit {
        None => "",
        Some(TimeLimit::Idle) => "; to wait longer, raise transport.idle_timeout in weir.toml",
        Some(TimeLimit::FirstByte) => "; to wait longer, raise transport.first_byte_timeout in weir.toml",
        Some(TimeLimit::PackStart) => "; to wait longer, raise transport.pack_start_timeout in weir.toml",
        Some(TimeLimit::Rate) => "; to allow that, lower transport.bytes_per_second_min in weir.toml",
    };
    format!("failed     {}: {failure}{remedy}", repository.name)
}

/// Returns a line about the LFS objects of a visit, if there is something to report.
pub(crate) fn lfs_line(repository: &Repository, visited: &Visited) -> Option<String> {
    let LfsReport { added, bytes, absent, is_incomplete, .. } = visited.lfs?;
    let absent = if absent > 0 { format!(", {absent} missing") } else { String::new() };
    let later = if is_incomplete { ", the next visit tries again" } else { "" };
    let is_told = added > 0 || !absent.is_empty() || is_incomplete;
    is_told.then(|| {
        format!("lfs        {}  {added} objects, {}{absent}{later}", repository.name, output::bytes(bytes))
    })
}

pub(crate) fn damaged_line(repository: &Repository, damaged: &Path) -> String {
    format!(
        "warning    {}: its archive was damaged and is kept as '{}'; cloned again",
        repository.name,
        damaged.display()
    )
}

pub(crate) fn log_line(
    repository: &Repository,
    result: &std::result::Result<Visited, Failure>,
    took: Duration,
) {
    match result {
        Ok(visited) => {
            match &visited.change {
                Some(_) => tracing::info!("{}", updated_line(repository, visited, took)),
                None => tracing::debug!("unchanged  {}", repository.name),
            }
            if let Some(line) = lfs_line(repository, visited) {
                tracing::info!("{line}");
            }
            if let Some(damaged) = &visited.damaged {
                tracing::warn!("{}", damaged_line(repository, damaged));
            }
            if let Some(lost) = &visited.lost {
                tracing::error!("{}", output::lost_line(repository, lost));
            }
        }
        Err(failure) => tracing::warn!("{}", failed_line(repository, failure)),
    }
}
