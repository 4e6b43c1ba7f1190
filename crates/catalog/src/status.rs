//! The state of everything in numbers, and pauses.

use rusqlite::params;
use serde::Serialize;

use crate::listing::Listing;
use crate::sqlite::{COLUMNS, Catalog, Repository, Result};

/// A pause of visits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PausedHost {
    /// The host; empty for all.
    pub host: String,
    /// Why.
    pub cause: String,
    /// Since when, in seconds since 1970.
    pub since: i64,
    /// Until when.
    pub until: i64,
}

/// Numbers about all repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Those that are known.
    pub repositories: i64,
    /// Those that have an archive.
    pub mirrored: i64,
    /// Those that are not visited until somebody says so.
    pub disabled: i64,
    /// Those that their forge has no more.
    pub gone: i64,
    /// Those whose last visit failed.
    pub failing: i64,
    /// Those that are due.
    pub due: i64,
    /// Those that are being visited.
    pub leased: i64,
    /// Seconds the most overdue one has waited.
    pub lag_s: i64,
    /// Visits that went well within the last hour, and the last day.
    pub visited_hour: i64,
    /// The same within a day.
    pub visited_day: i64,
    /// Bytes of all archives.
    pub archive_bytes: i64,
}

impl Catalog {
    /// Writes down that visits to `host` (all, if it is empty) pause.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_throttle(&mut self, host: &str, cause: &str, now: i64, until: i64) -> Result<()> {
        self.connection.execute("DELETE FROM throttles WHERE until <= ?1", [now])?;
        self.connection
            .prepare_cached(
                "INSERT INTO throttles (host, cause, since, until) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (host) DO UPDATE SET cause = ?2, until = ?4",
            )?
            .execute(params![host, cause, now, until])?;
        Ok(())
    }

    /// Pauses that are not over at `now`.
    ///
    /// # Errors
    /// Of the database.
    pub fn throttles(&self, now: i64) -> Result<Vec<PausedHost>> {
        let mut statement =
            self.connection.prepare_cached("SELECT host, cause, since, until FROM throttles WHERE until > ?1 ORDER BY host")?;
        let rows = statement
            .query_map([now], |row| Ok(PausedHost { host: row.get(0)?, cause: row.get(1)?, since: row.get(2)?, until: row.get(3)? }))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Numbers about all repositories at `now`. Reads every row once.
    ///
    /// # Errors
    /// Of the database.
    pub fn counts(&self, now: i64) -> Result<Counts> {
        let sql = "SELECT count(*), count(seq), sum(enabled = 0), count(gone_at), sum(failures > 0), sum(enabled = 1 AND next_due <= ?1),
                   sum(lease_until > ?1), max(CASE WHEN enabled = 1 AND last_attempt IS NOT NULL THEN ?1 - next_due END),
                   sum(last_success > ?1 - 3600), sum(last_success > ?1 - 86400), sum(archive_bytes) FROM repositories";
        let number = |row: &rusqlite::Row<'_>, n: usize| row.get::<_, Option<i64>>(n).map(Option::unwrap_or_default);
        Ok(self.connection.query_row(sql, [now], |row| {
            Ok(Counts {
                repositories: number(row, 0)?,
                mirrored: number(row, 1)?,
                disabled: number(row, 2)?,
                gone: number(row, 3)?,
                failing: number(row, 4)?,
                due: number(row, 5)?,
                leased: number(row, 6)?,
                lag_s: number(row, 7)?.max(0),
                visited_hour: number(row, 8)?,
                visited_day: number(row, 9)?,
                archive_bytes: number(row, 10)?,
            })
        })?)
    }

    /// At most `max` repositories in the order they are due.
    ///
    /// # Errors
    /// Of the database.
    pub fn next_ones(&self, max: usize) -> Result<Vec<Repository>> {
        self.some("enabled = 1 AND ?1 IS NULL ORDER BY next_due, id", None, max)
    }

    /// At most `max` repositories whose last visit failed (in that class), the latest first.
    ///
    /// # Errors
    /// Of the database.
    pub fn failing(&self, class: Option<&str>, max: usize) -> Result<Vec<Repository>> {
        self.some("failures > 0 AND (?1 IS NULL OR error_class = ?1) ORDER BY last_attempt DESC, id", class, max)
    }

    fn some(&self, condition: &str, parameter: Option<&str>, max: usize) -> Result<Vec<Repository>> {
        let mut statement = self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM repositories WHERE {condition} LIMIT ?2"))?;
        let rows = statement.query_map(params![parameter, i64::try_from(max).unwrap_or(i64::MAX)], Repository::from_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Repositories whose last visit failed, by class.
    ///
    /// # Errors
    /// Of the database.
    pub fn errors_by_class(&self) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT error_class, count(*) FROM repositories WHERE failures > 0 GROUP BY error_class ORDER BY 2 DESC, 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, Option<String>>(0)?.unwrap_or_default(), row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How far the listings of all forges have come.
    ///
    /// # Errors
    /// Of the database.
    pub fn listings(&self) -> Result<Vec<Listing>> {
        let mut statement = self.connection.prepare_cached("SELECT name FROM forges ORDER BY name")?;
        let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let mut listings = Vec::new();
        for name in names {
            listings.extend(self.listing(&name)?);
        }
        Ok(listings)
    }
}
