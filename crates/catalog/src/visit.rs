//! What a visit to an upstream found.

use weir_ground::{Epoch, FailureClass, Timestamp};

use crate::events::PoolEvent;

/// How a visit to an upstream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing had changed upstream.
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
    /// It failed; the archive is unchanged.
    Failed {
        /// Class of the failure.
        class: FailureClass,
        /// The failure in words.
        error: String,
    },
    /// There was no visit, because its host pauses.
    PutOff,
}

/// A visit to be recorded.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The number of the repository.
    pub id: i64,
    /// The number of the lease it was made under ([`crate::Repository::epoch`]). If the lease has passed to
    /// another process, the visit does not count.
    pub epoch: Epoch,
    /// [`crate::Repository::hints`] when it was leased: a later hint may be about a change that it missed.
    pub hints: i64,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub at: Timestamp,
    /// When to come again.
    pub next_due: Timestamp,
    /// When to come again at the earliest, if a hint came during the visit.
    pub again_at: Timestamp,
    /// Fingerprint of the refs seen.
    pub fingerprint: Option<Vec<u8>>,
    /// As [`crate::Repository::changes`], with this visit.
    pub changes: f64,
    /// As [`crate::Repository::watched_s`], with this visit.
    pub watched_s: f64,
    /// Whether it ended differently from the visit before, or found something: such visits are kept.
    pub is_news: bool,
    /// The SHA-1 of the upstream's snapshot, if the archive was written to.
    pub snapshot: Option<[u8; 20]>,
    /// The number of Git LFS files that it should have and that could not be fetched, if that was checked.
    pub lfs_missing: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The event that the visit adds to the log, if the visit is news.
    pub event: Option<PoolEvent>,
}
