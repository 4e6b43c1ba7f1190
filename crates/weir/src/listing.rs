//! States that lists show, and what lists are sorted by.

use clap::ValueEnum;
use weir_catalog::Repository;

/// What one has to know of a repository first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepositoryState {
    /// The last visit went well
    Ok,
    /// The last visit failed; an older copy is here
    Stale,
    /// No visit has gone well
    Failed,
    /// Not visited yet
    New,
    /// Not visited until 'weir resume'
    Paused,
    /// Set back to an older state by 'weir restore', and not visited
    Pinned,
    /// Its archive is not where it should be
    Missing,
    /// The last visit went well, but files of Git LFS could not be had
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
            // One that was adopted.
            (None, None) if r.seq.is_some() => RepositoryState::Ok,
            (None, None) => RepositoryState::New,
        }
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What `ls` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// Names, by their bytes
    Name,
    /// The largest archive first
    Size,
    /// Most refs first
    Refs,
    /// What was found changed last first
    Changed,
    /// What was visited with success last first
    Updated,
    /// What was registered last first
    Added,
}
