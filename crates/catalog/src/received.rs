//! Stores the events that senders sent, in the batches in which weir took them.
//!
//! The catalog does not look into the records: they are bytes, one event each, and a byte for each says what
//! became of it.

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Row, Value, values};

use crate::due::hinted;
use crate::transactions::{EVENTS_LOCK, VISITS};
use crate::{Catalog, ReceivedEvents, Result};

/// Events that were taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedBatch {
    /// The number of the first event; later ones have higher numbers.
    pub first: i64,
    /// When they were taken.
    pub at: Timestamp,
    /// The records: the length of each in four bytes, little-endian, and its bytes.
    pub records: Vec<u8>,
    /// A byte for each record: its verdict.
    pub verdicts: Vec<u8>,
}

impl ReceivedBatch {
    /// Adds a record and its verdict.
    pub fn push(&mut self, record: &[u8], verdict: u8) {
        debug_assert!(u32::try_from(record.len()).is_ok(), "a record of {} bytes", record.len());
        self.records.extend((record.len() as u32).to_le_bytes());
        self.records.extend_from_slice(record);
        self.verdicts.push(verdict);
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.verdicts.len()
    }

    /// Returns whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty()
    }

    /// Removes all events, and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.verdicts.clear();
    }

    /// Returns the number, the record and the verdict of each event.
    pub fn events(&self) -> impl Iterator<Item = (i64, &[u8], u8)> {
        let mut rest = self.records.as_slice();
        let next = move || {
            let (length, bytes) = rest.split_first_chunk()?;
            let (record, more) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = more;
            Some(record)
        };
        let records = std::iter::from_fn(next);
        (self.first..).zip(records).zip(&self.verdicts).map(|((id, record), verdict)| (id, record, *verdict))
    }
}

/// How many events came from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedCounts {
    /// The number of the last one; 0 if there was none.
    pub last: i64,
    /// When the last ones were taken.
    pub last_at: Option<Timestamp>,
    /// How many there were since the time that was asked for.
    pub lately: i64,
}

/// The effect of a batch of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventEffect {
    /// The repositories that are due.
    pub due: Vec<i64>,
    /// The seconds that are to pass between two visits of one of them.
    pub debounce_s: i64,
    /// The repositories that weir asks their forges about. Those of no forge do not count.
    pub asked: Vec<i64>,
}

/// A place in a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPosition {
    /// The id of the spool.
    pub spool: String,
    /// The number of the last record that is in the catalog.
    pub position: u64,
}

impl ReceivedEvents<'_> {
    /// Returns the number of the last record of `spool` that is in the catalog; 0 if there is none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn spool_position(&self, spool: &str) -> Result<u64> {
        let sql = "SELECT position FROM spools WHERE spool = ?1";
        let position = self.catalog.database.query_one(sql, &values![spool], |row| row.get::<i64>(0))?;
        Ok(position.unwrap_or(0).unsigned_abs())
    }

    /// Takes a batch of events with their `effect`, and notes the `place` in the spool that the batch comes
    /// from: all or nothing, so that each event is taken once. A power failure may undo it, until
    /// [`ReceivedEvents::sync`]. The number of the batch does not count. Returns the one that it gets;
    /// `None` if the catalog has it already, because the answer to an earlier try was lost.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take(
        &self,
        place: Option<&SpoolPosition>,
        batch: &ReceivedBatch,
        effect: &EventEffect,
    ) -> Result<Option<i64>> {
        let make_due = concat!(
            "UPDATE repositories SET ",
            hinted!("?2", "GREATEST(?2, coalesce(last_attempt, 0) + ?3)"),
            " WHERE id = ANY(?1) AND enabled = 1"
        );
        let ask = "INSERT INTO forge_questions (repository_id, asked_at) SELECT id, ?2 FROM repositories
            WHERE id = ANY(?1) AND forge_id IS NOT NULL ON CONFLICT DO NOTHING";
        // The last batch is never deleted, so that numbers are never used again.
        let next = "SELECT coalesce(max(first + count), 1) FROM received";
        let keep = "INSERT INTO received (first, count, at, records, verdicts) VALUES (?1, ?2, ?3, ?4, ?5)";
        let note = "INSERT INTO spools (spool, position) VALUES (?1, ?2)
            ON CONFLICT (spool) DO UPDATE SET position = excluded.position
            WHERE excluded.position > spools.position";
        debug_assert_eq!(batch.events().count(), batch.len(), "a record has no verdict");
        let ReceivedBatch { at, records, verdicts, .. } = batch;
        self.catalog.database.transaction(VISITS, |db| {
            if let Some(place) = place
                && db.execute(note, &values![place.spool.as_str(), place.position])? == 0
            {
                return Ok(None);
            }
            if !effect.due.is_empty() {
                let due = Value::Integers(effect.due.clone());
                db.execute(make_due, &[due, (*at).into(), effect.debounce_s.into()])?;
            }
            if !effect.asked.is_empty() {
                db.execute(ask, &[Value::Integers(effect.asked.clone()), (*at).into()])?;
            }
            db.wait_for_others(EVENTS_LOCK)?;
            let first = db.query_one(next, &[], |row| row.get::<i64>(0))?.unwrap_or(1);
            let row = values![first, batch.len(), *at, records.as_slice(), verdicts.as_slice()];
            db.execute(keep, &row)?;
            Ok(Some(first))
        })
    }

    /// Syncs what was taken: not even a power failure undoes it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn sync(&self, place: &SpoolPosition) -> Result<()> {
        let note = "UPDATE spools SET position = ?2 WHERE spool = ?1";
        self.catalog
            .database
            .durably(VISITS, |db| db.execute(note, &values![place.spool.as_str(), place.position]))?;
        Ok(())
    }

    /// Returns the batches with numbers below `before`, the last ones first, at most `max`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn before(&self, before: i64, max: usize) -> Result<Vec<ReceivedBatch>> {
        let sql = "SELECT first, at, records, verdicts FROM received WHERE first < ?1
            ORDER BY first DESC LIMIT ?2";
        Ok(self.catalog.database.query(sql, &values![before, max], batch)?)
    }

    /// Returns the batches that hold events with numbers above `position`, the first ones first, at most
    /// `max`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn after(&self, position: i64, max: usize) -> Result<Vec<ReceivedBatch>> {
        let sql =
            "SELECT first, at, records, verdicts FROM received WHERE first + count > ?1 + 1 AND first >=
            coalesce((SELECT max(first) FROM received WHERE first <= ?1 + 1), 0) ORDER BY first LIMIT ?2";
        Ok(self.catalog.database.query(sql, &values![position, max], batch)?)
    }

    /// Returns the number of the last event from outside; 0 if there was none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn last(&self) -> Result<i64> {
        let sql = "SELECT coalesce(max(first + count), 1) - 1 FROM received";
        Ok(self.catalog.database.query_one(sql, &[], |row| row.get(0))?.unwrap_or(0))
    }

    /// Returns how far the deliveries of `hook` to `webhook` were read: the mark of the latest attempt.
    ///
    /// # Errors
    /// If the database fails.
    pub fn sweep_mark(&self, webhook: &str, hook: &str) -> Result<Option<i64>> {
        let sql = "SELECT mark FROM sweeps WHERE webhook = ?1 AND hook = ?2";
        Ok(self.catalog.database.query_one(sql, &values![webhook, hook], |row| row.get(0))?)
    }

    /// Records that the deliveries of `hook` to `webhook` were read up to `mark`, and that `taken` of them
    /// were taken.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_sweep_mark(
        &self,
        webhook: &str,
        hook: &str,
        mark: i64,
        taken: u64,
        now: Timestamp,
    ) -> Result<()> {
        let sql = "INSERT INTO sweeps (webhook, hook, mark, swept_at, taken) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (webhook, hook) DO UPDATE SET mark = excluded.mark, swept_at = excluded.swept_at,
            taken = sweeps.taken + excluded.taken";
        Ok(self.catalog.database.execute(sql, &values![webhook, hook, mark, now, taken]).map(|_| ())?)
    }

    /// Returns how many events from outside there were, and how many since `since`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn counts(&self, since: Timestamp) -> Result<ReceivedCounts> {
        let sql = "SELECT coalesce(CAST(sum(CASE WHEN at >= ?1 THEN count ELSE 0 END) AS BIGINT), 0), max(at)
            FROM received";
        let counts = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (lately, last_at) =
            self.catalog.database.query_one(sql, &values![since], counts)?.unwrap_or_default();
        Ok(ReceivedCounts { last: self.last()?, last_at, lately })
    }

    /// Deletes events from outside that came before `before` and that all tables and workers are done with,
    /// and those that came before `all_before`; but not the last batch.
    ///
    /// # Errors
    /// If the database fails.
    pub fn trim(&self, before: Timestamp, all_before: Timestamp) -> Result<()> {
        let sql = "DELETE FROM received WHERE first IN (SELECT first FROM received ORDER BY first LIMIT ?3)
            AND first < (SELECT max(first) FROM received)
            AND (at < ?2 OR at < ?1 AND first + count - 1 <=
                coalesce((SELECT min(position) FROM collected), first + count))";
        while self.catalog.database.execute(sql, &values![before, all_before, DELETED_AT_ONCE])?
            == DELETED_AT_ONCE
        {}
        Ok(())
    }

    /// Returns the highest number of a repository; 0 if there is none. It grows when one is added.
    ///
    /// # Errors
    /// If the database fails.
    pub fn last_repository(&self) -> Result<i64> {
        let sql = "SELECT coalesce(max(id), 0) FROM repositories";
        Ok(self.catalog.database.query_one(sql, &[], |row| row.get(0))?.unwrap_or(0))
    }
}

impl Catalog {
    /// Returns the numbers of the repositories with these names.
    ///
    /// # Errors
    /// If the database fails.
    pub fn ids_of_names(&self, names: &[&str]) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT name, id FROM repositories WHERE name = ANY(?1)";
        Ok(self.database.query(sql, &[Value::Texts(names.to_vec())], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }
}

/// The number of old batches that one statement deletes.
const DELETED_AT_ONCE: u64 = 100;

fn batch(row: &Row<'_>) -> weir_sql::Result<ReceivedBatch> {
    Ok(ReceivedBatch { first: row.get(0)?, at: row.get(1)?, records: row.get(2)?, verdicts: row.get(3)? })
}
