//! The schedule of looks at what forges say around repositories (issues, pull requests, releases).

use serde::Serialize;
use weir_ground::{Epoch, Timestamp};
use weir_sql::{Value, values};

use crate::repository::{COLUMN_COUNT, COLUMNS};
use crate::transactions::VISITS;
use crate::{MetadataLooks, Repository, Result};

/// How many repositories are noted at once.
const NOTED_AT_ONCE: usize = 5_000;
/// How often leasing is tried while other processes are faster.
const LEASE_TRIES: usize = 8;
/// Whether metadata is wanted. `?4` is the default for repositories whose settings do not say.
const WANTED: &str = "coalesce(metadata_wanted, ?4) = 1";

/// A repository that is leased for a look.
#[derive(Clone, Debug)]
pub struct MetadataTask {
    /// The repository.
    pub repository: Repository,
    /// Its id at the forge.
    pub forge_id: String,
    /// When something new was last found, in seconds since 1970.
    pub changed_at: Option<Timestamp>,
    /// The number of looks that failed in a row.
    pub failures: i64,
    /// The number of the lease.
    pub epoch: Epoch,
}

/// How a look ended.
#[derive(Clone, Debug)]
pub struct MetadataLook {
    /// The number of the repository.
    pub id: i64,
    /// The number of its lease.
    pub epoch: Epoch,
    /// When it ended, in seconds since 1970.
    pub at: Timestamp,
    /// When to look again.
    pub due_at: Timestamp,
    /// Whether it found something new.
    pub is_changed: bool,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Numbers about looks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataCounts {
    /// Repositories that were looked at.
    pub looked_at: i64,
    /// Repositories whose last look failed.
    pub failing: i64,
}

impl MetadataLooks<'_> {
    /// Notes which repositories of `forge` are to be looked at, among the next few thousand with numbers
    /// above `after`. They must have an archive, not be gone, and have settings that want metadata.
    /// `by_default` decides where the settings do not say. Returns the number after which to go on, `None` at
    /// the end.
    ///
    /// # Errors
    /// If the database fails.
    pub fn note(&self, forge: &str, by_default: bool, after: i64, now: Timestamp) -> Result<Option<i64>> {
        // Use the index of numbers, not that of forges: reading goes on from `after`.
        let sql =
            "SELECT max(id) FROM (SELECT id FROM repositories WHERE id > ?1 ORDER BY id LIMIT ?2) AS next";
        let Some(Some(last)) =
            self.catalog
                .database
                .query_one(sql, &values![after, NOTED_AT_ONCE], |row| row.get::<Option<i64>>(0))?
        else {
            return Ok(None);
        };
        let parameters = values![forge, after, last, i64::from(by_default)];
        self.catalog.database.transaction(VISITS, |db| {
            let wanted = "forge || '' = ?1 AND id > ?2 AND id <= ?3 AND enabled = 1 AND seq IS NOT NULL AND \
                gone_at IS NULL";
            let sql = format!(
                "INSERT INTO metadata_looks (repository_id, forge) SELECT id, forge FROM repositories WHERE \
                {wanted}
                 AND is_wiki = 0 AND {WANTED} ON CONFLICT (repository_id) DO NOTHING"
            );
            db.execute(&sql, &parameters)?;
            let sql = format!(
                "DELETE FROM metadata_looks WHERE forge || '' = ?1 AND repository_id > ?2 AND repository_id \
                <= ?3 AND (lease_until IS NULL OR lease_until <= ?5)
                 AND NOT EXISTS (SELECT 1 FROM repositories WHERE id = repository_id AND {wanted} AND
                 {WANTED})"
            );
            db.execute(&sql, &values![forge, after, last, i64::from(by_default), now]).map(|_| ())
        })?;
        Ok(Some(last))
    }

    /// Notes that the metadata of the repositories `ids` is wanted, whatever their settings say. Returns
    /// those that can be looked at.
    ///
    /// # Errors
    /// If the database fails.
    pub fn note_of(&self, forge: &str, ids: &[i64]) -> Result<Vec<i64>> {
        let sql = "INSERT INTO metadata_looks (repository_id, forge) SELECT id, forge FROM repositories \
            WHERE id = ANY(?2) AND forge = ?1
                   AND enabled = 1 AND seq IS NOT NULL AND gone_at IS NULL AND is_wiki = 0 ON
                   CONFLICT (repository_id) DO NOTHING";
        let parameters = [forge.into(), Value::Integers(ids.to_vec())];
        self.catalog.database.transaction(VISITS, |db| db.execute(sql, &parameters))?;
        let sql = "SELECT repository_id FROM metadata_looks WHERE forge = ?1 AND repository_id = ANY(?2) \
            ORDER BY repository_id";
        Ok(self.catalog.database.query(sql, &parameters, |row| row.get(0))?)
    }

    /// Leases the repository of `forge` that has been due for a look for the longest, if it was due by `due`.
    /// With `only`, leases that repository, due or not. `owner` has the lease from `now` until `until`. See
    /// [`crate::Visits::lease`] for what a lease is.
    ///
    /// # Errors
    /// If the database fails.
    pub fn lease(
        &self,
        owner: &str,
        forge: &str,
        only: Option<i64>,
        due: Timestamp,
        (now, until): (Timestamp, Timestamp),
    ) -> Result<Option<MetadataTask>> {
        let columns = COLUMNS.split(", ").map(|column| format!("r.{column}")).collect::<Vec<_>>().join(", ");
        let which = if only.is_some() {
            "l.repository_id = ?3"
        } else {
            "l.due_at <= ?3 AND r.gone_at IS NULL AND r.enabled = 1"
        };
        let sql = format!(
            "SELECT {columns}, r.forge_id, l.changed_at, l.failures FROM metadata_looks l JOIN repositories \
            r ON r.id = l.repository_id
             WHERE l.forge = ?1 AND (l.lease_until IS NULL OR l.lease_until <= ?2) AND {which} ORDER BY \
             l.due_at LIMIT 1"
        );
        let by: Value<'_> = only.map_or(due.into(), Value::from);
        // Another process may be faster.
        for _ in 0..LEASE_TRIES {
            let found = self.catalog.database.query_one(&sql, &values![forge, now, by.clone()], |row| {
                let at = COLUMN_COUNT;
                Ok(MetadataTask {
                    repository: Repository::from_row(row)?,
                    forge_id: row.get(at)?,
                    changed_at: row.get(at + 1)?,
                    failures: row.get(at + 2)?,
                    epoch: Epoch::NONE,
                })
            })?;
            let Some(mut task) = found else { return Ok(None) };
            let sql = "UPDATE metadata_looks SET lease_owner = ?2, lease_until = ?3, epoch = \
                GREATEST(epoch + 1, ?4) WHERE repository_id = ?1 AND (lease_until IS NULL OR lease_until \
                <= ?4) RETURNING epoch";
            let parameters = values![task.repository.id, owner, until, now];
            let epoch = self
                .catalog
                .database
                .transaction(VISITS, |db| db.query_one(sql, &parameters, |row| row.get(0)))?;
            if let Some(epoch) = epoch {
                task.epoch = epoch;
                return Ok(Some(task));
            }
        }
        Ok(None)
    }

    /// Extends lease number `epoch` of a look at repository `id` until `until`. Returns whether the lease
    /// still held.
    ///
    /// # Errors
    /// If the database fails.
    pub fn extend_lease(&self, id: i64, epoch: Epoch, until: Timestamp) -> Result<bool> {
        let sql = "UPDATE metadata_looks SET lease_until = ?3 WHERE repository_id = ?1 AND epoch = ?2 AND \
            lease_owner IS NOT NULL";
        let parameters = values![id, epoch, until];
        Ok(self.catalog.database.transaction(VISITS, |db| db.execute(sql, &parameters))? > 0)
    }

    /// Records how a look ended, and ends its lease. If the lease was not the last one, writes nothing and
    /// returns false.
    ///
    /// # Errors
    /// If the database fails.
    pub fn end(&self, look: &MetadataLook) -> Result<bool> {
        let MetadataLook { id, epoch, at, due_at, is_changed, error } = look;
        let sql =
            "UPDATE metadata_looks SET lease_owner = NULL, lease_until = NULL, due_at = ?2, looked_at = ?3, \
            changed_at = CASE WHEN ?4 = 1 THEN ?3 ELSE changed_at END,
                   failures = CASE WHEN CAST(?5 AS TEXT) IS NULL THEN 0 ELSE failures + 1 END, error = ?5
                   WHERE repository_id = ?1 AND epoch = ?6";
        let parameters = values![*id, *due_at, *at, i64::from(*is_changed), error.as_deref(), *epoch];
        Ok(self.catalog.database.transaction(VISITS, |db| db.execute(sql, &parameters))? > 0)
    }

    /// Returns how many repositories were looked at, and how many of the last looks failed.
    ///
    /// # Errors
    /// If the database fails.
    pub fn counts(&self) -> Result<MetadataCounts> {
        let sql = "SELECT count(looked_at), count(*) FILTER (WHERE failures > 0) FROM metadata_looks";
        let counts = self
            .catalog
            .database
            .query_one(sql, &[], |row| Ok(MetadataCounts { looked_at: row.get(0)?, failing: row.get(1)? }))?;
        Ok(counts.unwrap_or_default())
    }

    /// Returns at most `max` repositories whose last look failed: their names, and why.
    ///
    /// # Errors
    /// If the database fails.
    pub fn errors(&self, max: usize) -> Result<Vec<(String, String)>> {
        let sql = "SELECT r.name, coalesce(l.error, '') FROM metadata_looks l JOIN repositories r ON r.id = \
            l.repository_id
                   WHERE l.failures > 0 ORDER BY l.looked_at DESC LIMIT ?1";
        Ok(self.catalog.database.query(sql, &values![max], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }
}
