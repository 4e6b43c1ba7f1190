//! The time that schedules and leases use: the database's, where machines share one.

use std::sync::atomic::{AtomicI64, Ordering};

use weir_ground::{Clock, Timestamp};
use weir_sql::values;

use crate::due::at_the_latest;
use crate::{Catalog, Result};

/// A last visit that lies more seconds ahead was recorded by a wrong clock.
const AHEAD_MAX_S: i64 = 3600;
/// A lease that runs for more seconds was given by a wrong clock.
const LEASE_MAX_S: i64 = 30 * 86_400;

/// How many seconds the database's clock is ahead of this machine's.
static AHEAD_S: AtomicI64 = AtomicI64::new(0);

/// Returns the clock that all processes with this catalog share: the database's, if it has one.
pub fn clock() -> Clock {
    Clock::corrected(&AHEAD_S)
}

/// Returns the time in seconds since 1970.
pub fn now() -> Timestamp {
    clock().now()
}

fn here() -> Timestamp {
    Clock::default().now()
}

impl Catalog {
    /// Uses the database's clock from now on, for the whole process. Returns the seconds by which it is ahead
    /// of this machine's.
    ///
    /// # Errors
    /// If the database fails.
    pub fn follow_clock(&self) -> Result<i64> {
        if !self.database.is_postgres() {
            return Ok(0);
        }
        let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)";
        let there = self.database.query_one(sql, &[], |row| row.get::<Timestamp>(0))?;
        let ahead: i64 = there.map_or(0, |there| there - here());
        // A difference of one second may be the time that the answer took.
        AHEAD_S.store(if ahead.abs() > 1 { ahead } else { 0 }, Ordering::Relaxed);
        Ok(ahead)
    }

    /// Makes repositories due that a wrong clock has put off, and ends the leases that it has given. Returns
    /// how many there were. Reads every row once.
    ///
    /// # Errors
    /// If the database fails.
    pub fn mend_times(&self, now: Timestamp) -> Result<u64> {
        let sql = concat!(
            "UPDATE repositories SET ",
            at_the_latest!("?1"),
            ", last_attempt = LEAST(last_attempt, ?1), last_success = CASE WHEN last_success > ?1 THEN ?1 \
            ELSE last_success END, last_change = CASE WHEN last_change > ?1 THEN ?1 ELSE last_change END \
            WHERE last_attempt > ?2"
        );
        let put_off = self.database.execute(sql, &values![now, now + AHEAD_MAX_S])?;
        let sql = "UPDATE repositories SET lease_owner = NULL, lease_until = NULL WHERE lease_until > ?1";
        Ok(put_off + self.database.execute(sql, &values![now + LEASE_MAX_S])?)
    }
}
