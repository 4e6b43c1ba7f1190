//! The catalog over SQLite.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use crate::schema;

/// A failure of the catalog.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database said no.
    #[error("catalog: {0}")]
    Sql(#[from] rusqlite::Error),
    /// It was made by a newer weir.
    #[error("the catalog has schema version {0}, made by a newer weir; use that")]
    TooNew(i64),
    /// A name is taken.
    #[error("a repository called '{name}' is there already, mirrored from {url}; choose another name with --name")]
    NameTaken {
        /// The name.
        name: String,
        /// What it mirrors.
        url: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A repository as the catalog knows it. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repository {
    /// Its number.
    pub id: i64,
    /// Its name: what clients ask for, without the leading slash.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// Where its archive lies, below the store.
    pub path: String,
    /// When it was added.
    pub added_at: i64,
    /// When to look at the upstream next.
    pub next_due: i64,
    /// When the upstream was last asked.
    pub last_attempt: Option<i64>,
    /// When that last went well.
    pub last_success: Option<i64>,
    /// When something was last found changed.
    pub last_change: Option<i64>,
    /// Fingerprint of the upstream's refs as of the last success.
    #[serde(skip)]
    pub fingerprint: Option<Vec<u8>>,
    /// Number of the archive's last commit.
    pub seq: Option<i64>,
    /// Bytes of the archive.
    pub archive_bytes: Option<i64>,
    /// Refs in it.
    pub ref_count: Option<i64>,
    /// Failures since the last success.
    pub failures: i64,
    /// Class of the last failure.
    pub error_class: Option<String>,
    /// The last failure in words.
    pub error: Option<String>,
    /// Fencing number of the last lease.
    pub epoch: i64,
    /// Changes that visits have found, the latest counting most...
    #[serde(skip)]
    pub changes: f64,
    /// ...and the seconds they were looked for in.
    #[serde(skip)]
    pub watched_s: f64,
}

pub(crate) const COLUMNS: &str = "id, name, url, path, added_at, next_due, last_attempt, last_success, last_change, fingerprint, seq, \
                       archive_bytes, ref_count, failures, error_class, error, epoch, changes, watched_s";

impl Repository {
    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Repository> {
        Ok(Repository {
            id: row.get(0)?,
            name: row.get(1)?,
            url: row.get(2)?,
            path: row.get(3)?,
            added_at: row.get(4)?,
            next_due: row.get(5)?,
            last_attempt: row.get(6)?,
            last_success: row.get(7)?,
            last_change: row.get(8)?,
            fingerprint: row.get(9)?,
            seq: row.get(10)?,
            archive_bytes: row.get(11)?,
            ref_count: row.get(12)?,
            failures: row.get(13)?,
            error_class: row.get(14)?,
            error: row.get(15)?,
            epoch: row.get(16)?,
            changes: row.get(17)?,
            watched_s: row.get(18)?,
        })
    }
}

/// How a visit to an upstream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing there had changed.
    Unchanged,
    /// The archive was brought up to date.
    Updated {
        /// Number of the archive's last commit.
        seq: u64,
        /// Bytes of the archive.
        archive_bytes: u64,
        /// Refs in it.
        ref_count: u64,
    },
    /// It failed; the archive is as it was.
    Failed {
        /// Class of the failure.
        class: String,
        /// In words.
        error: String,
    },
    /// There was none: its host pauses.
    PutOff,
}

/// A visit to be written down.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Which repository.
    pub id: i64,
    /// When it began.
    pub began_at: i64,
    /// When it ended.
    pub at: i64,
    /// When to come again.
    pub next_due: i64,
    /// Fingerprint of the refs seen.
    pub fingerprint: Option<Vec<u8>>,
    /// As [`Repository::changes`], with this visit.
    pub changes: f64,
    /// As [`Repository::watched_s`], with this visit.
    pub watched_s: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// Which repositories are meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which<'a> {
    /// Only those that are due.
    pub due_only: bool,
    /// Only those with these numbers.
    pub ids: Option<&'a [i64]>,
}

/// Prepared statements that are kept.
const STATEMENTS_KEPT: usize = 64;

/// Memory for pages, as far as it is needed.
const CACHE_KIBIBYTES: i64 = 64 << 10;
/// Pages of 4 KiB in the log before they are moved to their places: a page that changes often is moved once.
const CHECKPOINT_PAGES: i64 = 16 << 10;

/// The catalog of a pool.
pub struct Catalog {
    pub(crate) connection: Connection,
}

impl Catalog {
    /// Opens the catalog at `path`, creating it or bringing it up to date.
    ///
    /// # Errors
    /// If it cannot be opened, or is newer than this program.
    pub fn open(path: &Path) -> Result<Catalog> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // With WAL a power cut may cost the last batch, never consistency; a lost batch is looked at again.
        connection.pragma_update(None, "synchronous", "normal")?;
        // Pages of ten million rows are written in any order: the default of 2 MiB would read most of them again.
        connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        schema::migrate(&mut connection)?.map_err(Error::TooNew)?;
        Ok(Catalog { connection })
    }

    /// Adds repositories (name, URL, path of the archive) in one transaction; those with the same name and URL are left as
    /// they are. Returns how many are new.
    ///
    /// # Errors
    /// If a name is taken by another URL; then nothing is added.
    pub fn add(&mut self, list: &[(String, String, String)], now: i64) -> Result<usize> {
        let transaction = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let mut added = 0;
        for (name, url, path) in list {
            let there: Option<String> = transaction
                .prepare_cached("SELECT url FROM repositories WHERE name = ?1")?
                .query_row([name], |row| row.get(0))
                .optional()?;
            match there {
                Some(there) if there == *url => {}
                Some(there) => return Err(Error::NameTaken { name: name.clone(), url: there }),
                None => {
                    transaction
                        .prepare_cached("INSERT INTO repositories (name, url, path, added_at) VALUES (?1, ?2, ?3, ?4)")?
                        .execute(params![name, url, path, now])?;
                    added += 1;
                }
            }
        }
        transaction.commit()?;
        Ok(added)
    }

    /// All repositories by name.
    ///
    /// # Errors
    /// Of the database.
    pub fn list(&self) -> Result<Vec<Repository>> {
        let mut statement = self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM repositories ORDER BY name"))?;
        let rows = statement.query_map([], Repository::from_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The repository called `name`.
    ///
    /// # Errors
    /// Of the database.
    pub fn get(&self, name: &str) -> Result<Option<Repository>> {
        let mut statement = self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM repositories WHERE name = ?1"))?;
        Ok(statement.query_row([name], Repository::from_row).optional()?)
    }

    /// Forgets the repository called `name`; says whether it was there.
    ///
    /// # Errors
    /// Of the database.
    pub fn remove(&mut self, name: &str) -> Result<bool> {
        let transaction = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for table in ["metadata", "languages", "topics"] {
            let sql = format!("DELETE FROM {table} WHERE repository_id = (SELECT id FROM repositories WHERE name = ?1)");
            transaction.execute(&sql, [name])?;
        }
        let removed = transaction.execute("DELETE FROM repositories WHERE name = ?1", [name])?;
        transaction.commit()?;
        Ok(removed > 0)
    }

    /// Leases repositories to `owner` until `until`, most overdue first, `max` at most. Leases of others that have not run
    /// out at `now` are respected; one's own are renewed.
    ///
    /// # Errors
    /// Of the database.
    pub fn lease(&mut self, owner: &str, now: i64, until: i64, which: &Which<'_>, max: usize) -> Result<Vec<Repository>> {
        let due = if which.due_only { now } else { i64::MAX };
        let ids = which.ids.map(|ids| {
            let list: Vec<String> = ids.iter().map(i64::to_string).collect();
            format!("[{}]", list.join(","))
        });
        let mut statement = self.connection.prepare_cached(&format!(
            "UPDATE repositories SET lease_owner = ?1, lease_until = ?2, epoch = epoch + 1 WHERE id IN (
                 SELECT id FROM repositories WHERE enabled = 1 AND next_due <= ?3
                 AND (?6 IS NULL OR id IN (SELECT value FROM json_each(?6)))
                 AND (lease_until IS NULL OR lease_until <= ?4 OR lease_owner = ?1) ORDER BY next_due, id LIMIT ?5)
             RETURNING {COLUMNS}"
        ))?;
        let rows = statement.query_map(params![owner, until, due, now, max as i64, ids], Repository::from_row)?;
        let mut leased = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        leased.sort_by_key(|r| (r.next_due, r.id));
        Ok(leased)
    }

    /// Gives leases back without a visit.
    ///
    /// # Errors
    /// Of the database.
    pub fn release(&mut self, owner: &str) -> Result<()> {
        self.connection.execute("UPDATE repositories SET lease_owner = NULL, lease_until = NULL WHERE lease_owner = ?1", [owner])?;
        Ok(())
    }

    /// Gives all leases back: for when it is known that nobody holds one.
    ///
    /// # Errors
    /// Of the database.
    pub fn release_all(&mut self) -> Result<()> {
        self.connection.execute("UPDATE repositories SET lease_owner = NULL, lease_until = NULL WHERE lease_owner IS NOT NULL", [])?;
        Ok(())
    }

    /// Says whether the repository called `name` is to be mirrored.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<()> {
        // What is set back or resumed has other refs than the upstream was last seen with.
        self.connection.execute("UPDATE repositories SET enabled = ?2, fingerprint = NULL WHERE name = ?1", params![name, enabled])?;
        Ok(())
    }

    /// Writes visits down, in one transaction, and ends their leases.
    ///
    /// # Errors
    /// Of the database.
    pub fn record(&mut self, visits: &[Visit]) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for v in visits {
            match &v.outcome {
                Outcome::Unchanged => transaction
                    .prepare_cached(
                        "UPDATE repositories SET last_attempt = ?2, last_success = ?2, next_due = ?3, fingerprint = ?4, failures = 0,
                         changes = ?5, watched_s = ?6, error_class = NULL, error = NULL, lease_owner = NULL, lease_until = NULL
                         WHERE id = ?1",
                    )?
                    .execute(params![v.id, v.at, v.next_due, v.fingerprint, v.changes, v.watched_s])?,
                Outcome::Updated { seq, archive_bytes, ref_count } => transaction
                    .prepare_cached(
                        "UPDATE repositories SET last_attempt = ?2, last_success = ?2, next_due = ?3, fingerprint = ?4,
                         last_change = CASE WHEN last_success IS NULL THEN last_change ELSE ?2 END, seq = ?5, archive_bytes = ?6, ref_count = ?7, changes = ?8, watched_s = ?9, failures = 0, error_class = NULL,
                         error = NULL, lease_owner = NULL, lease_until = NULL WHERE id = ?1",
                    )?
                    .execute(params![
                        v.id,
                        v.at,
                        v.next_due,
                        v.fingerprint,
                        *seq as i64,
                        *archive_bytes as i64,
                        *ref_count as i64,
                        v.changes,
                        v.watched_s
                    ])?,
                Outcome::Failed { class, error } => transaction
                    .prepare_cached(
                        "UPDATE repositories SET last_attempt = ?2, next_due = ?3, failures = failures + 1, error_class = ?4,
                         error = ?5, fingerprint = NULL, lease_owner = NULL, lease_until = NULL WHERE id = ?1",
                    )?
                    .execute(params![v.id, v.at, v.next_due, class, error])?,
                Outcome::PutOff => transaction
                    .prepare_cached("UPDATE repositories SET next_due = ?2, lease_owner = NULL, lease_until = NULL WHERE id = ?1")?
                    .execute(params![v.id, v.next_due])?,
            };
        }
        // What was said to have changed meanwhile may not have been seen.
        for v in visits {
            transaction
                .prepare_cached("UPDATE repositories SET next_due = min(next_due, hinted_at) WHERE id = ?1 AND hinted_at >= ?2")?
                .execute(params![v.id, v.began_at])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// When the next repository is due.
    ///
    /// # Errors
    /// Of the database.
    pub fn next_due(&self) -> Result<Option<i64>> {
        Ok(self.connection.query_row("SELECT min(next_due) FROM repositories WHERE enabled = 1", [], |row| row.get(0))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Which<'_> = Which { due_only: true, ids: None };

    fn catalog() -> (tempfile::TempDir, Catalog) {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        (dir, catalog)
    }

    fn entry(name: &str, url: &str) -> (String, String, String) {
        (name.into(), url.into(), format!("{name}.tar"))
    }

    #[test]
    fn names_are_unique_and_adding_twice_is_harmless() {
        let (_dir, mut c) = catalog();
        assert_eq!(c.add(&[entry("a", "git://h/a"), entry("b", "git://h/b")], 1).unwrap(), 2);
        assert_eq!(c.add(&[entry("a", "git://h/a")], 2).unwrap(), 0);
        let taken = c.add(&[entry("c", "git://h/c"), entry("a", "git://other/a")], 3).unwrap_err();
        assert!(matches!(taken, Error::NameTaken { .. }));
        assert_eq!(c.list().unwrap().len(), 2, "all or nothing");
        assert!(c.remove("a").unwrap() && !c.remove("a").unwrap());
    }

    #[test]
    fn leases_are_exclusive_until_they_run_out() {
        let (_dir, mut c) = catalog();
        c.add(&[entry("a", "u1"), entry("b", "u2"), entry("c", "u3")], 0).unwrap();
        let first = c.lease("one", 100, 200, &DUE, 2).unwrap();
        assert_eq!(first.len(), 2);
        assert_eq!(c.lease("two", 100, 200, &DUE, 10).unwrap().len(), 1);
        assert!(c.lease("three", 150, 300, &DUE, 10).unwrap().is_empty());
        let only = |ids: &'static [i64]| Which { due_only: false, ids: Some(ids) };
        assert!(c.lease("three", 150, 300, &only(&[]), 10).unwrap().is_empty());
        let again = c.lease("three", 200, 300, &DUE, 10).unwrap();
        assert_eq!(again.len(), 3, "run out");
        assert!(again.iter().all(|r| r.epoch == 2), "each lease has a number of its own");
    }

    #[test]
    fn older_catalogs_are_brought_up_to_date_and_newer_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        {
            let old = Connection::open(&path).unwrap();
            old.execute_batch(schema::STEPS[0]).unwrap();
            old.execute_batch(
                "INSERT INTO repositories (name, url, path, added_at) VALUES ('a', 'u', 'a.tar', 7); PRAGMA user_version = 1",
            )
            .unwrap();
        }
        let a = Catalog::open(&path).unwrap().get("a").unwrap().unwrap();
        assert_eq!((a.added_at, a.changes), (7, 0.0));
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
        assert!(matches!(Catalog::open(&path), Err(Error::TooNew(999))));
    }

    #[test]
    fn visits_set_the_schedule() {
        let (_dir, mut c) = catalog();
        c.add(&[entry("a", "u1")], 0).unwrap();
        let id = c.get("a").unwrap().unwrap().id;
        let visit = |at, next_due, outcome| Visit {
            id,
            began_at: at,
            at,
            next_due,
            fingerprint: Some(vec![1]),
            changes: 1.0,
            watched_s: 2.0,
            outcome,
        };
        c.record(&[visit(10, 20, Outcome::Failed { class: "network".into(), error: "no".into() })]).unwrap();
        let a = c.get("a").unwrap().unwrap();
        assert_eq!((a.failures, a.last_success, a.error_class.as_deref(), a.fingerprint), (1, None, Some("network"), None));
        c.record(&[visit(30, 40, Outcome::Updated { seq: 1, archive_bytes: 2, ref_count: 3 })]).unwrap();
        let a = c.get("a").unwrap().unwrap();
        assert_eq!((a.failures, a.last_success, a.error, a.seq, a.next_due), (0, Some(30), None, Some(1), 40));
        assert!(c.lease("x", 39, 50, &DUE, 10).unwrap().is_empty(), "not due");
        assert_eq!(c.lease("x", 39, 50, &Which::default(), 10).unwrap().len(), 1, "but asked for");
    }
}
