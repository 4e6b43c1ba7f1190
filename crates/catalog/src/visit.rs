//! What a visit to an upstream found.

use weir_ground::{Epoch, FailureClass, Timestamp};

/// How a visit to an upstream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing there had changed.
    Unchanged,
    /// The archive was brought up to date.
    Updated {
        /// Number of the archive's last commit.
        seq: u64,
        /// Bytes of the archive.
        archive_bytes: u64,
        /// Refs in it.
        ref_count: u64,
    },
    /// It failed; the archive is as it was.
    Failed {
        /// Class of the failure.
        class: FailureClass,
        /// In words.
        error: String,
    },
    /// There was none: its host pauses.
    PutOff,
}

/// A visit to be written down.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Which repository.
    pub id: i64,
    /// The number of the lease it was made under ([`crate::Repository::epoch`]): one that has passed to
    /// another counts no more.
    pub epoch: Epoch,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub at: Timestamp,
    /// When to come again.
    pub next_due: Timestamp,
    /// Fingerprint of the refs seen.
    pub fingerprint: Option<Vec<u8>>,
    /// As [`crate::Repository::changes`], with this visit.
    pub changes: f64,
    /// As [`crate::Repository::watched_s`], with this visit.
    pub watched_s: f64,
    /// Whether it ended otherwise than the one before, or found something: such visits are kept.
    pub is_news: bool,
    /// What the upstream had, if the archive was written to: the SHA-1 of its snapshot.
    pub snapshot: Option<[u8; 20]>,
    /// Files of Git LFS that it should have and that could not be had, if that was looked at.
    pub lfs_missing: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
}
