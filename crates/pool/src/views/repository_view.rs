//! Repositories, as lists show them, and the details of one.

use std::cmp::Reverse;
use std::path::PathBuf;

use serde::Serialize;
use weir_catalog::clock::now;
use weir_catalog::{ForgeMetadata, ForgeWish, Interval, Repository, Settings};
use weir_ground::{FailureClass, Timestamp};
use weir_transport::Url;

use crate::error::Result;
use crate::running::Pool;
use crate::views::archive_facts::ArchiveFacts;
use crate::views::repository_state::RepositoryState;

/// A repository, as the catalog and the store know it.
#[derive(Clone, Debug, Serialize)]
pub struct RepositoryView {
    /// Its name.
    pub name: String,
    /// The URL of the upstream, without a password.
    pub url: String,
    /// Its state, in one word.
    pub state: RepositoryState,
    /// Whether it is not visited until somebody resumes it.
    #[serde(rename = "paused")]
    pub is_paused: bool,
    /// Whether it was set back to an older state, and is not visited.
    #[serde(rename = "pinned")]
    pub is_pinned: bool,
    /// The path of its archive.
    pub archive: PathBuf,
    /// Whether the archive is there.
    pub archive_exists: bool,
    /// The size of the archive.
    pub archive_bytes: Option<u64>,
    /// The number of refs.
    pub refs: Option<i64>,
    /// The number of the last state of the refs.
    pub seq: Option<i64>,
    /// When it was added.
    pub added_at: Timestamp,
    /// When it was visited last.
    pub last_attempt: Option<Timestamp>,
    /// When a visit succeeded last.
    pub last_success: Option<Timestamp>,
    /// When a visit found a change last.
    pub last_change: Option<Timestamp>,
    /// When it is due next; never, if it is paused or pinned.
    pub next_due: Option<Timestamp>,
    /// How many visits have failed in a row.
    pub failures: i64,
    /// The class of the last failure.
    pub error_class: Option<FailureClass>,
    /// The last failure.
    pub error: Option<String>,
    /// The number of Git LFS objects that could not be fetched.
    pub lfs_missing: i64,
    /// Its priority among the repositories that are due.
    pub priority: i64,
    /// Its own settings.
    pub settings: SettingsView,
}

/// The settings of one repository; null where those of all hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingsView {
    /// When it is visited, in seconds, or `auto`.
    #[serde(rename = "interval_s")]
    pub interval: Option<Interval>,
    /// Patterns of the refs that are mirrored.
    pub refs: Option<Vec<String>>,
    /// Whether Git LFS objects are mirrored.
    pub lfs: Option<bool>,
    /// Whether issues, pull requests and releases are mirrored.
    pub metadata: Option<bool>,
}

impl From<&Settings> for SettingsView {
    fn from(settings: &Settings) -> SettingsView {
        let Settings { interval, refs, lfs, metadata, .. } = settings.clone();
        SettingsView { interval, refs, lfs, metadata }
    }
}

/// Returns the URL of the upstream of `r`, without a password.
pub fn shown_url(r: &Repository) -> String {
    Url::parse(&r.url).map_or_else(|_| r.url.clone(), |url| url.to_string())
}

impl RepositoryView {
    /// Returns the view of `r` in `pool`.
    pub fn of(pool: &Pool, r: &Repository) -> RepositoryView {
        let archive = pool.archive_path(r);
        let about = std::fs::metadata(&archive).ok();
        RepositoryView {
            name: r.name.clone(),
            url: shown_url(r),
            state: RepositoryState::of(r, about.is_some()),
            is_paused: r.is_paused,
            is_pinned: r.is_pinned,
            archive,
            archive_exists: about.is_some(),
            archive_bytes: about.map(|about| about.len()),
            refs: r.ref_count,
            seq: r.seq,
            added_at: r.added_at,
            last_attempt: r.last_attempt,
            last_success: r.last_success,
            last_change: r.last_change,
            next_due: (!r.is_paused && !r.is_pinned).then_some(r.next_due),
            failures: r.failures,
            error_class: r.error_class,
            error: r.error.clone(),
            lfs_missing: r.lfs_missing,
            priority: r.priority,
            settings: (&r.settings).into(),
        }
    }
}

/// The keys by which a list is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// The name, in the order of bytes.
    #[default]
    Name,
    /// The size of the archive, the largest first.
    Size,
    /// The number of refs, the most first.
    Refs,
    /// The time of the last change, the latest first.
    Changed,
    /// The time of the last visit that succeeded, the latest first.
    Updated,
    /// The time of registration, the latest first.
    Added,
}

/// A request for a list of repositories.
#[derive(Clone, Debug, Default)]
pub struct RepositoryList {
    /// Patterns of names; all repositories, if it is empty.
    pub patterns: Vec<String>,
    /// The states to list; all states, if it is empty.
    pub states: Vec<RepositoryState>,
    /// The language, topic, stars and parent that their forge must report.
    pub wish: ForgeWish,
    /// The key by which the list is sorted.
    pub sort: SortKey,
    /// Whether the order is reversed.
    pub is_reversed: bool,
    /// The maximum number.
    pub max_count: Option<usize>,
}

/// Returns the repositories that `wanted` asks for, with their states.
///
/// # Errors
/// If a pattern matches none, or the catalog fails.
pub fn listed(pool: &Pool, wanted: &RepositoryList) -> Result<Vec<(Repository, RepositoryState)>> {
    let with_state = |r: Repository| {
        let is_there = r.seq.is_none() || pool.archive_path(&r).exists();
        let state = RepositoryState::of(&r, is_there);
        (r, state)
    };
    let mut list: Vec<(Repository, RepositoryState)> =
        pool.selected(&wanted.patterns)?.into_iter().map(with_state).collect();
    list.retain(|(_, state)| wanted.states.is_empty() || wanted.states.contains(state));
    if !wanted.wish.is_empty() {
        let wished = pool.catalog.listings().ids_wished(&wanted.wish)?;
        list.retain(|(r, _)| wished.contains(&r.id));
    }
    let key: Option<fn(&Repository) -> Option<i64>> = match wanted.sort {
        SortKey::Name => None,
        SortKey::Size => Some(|r| r.archive_bytes),
        SortKey::Refs => Some(|r| r.ref_count),
        SortKey::Changed => Some(|r| r.last_change.map(|at| at.0)),
        SortKey::Updated => Some(|r| r.last_success.map(|at| at.0)),
        SortKey::Added => Some(|r| Some(r.added_at.0)),
    };
    if let Some(key) = key {
        list.sort_by_key(|(r, _)| Reverse(key(r).unwrap_or(i64::MIN)));
    }
    if wanted.is_reversed {
        list.reverse();
    }
    list.truncate(wanted.max_count.unwrap_or(usize::MAX));
    Ok(list)
}

/// A repository with the contents of its archive and the metadata of its forge.
#[derive(Clone, Debug, Serialize)]
pub struct RepositoryDetails {
    /// The repository, as the catalog and the store know it.
    #[serde(flatten)]
    pub view: RepositoryView,
    /// The contents of its archive, if there is one.
    #[serde(flatten)]
    pub archive: Option<ArchiveFacts>,
    /// The metadata that its forge reports.
    pub forge_metadata: Option<ForgeMetadata>,
}

impl RepositoryDetails {
    /// Reads the details of `r` from `pool`.
    ///
    /// # Errors
    /// If the catalog fails, or the archive cannot be read.
    pub fn of(pool: &Pool, r: &Repository) -> Result<RepositoryDetails> {
        let view = RepositoryView::of(pool, r);
        let archive = if view.archive_exists { Some(ArchiveFacts::read(pool, r)?) } else { None };
        let forge_metadata = pool.catalog.metadata().of_forge(&[r.id])?.remove(&r.id);
        Ok(RepositoryDetails { view, archive, forge_metadata })
    }
}

/// A repository, with the time at which weir visits it next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DueRepository {
    /// Its name.
    pub name: String,
    /// When it is due.
    pub next_due: Timestamp,
    /// The seconds until then; negative, if it is overdue.
    pub in_s: i64,
    /// Whether it was ever visited.
    #[serde(skip)]
    pub was_visited: bool,
}

/// Returns the repositories that are visited next, the first one first, at most `max`.
///
/// # Errors
/// If the catalog fails.
pub fn due_repositories(pool: &Pool, max: usize) -> Result<Vec<DueRepository>> {
    let now = now();
    let due = |r: Repository| DueRepository {
        in_s: r.next_due - now,
        next_due: r.next_due,
        was_visited: r.last_attempt.is_some(),
        name: r.name,
    };
    Ok(pool.catalog.status().next_ones(max)?.into_iter().map(due).collect())
}

/// The size of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchiveSize {
    /// The name of its repository.
    pub name: String,
    /// Its size; 0, if it is not there.
    pub bytes: u64,
}

/// Returns the sizes of the archives of the repositories that match `patterns`, the largest first.
///
/// # Errors
/// If a pattern matches none, or the catalog fails.
pub fn archive_sizes(pool: &Pool, patterns: &[String]) -> Result<Vec<ArchiveSize>> {
    let size = |r: Repository| ArchiveSize {
        bytes: std::fs::metadata(pool.archive_path(&r)).map_or(0, |about| about.len()),
        name: r.name,
    };
    let mut sizes: Vec<ArchiveSize> = pool.selected(patterns)?.into_iter().map(size).collect();
    sizes.sort_by(|a, b| (b.bytes, &b.name).cmp(&(a.bytes, &a.name)));
    Ok(sizes)
}
