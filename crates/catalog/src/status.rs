//! The state of the catalog in numbers, and pauses.

use serde::Serialize;
use weir_ground::{FailureClass, Timestamp};
use weir_sql::values;

use crate::listing::Listing;
use crate::repository::{COLUMN_COUNT, COLUMNS, remove_what_belongs_to};
use crate::transactions::{LISTING, VISITS};
use crate::{CatalogStatus, Listings, Repository, Result, Visits};

/// Repositories that have been gone since `?1` or longer.
const GONE: &str = "enabled = 1 AND ((gone_at <= ?1 AND (last_success IS NULL OR last_success < gone_at))
    OR (forge IS NULL AND error_class = 'gone' AND missing_since <= ?1))";

/// A pause of visits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PausedHost {
    /// The host; empty for all.
    pub host: String,
    /// The reason.
    pub cause: String,
    /// When it began, in seconds since 1970.
    pub since: i64,
    /// When it ends.
    pub until: Timestamp,
}

/// Numbers about all repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Repositories that are known.
    pub repositories: i64,
    /// Those that have an archive.
    pub mirrored: i64,
    /// Those that are not visited.
    pub disabled: i64,
    /// The number of disabled repositories that a user has paused.
    pub paused: i64,
    /// The number of disabled repositories that are set back to an older state.
    pub pinned: i64,
    /// Those that lack files of Git LFS.
    pub incomplete: i64,
    /// Those that their forge no longer has.
    pub gone: i64,
    /// Those whose last visit failed.
    pub failing: i64,
    /// Those that are due.
    pub due: i64,
    /// Those that are being visited.
    pub leased: i64,
    /// How long the most overdue repository has waited, in seconds.
    pub lag_s: i64,
    /// Successful visits within the last hour.
    pub visited_hour: i64,
    /// Successful visits within the last day.
    pub visited_day: i64,
    /// Bytes of all archives.
    pub archive_bytes: i64,
}

impl Visits<'_> {
    /// Records that visits to `host` pause (all visits, if it is empty).
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_throttle(&self, host: &str, cause: &str, now: Timestamp, until: Timestamp) -> Result<()> {
        self.catalog.database.transaction(VISITS, |db| {
            db.execute("DELETE FROM throttles WHERE until <= ?1", &values![now])?;
            db.execute(
                "INSERT INTO throttles (host, cause, since, until) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (host) DO UPDATE SET cause = excluded.cause, until = excluded.until",
                &values![host, cause, now, until],
            )?;
            Ok(())
        })
    }

    /// Records that visits to `host` go on (all visits, if it is empty).
    ///
    /// # Errors
    /// If the database fails.
    pub fn end_throttle(&self, host: &str) -> Result<()> {
        Ok(self
            .catalog
            .database
            .execute("DELETE FROM throttles WHERE host = ?1", &values![host])
            .map(|_| ())?)
    }

    /// Returns the pauses that are not over at `now`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn throttles(&self, now: Timestamp) -> Result<Vec<PausedHost>> {
        let sql = "SELECT host, cause, since, until FROM throttles WHERE until > ?1 ORDER BY host";
        Ok(self.catalog.database.query(sql, &values![now], |row| {
            Ok(PausedHost { host: row.get(0)?, cause: row.get(1)?, since: row.get(2)?, until: row.get(3)? })
        })?)
    }
}

impl CatalogStatus<'_> {
    /// Returns the bytes of all archives, as visits have recorded them. Reads every row once.
    ///
    /// # Errors
    /// If the database fails.
    pub fn archive_bytes(&self) -> Result<u64> {
        let sum: Option<Option<i64>> = self.catalog.database.query_one(
            "SELECT CAST(sum(archive_bytes) AS BIGINT) FROM repositories",
            &[],
            |row| row.get(0),
        )?;
        Ok(sum.flatten().unwrap_or(0).unsigned_abs())
    }

    /// Returns numbers about all repositories at `now`. Reads every row once.
    ///
    /// # Errors
    /// If the database fails.
    pub fn counts(&self, now: Timestamp) -> Result<Counts> {
        let sql = "SELECT count(*), count(seq), count(*) FILTER (WHERE enabled = 0), count(gone_at), \
            count(*) FILTER (WHERE failures > 0),
                   count(*) FILTER (WHERE enabled = 1 AND next_due <= ?1), count(*) FILTER (WHERE lease_until
                   > ?1),
                   max(CASE WHEN enabled = 1 AND last_attempt IS NOT NULL THEN ?1 - next_due END),
                   count(*) FILTER (WHERE last_success > ?1 - 3600), count(*) FILTER (WHERE last_success > ?1
                   - 86400),
                   CAST(sum(archive_bytes) AS BIGINT), count(*) FILTER (WHERE paused = 1),
                   count(*) FILTER (WHERE pinned = 1),
                   count(*) FILTER (WHERE lfs_missing > 0)
                   FROM repositories";
        let counts = self.catalog.database.query_one(sql, &values![now], |row| {
            let number = |n| row.get::<Option<i64>>(n).map(Option::unwrap_or_default);
            Ok(Counts {
                repositories: number(0)?,
                mirrored: number(1)?,
                disabled: number(2)?,
                gone: number(3)?,
                failing: number(4)?,
                due: number(5)?,
                leased: number(6)?,
                lag_s: number(7)?.max(0),
                visited_hour: number(8)?,
                visited_day: number(9)?,
                archive_bytes: number(10)?,
                paused: number(11)?,
                pinned: number(12)?,
                incomplete: number(13)?,
            })
        })?;
        Ok(counts.unwrap_or_default())
    }

    /// Returns at most `max` repositories in the order in which they are due.
    ///
    /// # Errors
    /// If the database fails.
    pub fn next_ones(&self, max: usize) -> Result<Vec<Repository>> {
        self.some("enabled = 1 AND CAST(?1 AS TEXT) IS NULL ORDER BY next_due", None, max)
    }

    /// Returns at most `max` repositories whose last visit failed (with that class), the latest first.
    ///
    /// # Errors
    /// If the database fails.
    pub fn failing(&self, class: Option<&str>, max: usize) -> Result<Vec<Repository>> {
        self.some(
            "failures > 0 AND (CAST(?1 AS TEXT) IS NULL OR error_class = ?1) ORDER BY last_attempt DESC, id",
            class,
            max,
        )
    }

    /// Returns how many repositories each forge has. Those that no forge lists are under `None`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn counts_by_forge(&self) -> Result<Vec<(Option<String>, i64)>> {
        Ok(self.catalog.database.query(
            "SELECT forge, count(*) FROM repositories GROUP BY forge",
            &[],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?)
    }

    fn some(&self, condition: &str, parameter: Option<&str>, max: usize) -> Result<Vec<Repository>> {
        let sql = format!("SELECT {COLUMNS} FROM repositories WHERE {condition} LIMIT ?2");
        Ok(self.catalog.database.query(&sql, &values![parameter, max], Repository::from_row)?)
    }

    /// Returns the number of repositories whose last visit failed, by class.
    ///
    /// # Errors
    /// If the database fails.
    pub fn errors_by_class(&self) -> Result<Vec<(FailureClass, i64)>> {
        let sql = "SELECT error_class, count(*) FROM repositories WHERE failures > 0 GROUP BY error_class \
            ORDER BY 2 DESC, 1";
        Ok(self.catalog.database.query(sql, &[], |row| {
            let class: Option<FailureClass> = row.get(0)?;
            Ok((class.unwrap_or(FailureClass::Local), row.get(1)?))
        })?)
    }
}

impl Listings<'_> {
    /// Returns the repositories, by name, that have been gone upstream since `before` or longer, with their
    /// forges. Their forge no longer has them, and no visit has found them since. If no forge lists a
    /// repository, all its visits since then have found nothing. Repositories that are not visited are left
    /// out.
    ///
    /// # Errors
    /// If the database fails.
    pub fn gone_since(&self, before: Timestamp) -> Result<Vec<(Repository, Option<String>)>> {
        let sql = format!("SELECT {COLUMNS}, forge FROM repositories WHERE {GONE} ORDER BY name");
        Ok(self
            .catalog
            .database
            .query(&sql, &values![before], |row| Ok((Repository::from_row(row)?, row.get(COLUMN_COUNT)?)))?)
    }

    /// Forgets repository `id` if [`Listings::gone_since`] would still return it and no other builds on it.
    /// Returns whether it did.
    ///
    /// # Errors
    /// If the database fails.
    pub fn remove_gone(&self, id: i64, before: Timestamp) -> Result<bool> {
        self.catalog.database.transaction(LISTING, |db| {
            // If the repository comes back, it must be listed again.
            db.execute(
                "DELETE FROM pages WHERE forge IN (SELECT forge FROM repositories WHERE id = ?1)",
                &values![id],
            )?;
            let sql = format!(
                "DELETE FROM repositories WHERE id = ?2 AND ({GONE})
                 AND NOT EXISTS (SELECT 1 FROM repositories o WHERE o.base_id = ?2)"
            );
            let is_removed = db.execute(&sql, &values![before, id])? > 0;
            if is_removed {
                remove_what_belongs_to(db, id)?;
            }
            Ok(is_removed)
        })
    }

    /// Returns how far the listings of all forges have come.
    ///
    /// # Errors
    /// If the database fails.
    pub fn all(&self) -> Result<Vec<Listing>> {
        let names: Vec<String> =
            self.catalog.database.query("SELECT name FROM forges ORDER BY name", &[], |row| row.get(0))?;
        let listings = names.iter().map(|name| self.get(name));
        Ok(listings.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}
