//! How far mining is.

use std::sync::atomic::AtomicU64;

/// How far mining is. Each number is current by itself.
#[derive(Debug, Default)]
pub struct MineProgress {
    /// Commits of the repositories that were begun.
    pub commits: AtomicU64,
    /// Commits whose own rows were written.
    pub written: AtomicU64,
    /// Commits that were compared with their parents.
    pub compared: AtomicU64,
    /// Pairs of files whose lines are to be counted.
    pub pairs: AtomicU64,
    /// Pairs of files whose lines were counted.
    pub counted: AtomicU64,
    /// Changed files whose rows were written.
    pub changes: AtomicU64,
    /// Repositories that are done, though not all of their rows may be part of the tables yet.
    pub repositories: AtomicU64,
}
