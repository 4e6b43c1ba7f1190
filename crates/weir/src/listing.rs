//! The states that lists show, and the keys that lists are sorted by.

use clap::ValueEnum;
use clap::builder::styling::Style;
use weir_catalog::Repository;

use crate::colors;

/// The class of failures of listings: those that ended early, and pages that could not be fetched.
pub(crate) const LISTING: &str = "listing";
/// The class of failures to fetch issues, pull requests and releases.
pub(crate) const METADATA: &str = "metadata";

/// The most important state of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepositoryState {
    /// The last visit succeeded
    Ok,
    /// The last visit failed; an older copy is available
    Stale,
    /// No visit has succeeded yet
    Failed,
    /// Not visited yet
    New,
    /// Not visited until 'weir resume'
    Paused,
    /// Set back to an older state by 'weir restore', and not visited
    Pinned,
    /// The archive is missing from the store
    Missing,
    /// The last visit succeeded, but some Git LFS objects could not be fetched
    Incomplete,
}

impl RepositoryState {
    pub(crate) fn of(r: &Repository, is_there: bool) -> RepositoryState {
        match (&r.error_class, r.last_success) {
            _ if r.seq.is_some() && !is_there => RepositoryState::Missing,
            _ if r.is_pinned => RepositoryState::Pinned,
            _ if r.is_paused => RepositoryState::Paused,
            (Some(_), _) if r.seq.is_some() => RepositoryState::Stale,
            (Some(_), Some(_)) => RepositoryState::Stale,
            (Some(_), None) => RepositoryState::Failed,
            (None, Some(_)) if r.lfs_missing > 0 => RepositoryState::Incomplete,
            (None, Some(_)) => RepositoryState::Ok,
            // The repository was adopted.
            (None, None) if r.seq.is_some() => RepositoryState::Ok,
            (None, None) => RepositoryState::New,
        }
    }

    /// Returns the style in which lists show it.
    pub(crate) fn style(self) -> Style {
        match self {
            RepositoryState::Ok => colors::GOOD,
            RepositoryState::Failed | RepositoryState::Missing => colors::BAD,
            RepositoryState::Stale | RepositoryState::Incomplete => colors::DOUBTFUL,
            RepositoryState::New | RepositoryState::Paused | RepositoryState::Pinned => Style::new(),
        }
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The keys that `ls` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// Name, in byte order
    Name,
    /// Size of the archive, largest first
    Size,
    /// Number of refs, most first
    Refs,
    /// Time of the last change, latest first
    Changed,
    /// Time of the last successful visit, latest first
    Updated,
    /// Time of registration, latest first
    Added,
}
