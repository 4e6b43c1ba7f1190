//! When what forges say around repositories (issues, pull requests, releases) is to be looked for.

use serde::Serialize;

use crate::catalog::{COLUMN_COUNT, COLUMNS};
use crate::database::{Kind, Type, Value, values};
use crate::{Catalog, Repository, Result};

/// A repository whose forge is to be asked what it says around it.
#[derive(Clone, Debug)]
pub struct MetadataTask {
    /// Which.
    pub repository: Repository,
    /// Its id at the forge.
    pub forge_id: String,
    /// When something new was last found, in seconds since 1970.
    pub changed_at: Option<i64>,
    /// Looks that failed, in turn.
    pub failures: i64,
}

/// How a look ended.
#[derive(Clone, Debug)]
pub struct MetadataLook {
    /// Of which repository.
    pub id: i64,
    /// When, in seconds since 1970.
    pub at: i64,
    /// When to look again.
    pub due_at: i64,
    /// Whether something was new.
    pub is_changed: bool,
    /// Why it failed, if so.
    pub error: Option<String>,
}

/// Numbers about looks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataCounts {
    /// Repositories that were looked at.
    pub looked_at: i64,
    /// Those of them whose last look failed.
    pub failing: i64,
}

impl Catalog {
    /// Leases at most `max` repositories of `forge` that are due for a look until `until`, in the order of their numbers, from the one
    /// after `after` on; those that have an archive and are not gone. `by_default` says whether it is wanted of all of which nothing is
    /// said; otherwise whether it is, whatever is said and whenever they are due, if `ids` names them.
    ///
    /// # Errors
    /// Of the database.
    pub fn lease_metadata(
        &mut self,
        forge: &str,
        by_default: bool,
        ids: Option<&[i64]>,
        after: i64,
        (now, until): (i64, i64),
        max: usize,
    ) -> Result<Vec<MetadataTask>> {
        // Settings are written by this crate, as JSON without spaces. Wikis are repositories, and have no issues.
        let sql = format!(
            "SELECT {COLUMNS}, forge_id, l.changed_at, coalesce(l.failures, 0) FROM repositories
             LEFT JOIN metadata_looks l ON l.repository_id = id
             WHERE forge = ?1 AND id > ?2 AND enabled = 1 AND seq IS NOT NULL AND gone_at IS NULL AND forge_id NOT LIKE '%:wiki'
             AND coalesce(l.leased_until, 0) <= ?3
             AND CASE WHEN ?4 = 1 THEN id = ANY(?5) ELSE coalesce(l.due_at, 0) <= ?3
                 AND (coalesce(settings, '') LIKE '%\"metadata\":true%' OR (?6 = 1 AND coalesce(settings, '') NOT LIKE '%\"metadata\":false%')) END
             ORDER BY id LIMIT ?7"
        );
        let columns = COLUMNS.split(", ").map(|column| format!("repositories.{column}")).collect::<Vec<_>>().join(", ");
        let sql = sql.replacen(COLUMNS, &columns, 1);
        self.database.transaction(Kind::Visits, |db| {
            let parameters: [Value<'_>; 7] = [
                forge.into(),
                after.into(),
                now.into(),
                i64::from(ids.is_some()).into(),
                Value::Integers(ids.unwrap_or_default().to_vec()),
                i64::from(by_default).into(),
                max.into(),
            ];
            let mut tasks = db.query(&sql, &parameters, |row| {
                let at = COLUMN_COUNT;
                Ok(MetadataTask {
                    repository: Repository::from_row(row)?,
                    forge_id: row.get(at)?,
                    changed_at: row.get(at + 1)?,
                    failures: row.get(at + 2)?,
                })
            })?;
            let rows: Vec<Vec<Value<'_>>> = tasks.iter().map(|task| values![task.repository.id, until, now].to_vec()).collect();
            // Another may have been faster.
            let sql = "INSERT INTO metadata_looks (repository_id, leased_until, due_at) SELECT * FROM rows
                       ON CONFLICT (repository_id) DO UPDATE SET leased_until = excluded.leased_until
                       WHERE metadata_looks.leased_until <= excluded.due_at RETURNING repository_id";
            let leased: Vec<i64> = db.query_rows(sql, &[Type::Integer; 3], &rows, |row| row.get(0))?;
            tasks.retain(|task| leased.contains(&task.repository.id));
            Ok(tasks)
        })
    }

    /// Makes the lease of repository `id` last until `until`.
    ///
    /// # Errors
    /// Of the database.
    pub fn extend_metadata_lease(&mut self, id: i64, until: i64) -> Result<()> {
        let sql = "UPDATE metadata_looks SET leased_until = ?2 WHERE repository_id = ?1";
        self.database.transaction(Kind::Visits, |db| db.execute(sql, &values![id, until])).map(|_| ())
    }

    /// Writes down how a look ended; the lease ends with it.
    ///
    /// # Errors
    /// Of the database.
    pub fn end_metadata_look(&mut self, look: &MetadataLook) -> Result<()> {
        let MetadataLook { id, at, due_at, is_changed, error } = look;
        let sql = "UPDATE metadata_looks SET leased_until = 0, due_at = ?2, looked_at = ?3, changed_at = CASE WHEN ?4 = 1 THEN ?3 ELSE changed_at END,
                   failures = CASE WHEN CAST(?5 AS TEXT) IS NULL THEN 0 ELSE failures + 1 END, error = ?5 WHERE repository_id = ?1";
        let parameters = values![*id, *due_at, *at, i64::from(*is_changed), error.as_deref()];
        self.database.transaction(Kind::Visits, |db| db.execute(sql, &parameters)).map(|_| ())
    }

    /// How many were looked at, and how many of these looks failed.
    ///
    /// # Errors
    /// Of the database.
    pub fn metadata_counts(&self) -> Result<MetadataCounts> {
        let sql = "SELECT count(looked_at), count(*) FILTER (WHERE failures > 0) FROM metadata_looks";
        let counts = self.database.query_one(sql, &[], |row| Ok(MetadataCounts { looked_at: row.get(0)?, failing: row.get(1)? }))?;
        Ok(counts.unwrap_or_default())
    }

    /// At most `max` repositories whose last look failed: their names, and why.
    ///
    /// # Errors
    /// Of the database.
    pub fn metadata_errors(&self, max: usize) -> Result<Vec<(String, String)>> {
        let sql = "SELECT r.name, coalesce(l.error, '') FROM metadata_looks l JOIN repositories r ON r.id = l.repository_id
                   WHERE l.failures > 0 ORDER BY l.looked_at DESC LIMIT ?1";
        self.database.query(sql, &values![max], |row| Ok((row.get(0)?, row.get(1)?)))
    }
}
