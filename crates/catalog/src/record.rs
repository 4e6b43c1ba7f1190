//! Recording visits in batches.

use weir_sql::{Type, Value, values};

use crate::due::at_the_latest;
use crate::events::{KEEP_EVENT, KEPT_EVENT, PoolEvent};
use crate::history::{KEEP_VISIT, KEPT_VISIT, news_of};
use crate::transactions::{EVENTS_LOCK, VISITS};
use crate::visit::{Outcome, Visit};
use crate::{Result, Visits};

/// The columns of a visit as [`Visits::record`] writes it.
const VISIT: [Type; 17] = {
    use Type::{Blob, Integer, Real, Text};
    [
        Integer, Integer, Integer, Integer, Integer, Integer, Blob, Real, Real, Integer, Integer, Integer,
        Text, Text, Integer, Integer, Integer,
    ]
};

/// Writes what a visit found. Of `rows`, p1 is the id, p2 the epoch, p3 the outcome (0 unchanged, 1 updated,
/// 2 failed, 3 put off), p4 when it began, p5 when it ended, p6 when to come again, p16 when at the earliest.
/// The visit may have missed a change that was hinted at meanwhile: p17 is the number of hints at its lease.
const RECORD: &str = "UPDATE repositories SET
    last_attempt = CASE WHEN rows.p3 < 3 THEN rows.p5 ELSE last_attempt END,
    last_success = CASE WHEN rows.p3 < 2 THEN rows.p5 ELSE last_success END,
    last_change = CASE WHEN rows.p3 = 1 AND last_success IS NOT NULL THEN rows.p5 ELSE last_change END,
    ahead = CASE WHEN ahead = 1 AND (hints <= rows.p17 OR hinted_at < rows.p4) AND rows.p3 < 3 THEN 0 ELSE
    ahead END,
    next_due = CASE WHEN hints > rows.p17 AND hinted_at >= rows.p4 THEN LEAST(rows.p6,
    GREATEST(hinted_at, rows.p16)) ELSE rows.p6 END,
    fingerprint = CASE WHEN rows.p3 < 2 THEN rows.p7 WHEN rows.p3 = 2 THEN NULL ELSE fingerprint END,
    changes = CASE WHEN rows.p3 < 2 THEN rows.p8 ELSE changes END,
    watched_s = CASE WHEN rows.p3 < 2 THEN rows.p9 ELSE watched_s END,
    seq = CASE WHEN rows.p3 = 1 THEN rows.p10 ELSE seq END,
    archive_bytes = CASE WHEN rows.p3 = 1 THEN rows.p11 ELSE archive_bytes END,
    ref_count = CASE WHEN rows.p3 = 1 THEN rows.p12 ELSE ref_count END,
    failures = CASE WHEN rows.p3 < 2 THEN 0 WHEN rows.p3 = 2 THEN failures + 1 ELSE failures END,
    error_class = CASE WHEN rows.p3 < 3 THEN rows.p13 ELSE error_class END,
    error = CASE WHEN rows.p3 < 3 THEN rows.p14 ELSE error END,
    missing_since = CASE WHEN rows.p3 < 2 THEN NULL WHEN rows.p13 = 'gone' THEN coalesce(missing_since,
    rows.p5) ELSE missing_since END,
    lfs_missing = coalesce(rows.p15, lfs_missing),
    lease_owner = NULL, lease_until = NULL
    FROM rows WHERE id = rows.p1 AND epoch = rows.p2";

/// Makes repositories due whose archives were written by visits whose leases had passed to other processes.
/// These archives may have what no recorded visit has seen. Of `rows`, p1 is the id, p2 the epoch, p3 when
/// the visit ended.
const SUPERSEDED: &str = concat!(
    "UPDATE repositories SET fingerprint = NULL, ",
    at_the_latest!("rows.p3"),
    " FROM rows WHERE id = rows.p1 AND epoch > rows.p2"
);

impl Visit {
    fn row(&self) -> Vec<Value<'_>> {
        let (kind, seq, archive_bytes, ref_count, class, error) = match &self.outcome {
            Outcome::Unchanged => (0, None, None, None, None, None),
            Outcome::Updated { seq, archive_bytes, ref_count } => {
                (1, Some(*seq), Some(*archive_bytes), Some(*ref_count), None, None)
            }
            Outcome::Failed { class, error } => (2, None, None, None, Some(*class), Some(error)),
            Outcome::PutOff => (3, None, None, None, None, None),
        };
        let kind: i64 = kind;
        values![
            self.id,
            self.epoch,
            kind,
            self.began_at,
            self.at,
            self.next_due,
            self.fingerprint.as_deref(),
            self.changes,
            self.watched_s,
            seq,
            archive_bytes,
            ref_count,
            class,
            error,
            self.lfs_missing,
            self.again_at,
            self.hints,
        ]
        .into()
    }
}

impl Visits<'_> {
    /// Returns the rows of the events of `visits` for [`KEEP_EVENT`].
    fn events_of(&self, visits: &[Visit]) -> Vec<Vec<Value<'static>>> {
        let events = visits.iter().filter_map(|visit| Some((visit, visit.event.as_ref()?)));
        let row = |(place, (visit, event)): (usize, (&Visit, &PoolEvent))| {
            [&values![visit.id, visit.epoch][..], &self.catalog.events().columns_of(event), &values![place]]
                .concat()
        };
        events.enumerate().map(row).collect()
    }

    /// Records visits in one transaction, and ends their leases. Returns how many it accepted. It does not
    /// accept a visit whose lease has passed to another process; the next visit looks at its work again.
    ///
    /// # Errors
    /// If the database fails.
    pub fn record(&self, visits: &[Visit]) -> Result<usize> {
        let rows: Vec<_> = visits.iter().map(Visit::row).collect();
        let wrote = visits.iter().filter(|visit| matches!(visit.outcome, Outcome::Updated { .. }));
        let superseded: Vec<_> = wrote.map(|visit| values![visit.id, visit.epoch, visit.at].into()).collect();
        let events = self.events_of(visits);
        let news = news_of(visits);
        let written = self.catalog.database.transaction(VISITS, |db| -> Result<u64> {
            // The transaction holds the rows from here on. No other process removes or leases one of them
            // before its event is kept.
            let written = db.execute_rows(RECORD, &VISIT, &rows)?;
            db.execute_rows(KEEP_VISIT, &KEPT_VISIT, &news)?;
            if written < rows.len() as u64 {
                db.execute_rows(SUPERSEDED, &[Type::Integer; 3], &superseded)?;
            }
            if !events.is_empty() {
                db.wait_for_others(EVENTS_LOCK)?;
                db.execute_rows(KEEP_EVENT, &KEPT_EVENT, &events)?;
            }
            Ok(written)
        })?;
        Ok(written as usize)
    }
}
