//! The state of a repository, in one word.

use serde::Serialize;
use utoipa::ToSchema;
use weir_catalog::Repository;

/// The most important state of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RepositoryState {
    /// The last visit succeeded.
    Ok,
    /// The last visit failed; an older copy is available.
    Stale,
    /// No visit has succeeded yet.
    Failed,
    /// It was not visited yet.
    New,
    /// It is not visited until `weir resume`.
    Paused,
    /// It was set back to an older state by `weir restore`, and is not visited.
    Pinned,
    /// The archive is missing from the store.
    Missing,
    /// The last visit succeeded, but some Git LFS objects could not be fetched.
    Incomplete,
}

impl RepositoryState {
    /// All states.
    pub const ALL: [RepositoryState; 8] = [
        RepositoryState::Ok,
        RepositoryState::Stale,
        RepositoryState::Failed,
        RepositoryState::New,
        RepositoryState::Paused,
        RepositoryState::Pinned,
        RepositoryState::Missing,
        RepositoryState::Incomplete,
    ];

    /// Returns the state of `r`, whose archive is there or not.
    pub fn of(r: &Repository, is_there: bool) -> RepositoryState {
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

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            RepositoryState::Ok => "ok",
            RepositoryState::Stale => "stale",
            RepositoryState::Failed => "failed",
            RepositoryState::New => "new",
            RepositoryState::Paused => "paused",
            RepositoryState::Pinned => "pinned",
            RepositoryState::Missing => "missing",
            RepositoryState::Incomplete => "incomplete",
        }
    }

    /// Returns what it means.
    pub fn meaning(self) -> &'static str {
        match self {
            RepositoryState::Ok => "The last visit succeeded",
            RepositoryState::Stale => "The last visit failed; an older copy is available",
            RepositoryState::Failed => "No visit has succeeded yet",
            RepositoryState::New => "Not visited yet",
            RepositoryState::Paused => "Not visited until it is resumed",
            RepositoryState::Pinned => "Set back to an older state, and not visited",
            RepositoryState::Missing => "The archive is missing from the store",
            RepositoryState::Incomplete => {
                "The last visit succeeded, but some Git LFS objects could not be fetched"
            }
        }
    }
}
