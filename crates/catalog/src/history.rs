//! The history of visits. The catalog keeps a visit if it wrote to the archive, or if it ended differently
//! from the visit before. Every visit between two that are kept ended like the earlier of the two.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;
use weir_ground::{FailureClass, Timestamp};
use weir_sql::{Type, Value, values};

use crate::visit::{Outcome, Visit};
use crate::{Result, Visits};

/// A visit that was kept. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastVisit {
    /// When it ended.
    pub at: Timestamp,
    /// Number of the archive's last commit, if it wrote one.
    pub seq: Option<i64>,
    /// SHA-1 of the snapshot of the upstream, as in its SWHID.
    #[serde(skip)]
    pub snapshot: Option<Vec<u8>>,
    /// Class of its failure, if it failed.
    pub error_class: Option<FailureClass>,
    /// The failure in words.
    pub error: Option<String>,
}

/// Of `rows`, p1 is the repository, p2 the epoch, p3 the time, p4 the archive's commit, p5 the snapshot, p6
/// and p7 the error.
pub(crate) const KEEP_VISIT: &str =
    "INSERT INTO visits (repository_id, at, seq, snapshot, error_class, error)
    SELECT rows.p1, rows.p3, rows.p4, rows.p5, rows.p6, rows.p7 FROM rows WHERE EXISTS
    (SELECT 1 FROM repositories WHERE id = rows.p1 AND epoch = rows.p2)
    ON CONFLICT (repository_id, at) DO UPDATE SET seq = coalesce(excluded.seq, visits.seq),
    snapshot = coalesce(excluded.snapshot, visits.snapshot), error_class = excluded.error_class,
    error = excluded.error";
pub(crate) const KEPT_VISIT: [Type; 7] = {
    use Type::{Blob, Integer, Text};
    [Integer, Integer, Integer, Integer, Blob, Text, Text]
};

/// Returns the rows for [`KEEP_VISIT`]: for each repository, one for each second, with what all visits in
/// that second have found.
pub(crate) fn news_of(visits: &[Visit]) -> Vec<Vec<Value<'_>>> {
    let mut rows: Vec<Vec<Value<'_>>> = Vec::new();
    let mut places: HashMap<(i64, Timestamp), usize> = HashMap::new();
    for visit in visits.iter().filter(|v| v.is_news) {
        let Some(mut row) = row(visit) else { continue };
        match places.entry((visit.id, visit.at)) {
            Entry::Vacant(place) => {
                place.insert(rows.len());
                rows.push(row);
            }
            Entry::Occupied(place) => {
                let before = &mut rows[*place.get()];
                for column in [SEQ, SNAPSHOT] {
                    if row[column] == Value::Null {
                        row[column] = before[column].clone();
                    }
                }
                *before = row;
            }
        }
    }
    rows
}

/// The columns of the commit and the snapshot in a row.
const SEQ: usize = 3;
const SNAPSHOT: usize = 4;

fn row(v: &Visit) -> Option<Vec<Value<'_>>> {
    let (seq, class, error) = match &v.outcome {
        Outcome::Updated { seq, .. } => (Some(*seq), None, None),
        Outcome::Unchanged => (None, None, None),
        Outcome::Failed { class, error } => (None, Some(*class), Some(error)),
        Outcome::PutOff => return None,
    };
    Some(values![v.id, v.epoch, v.at, seq, v.snapshot.as_ref().map(|s| s.as_slice()), class, error].into())
}

impl Visits<'_> {
    /// Returns at most `max` visits of repository `id`, the latest first.
    ///
    /// # Errors
    /// If the database fails.
    pub fn past(&self, id: i64, max: usize) -> Result<Vec<PastVisit>> {
        let sql = "SELECT at, seq, snapshot, error_class, error FROM visits WHERE repository_id = ?1 ORDER \
            BY at DESC LIMIT ?2";
        Ok(self.catalog.database.query(sql, &values![id, max], |row| {
            Ok(PastVisit {
                at: row.get(0)?,
                seq: row.get(1)?,
                snapshot: row.get(2)?,
                error_class: row.get(3)?,
                error: row.get(4)?,
            })
        })?)
    }
}
