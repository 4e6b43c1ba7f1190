//! The results of past visits to a repository.

use serde::Serialize;
use utoipa::ToSchema;
use weir_catalog::{PastVisit, Repository};
use weir_git::{HashKind, Oid};
use weir_ground::{FailureClass, Timestamp};
use weir_repo::SNAPSHOT_SWHID;

use crate::error::Result;
use crate::running::Pool;

/// A visit with another result than the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VisitEntry {
    /// When it was.
    #[schema(value_type = i64)]
    pub at: Timestamp,
    /// Its result.
    pub result: VisitResult,
    /// The number of the state of the refs that it wrote.
    pub seq: Option<i64>,
    /// The SWHID of the refs that it found.
    pub snapshot: Option<String>,
    /// The class of its failure.
    #[schema(value_type = Option<String>)]
    pub error_class: Option<FailureClass>,
    /// Its failure.
    pub error: Option<String>,
}

/// The result of a past visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum VisitResult {
    /// It failed.
    #[serde(rename = "failed")]
    Failed,
    /// It found a change.
    #[serde(rename = "changed")]
    Changed,
    /// It succeeded, and found no change, after others that failed.
    #[serde(rename = "well again")]
    WellAgain,
}

impl VisitResult {
    /// Returns the words for it.
    pub fn name(self) -> &'static str {
        match self {
            VisitResult::Failed => "failed",
            VisitResult::Changed => "changed",
            VisitResult::WellAgain => "well again",
        }
    }
}

/// Returns the visits to `r` that had another result than the ones before, the last one first, at most `max`.
///
/// # Errors
/// If the catalog fails.
pub fn visit_log(pool: &Pool, r: &Repository, max: usize) -> Result<Vec<VisitEntry>> {
    let swhid = |visit: &PastVisit| {
        let id = Oid::from_bytes(HashKind::Sha1, visit.snapshot.as_deref()?)?;
        Some(format!("{SNAPSHOT_SWHID}{id}"))
    };
    let entry = |visit: PastVisit| VisitEntry {
        result: match (&visit.error_class, visit.seq) {
            (Some(_), _) => VisitResult::Failed,
            (None, Some(_)) => VisitResult::Changed,
            (None, None) => VisitResult::WellAgain,
        },
        snapshot: swhid(&visit),
        at: visit.at,
        seq: visit.seq,
        error_class: visit.error_class,
        error: visit.error,
    };
    Ok(pool.catalog.visits().past(r.id, max)?.into_iter().map(entry).collect())
}
