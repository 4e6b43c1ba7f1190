//! Hooks whose receiver does not take events: since when, why, and when weir tries again.

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Value, values};

use crate::transactions::VISITS;
use crate::{EventLog, Result};

/// A hook whose receiver does not take events now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailingHook {
    /// The number of attempts in a row that failed.
    pub failures: i64,
    /// The time of the first of them.
    pub failing_since: Timestamp,
    /// The time of the next attempt.
    pub retry_at: Timestamp,
    /// The failure in words.
    pub error: String,
}

impl EventLog<'_> {
    /// Returns how the hook `name` of this machine fails, if it does.
    ///
    /// # Errors
    /// If the database fails.
    pub fn failing_hook(&self, name: &str) -> Result<Option<FailingHook>> {
        let sql = "SELECT failures, failing_since, retry_at, error FROM failing_hooks
            WHERE hook = ?1 AND machine = ?2";
        Ok(self.catalog.database.query_one(sql, &values![name, self.catalog.machine.as_str()], |row| {
            Ok(FailingHook {
                failures: row.get(0)?,
                failing_since: row.get(1)?,
                retry_at: row.get(2)?,
                error: row.get(3)?,
            })
        })?)
    }

    /// Records how the hook `name` of this machine fails; `None` if it does not any more.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_failing_hook(&self, name: &str, failing: Option<&FailingHook>) -> Result<()> {
        let machine = self.catalog.machine.as_str();
        let Some(FailingHook { failures, failing_since, retry_at, error }) = failing else {
            let sql = "DELETE FROM failing_hooks WHERE hook = ?1 AND machine = ?2";
            return Ok(self.catalog.database.execute(sql, &values![name, machine]).map(|_| ())?);
        };
        let sql = "INSERT INTO failing_hooks (hook, machine, failures, failing_since, retry_at, error)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (hook, machine) DO UPDATE
            SET failures = excluded.failures, failing_since = excluded.failing_since,
            retry_at = excluded.retry_at, error = excluded.error";
        let row = values![name, machine, *failures, *failing_since, *retry_at, error.as_str()];
        Ok(self.catalog.database.execute(sql, &row).map(|_| ())?)
    }

    /// Makes the hook `name` be tried again now, if it fails. Returns whether it does.
    ///
    /// # Errors
    /// If the database fails.
    pub fn retry_hook(&self, name: &str, now: Timestamp) -> Result<bool> {
        let sql = "UPDATE failing_hooks SET retry_at = ?3 WHERE hook = ?1 AND machine = ?2";
        Ok(self.catalog.database.execute(sql, &values![name, self.catalog.machine.as_str(), now])? > 0)
    }

    /// Forgets the hooks of this machine whose names are not in `names`: the log is no longer kept for them.
    /// Returns the names of those that it forgot.
    ///
    /// # Errors
    /// If the database fails.
    pub fn retain_hooks(&self, names: &[&str]) -> Result<Vec<String>> {
        let machine = self.catalog.machine.clone();
        self.catalog.database.transaction(VISITS, |db| {
            let sql = "SELECT DISTINCT name FROM event_readers WHERE machine = ?1 AND NOT name = ANY(?2)";
            let given = [Value::Text(machine.as_str().into()), Value::Texts(names.to_vec())];
            let forgotten = db.query(sql, &given, |row| row.get(0))?;
            for (table, column) in [("event_readers", "name"), ("failing_hooks", "hook")] {
                let sql = format!("DELETE FROM {table} WHERE machine = ?1 AND NOT {column} = ANY(?2)");
                db.execute(&sql, &[Value::Text(machine.as_str().into()), Value::Texts(names.to_vec())])?;
            }
            Ok(forgotten)
        })
    }
}
