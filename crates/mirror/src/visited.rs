//! The state of a repository before a visit, and after it.

use std::path::{Path, PathBuf};

use weir_catalog::Repository;
use weir_git::Oid;
use weir_ground::Epoch;
use weir_repo::{ChangedRef, Lost, RefsChange, UpdateReport};
use weir_transport::Url;

use crate::lfs::LfsReport;

/// The result of a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// The fingerprint of the upstream's refs.
    pub fingerprint: Vec<u8>,
    /// The change of the refs; `None` if nothing changed.
    pub change: Option<(RefsChange, UpdateReport)>,
    /// The refs that changed, at most [`weir_catalog::REFS_NAMED_MAX`]; none of a first clone.
    pub refs: Vec<ChangedRef>,
    /// The number of refs of the upstream.
    pub ref_count: u64,
    /// The names of refs that were refused.
    pub refused: Vec<Vec<u8>>,
    /// Whether the archive is new: its name is durable once [`weir_repo::sync_folder_of`] was called.
    pub created: bool,
    /// The number of the archive's last commit, and the archive's length, if it was opened.
    pub archive: Option<(u64, u64)>,
    /// The path of the damaged archive that was set aside, if a new clone took its place.
    pub damaged: Option<PathBuf>,
    /// The base of the archive, if it was opened.
    pub builds_on: Option<Option<PathBuf>>,
    /// The snapshot id of the refs, a SHA-1, if the archive was written to
    /// ([`weir_repo::Repo::snapshot_id`]).
    pub snapshot: Option<Oid>,
    /// The LFS objects, if they are mirrored.
    pub lfs: Option<LfsReport>,
    /// The archive was replaced or has lost commits: the archives that build on it must be checked.
    pub is_another: bool,
    /// The commits that were found to be lost.
    pub lost: Option<LostCommits>,
}

impl Visited {
    /// Returns the number of the archive's last commit, if that is news to the catalog: the visit wrote it,
    /// or the result of the visit that did was never recorded.
    pub(crate) fn new_seq(&self, repository: &Repository) -> Option<u64> {
        let (seq, _) = self.archive?;
        (self.change.is_some() || repository.seq != Some(seq as i64)).then_some(seq)
    }
}

/// Lost commits of an archive, and what its upstream could not give again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCommits {
    /// The commits.
    pub commits: Lost,
    /// Their refs that lead to objects no longer here: name and id.
    pub refs: Vec<String>,
}

/// The state of a repository before a visit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The fingerprint of the last successful visit.
    pub fingerprint: Option<&'a [u8]>,
    /// The number of the archive's last commit.
    pub seq: Option<u64>,
    /// The number of the lease.
    pub epoch: Epoch,
    /// The archive that a new one builds on, if it exists.
    pub base: Option<&'a Path>,
    /// How its forge identifies it, if a forge lists it ([`weir_repo::Origin::forge`]).
    pub forge: Option<&'a str>,
    /// The repository that the archive is a copy of, if it is read from elsewhere: from an existing clone
    /// that is imported.
    pub upstream: Option<&'a Url>,
    /// Whether the archive was found to be damaged.
    pub is_damaged: bool,
}
