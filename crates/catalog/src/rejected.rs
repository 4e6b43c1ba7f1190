//! Events from outside that a table or a worker did not take, and how far each worker is.

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Row, Value, values};

use crate::transactions::VISITS;
use crate::{ReceivedEvents, Result};

/// An event from outside that a table or a worker did not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedEvent {
    /// The name of the table or worker.
    pub collector: String,
    /// The number of the event.
    pub event: i64,
    /// The record, as it came.
    pub record: Vec<u8>,
    /// When it was rejected.
    pub at: Timestamp,
    /// The reason.
    pub reason: String,
}

/// How far a table or a worker is with the events from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectorCounts {
    /// Its name.
    pub name: String,
    /// The number of events that it has yet to look at; 0, if the settings no longer name it.
    pub waiting: i64,
    /// Whether the settings name it.
    pub is_known: bool,
    /// The number of events that it rejected.
    pub rejected: i64,
}

impl ReceivedEvents<'_> {
    /// Returns how far each table and worker is, by name.
    ///
    /// # Errors
    /// If the database fails.
    pub fn collector_counts(&self) -> Result<Vec<CollectorCounts>> {
        let last = self.last()?;
        let sql = "SELECT name, max(position), max(rejected) FROM (
            SELECT collector AS name, position, 0 AS rejected FROM collected
            UNION ALL SELECT collector, NULL, count(*) FROM rejected GROUP BY collector) AS of_each
            GROUP BY name ORDER BY name";
        Ok(self.catalog.database.query(sql, &[], |row| {
            let position: Option<i64> = row.get(1)?;
            Ok(CollectorCounts {
                name: row.get(0)?,
                waiting: last - position.unwrap_or(last),
                is_known: position.is_some(),
                rejected: row.get(2)?,
            })
        })?)
    }

    /// Returns the number of the last event from outside that `collector` is done with; 0, if there is none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn collected(&self, collector: &str) -> Result<i64> {
        let sql = "SELECT position FROM collected WHERE collector = ?1";
        Ok(self.catalog.database.query_one(sql, &values![collector], |row| row.get(0))?.unwrap_or(0))
    }

    /// Notes that `collector` is done with the events from outside up to number `position`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_collected(&self, collector: &str, position: i64) -> Result<()> {
        let sql = "INSERT INTO collected (collector, position) VALUES (?1, ?2)
            ON CONFLICT (collector) DO UPDATE SET position = excluded.position";
        Ok(self.catalog.database.execute(sql, &values![collector, position]).map(|_| ())?)
    }

    /// Records the names of the tables and workers: the log keeps events longer that they have not read.
    /// Deletes the positions of others, and keeps their rejected events.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_collectors(&self, collectors: &[&str]) -> Result<()> {
        let sql = "DELETE FROM collected WHERE NOT collector = ANY(?1)";
        self.catalog.database.execute(sql, &[Value::Texts(collectors.to_vec())])?;
        let sql =
            "INSERT INTO collected (collector, position) VALUES (?1, 0) ON CONFLICT (collector) DO NOTHING";
        Ok(collectors
            .iter()
            .try_for_each(|name| self.catalog.database.execute(sql, &values![*name]).map(|_| ()))?)
    }

    /// Keeps events that a table or a worker did not take. One that is kept already gets the new reason.
    ///
    /// # Errors
    /// If the database fails: none is kept.
    pub fn reject(&self, events: &[RejectedEvent]) -> Result<()> {
        let sql = "INSERT INTO rejected (collector, event, record, at, reason) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (collector, event) DO UPDATE
            SET at = excluded.at, reason = excluded.reason, again = 0";
        Ok(self.catalog.database.transaction(VISITS, |db| {
            events.iter().try_for_each(|e| {
                let record = e.record.as_slice();
                let row = values![e.collector.as_str(), e.event, record, e.at, e.reason.as_str()];
                db.execute(sql, &row).map(|_| ())
            })
        })?)
    }

    /// Returns the last `max` events that were rejected, by `collector` if it is given, the last ones first.
    ///
    /// # Errors
    /// If the database fails.
    pub fn rejected(&self, collector: Option<&str>, max: usize) -> Result<Vec<RejectedEvent>> {
        let sql = "SELECT collector, event, record, at, reason FROM rejected
            WHERE ?1 = '' OR collector = ?1 ORDER BY event DESC, collector LIMIT ?2";
        Ok(self.catalog.database.query(sql, &values![collector.unwrap_or(""), max], rejected)?)
    }

    /// Asks for rejected events to be tried again: those with these numbers, or all of `collector`, or all.
    /// Returns how many.
    ///
    /// # Errors
    /// If the database fails.
    pub fn retry_rejected(&self, collector: Option<&str>, events: &[i64]) -> Result<u64> {
        self.change_rejected("UPDATE rejected SET again = 1", collector, events)
    }

    /// Deletes rejected events: those with these numbers, or all of `collector`, or all. Returns how many.
    ///
    /// # Errors
    /// If the database fails.
    pub fn drop_rejected(&self, collector: Option<&str>, events: &[i64]) -> Result<u64> {
        self.change_rejected("DELETE FROM rejected", collector, events)
    }

    fn change_rejected(&self, what: &str, collector: Option<&str>, events: &[i64]) -> Result<u64> {
        let collector = collector.unwrap_or("");
        match events.is_empty() {
            true => {
                let sql = format!("{what} WHERE ?1 = '' OR collector = ?1");
                Ok(self.catalog.database.execute(&sql, &values![collector])?)
            }
            false => {
                let sql = format!("{what} WHERE (?1 = '' OR collector = ?1) AND event = ANY(?2)");
                Ok(self
                    .catalog
                    .database
                    .execute(&sql, &[collector.into(), Value::Integers(events.to_vec())])?)
            }
        }
    }

    /// Returns at most `max` rejected events of `collector` that are to be tried again, the first ones first.
    ///
    /// # Errors
    /// If the database fails.
    pub fn rejected_again(&self, collector: &str, max: usize) -> Result<Vec<RejectedEvent>> {
        let sql = "SELECT collector, event, record, at, reason FROM rejected
            WHERE collector = ?1 AND again = 1 ORDER BY event LIMIT ?2";
        Ok(self.catalog.database.query(sql, &values![collector, max], rejected)?)
    }
}

fn rejected(row: &Row<'_>) -> weir_sql::Result<RejectedEvent> {
    Ok(RejectedEvent {
        collector: row.get(0)?,
        event: row.get(1)?,
        record: row.get(2)?,
        at: row.get(3)?,
        reason: row.get(4)?,
    })
}
