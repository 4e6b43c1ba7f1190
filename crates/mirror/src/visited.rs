//! What is known of a repository before a visit, and after it.

use std::path::{Path, PathBuf};

use weir_git::Oid;
use weir_ground::Epoch;
use weir_repo::{Lost, RefsChange, UpdateReport};
use weir_transport::Url;

use crate::lfs::LfsReport;

/// What a visit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Fingerprint of the upstream's refs.
    pub fingerprint: Vec<u8>,
    /// What changed; `None` if nothing.
    pub change: Option<(RefsChange, UpdateReport)>,
    /// Refs of the upstream.
    pub ref_count: u64,
    /// Names of refs that were refused.
    pub refused: Vec<Vec<u8>>,
    /// Whether the archive is new: its name is durable once [`weir_repo::sync_folder_of`] was called.
    pub created: bool,
    /// Number of the archive's last commit and its length, if it was opened.
    pub archive: Option<(u64, u64)>,
    /// Where the archive that stood there lies now, if it was damaged and a new clone took its place.
    pub damaged: Option<PathBuf>,
    /// What the archive builds on, if it was opened.
    pub builds_on: Option<Option<PathBuf>>,
    /// What the upstream has, if the archive was written to: the SHA-1 of its snapshot
    /// ([`weir_repo::Repo::snapshot_id`]).
    pub snapshot: Option<Oid>,
    /// LFS objects, if they were looked for.
    pub lfs: Option<LfsReport>,
    /// Another archive stands there than before, or it has lost commits: what built on it is to be looked at.
    pub is_another: bool,
    /// Commits that were found to be lost.
    pub lost: Option<LostCommits>,
}

/// Commits of an archive that are lost, as far as its upstream could not give them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCommits {
    /// Which.
    pub commits: Lost,
    /// Refs they named that lead to what is not here any more: name and id.
    pub refs: Vec<String>,
}

/// What is known of a repository before a visit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// Fingerprint of the last visit that went well.
    pub fingerprint: Option<&'a [u8]>,
    /// Number of the archive's last commit.
    pub seq: Option<u64>,
    /// Number of the lease.
    pub epoch: Epoch,
    /// The archive that a new one builds on, if it is there.
    pub base: Option<&'a Path>,
    /// What its forge knows it by, if it was listed by one ([`weir_repo::Origin::forge`]).
    pub forge: Option<&'a str>,
    /// The repository that the archive is a copy of, if it is read from elsewhere: a clone of it that is
    /// taken over.
    pub upstream: Option<&'a Url>,
    /// Somebody has found the archive damaged.
    pub is_damaged: bool,
}
