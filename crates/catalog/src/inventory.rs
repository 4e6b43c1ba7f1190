//! Everything in the catalog, read from end to end, to compare it with the store and with itself.

use weir_ground::Timestamp;
use weir_sql::values;

use crate::{Archives, Catalog, CatalogStatus, Result, Visits};

/// A row of the catalog: a repository and its archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryEntry {
    /// The repository's number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// Where its archive lies, below the store.
    pub path: String,
    /// Number of the archive's last commit; none before the first successful visit.
    pub seq: Option<i64>,
    /// Bytes of the archive.
    pub archive_bytes: Option<i64>,
    /// When a visit last succeeded, in seconds since 1970.
    pub last_success: Option<Timestamp>,
    /// Failures since then.
    pub failures: i64,
    /// Whether it is visited at all.
    pub is_enabled: bool,
}

impl Archives<'_> {
    /// Calls `each` with every repository, in no particular order, without holding them in memory.
    ///
    /// # Errors
    /// If the database fails.
    pub fn for_each_entry(&self, mut each: impl FnMut(InventoryEntry)) -> Result<()> {
        let sql = "SELECT id, name, url, path, seq, archive_bytes, last_success, failures, enabled FROM \
            repositories";
        Ok(self.catalog.database.stream(sql, &mut |row| {
            each(InventoryEntry {
                id: row.get(0)?,
                name: row.get(1)?,
                url: row.get(2)?,
                path: row.get(3)?,
                seq: row.get(4)?,
                archive_bytes: row.get(5)?,
                last_success: row.get(6)?,
                failures: row.get(7)?,
                is_enabled: row.get::<i64>(8)? != 0,
            });
            Ok(())
        })?)
    }

    /// Returns whether a repository has its archive at `path`, below the store.
    ///
    /// # Errors
    /// If the database fails.
    pub fn has_archive_at(&self, path: &str) -> Result<bool> {
        Ok(self
            .catalog
            .database
            .query_one("SELECT 1 FROM repositories WHERE path = ?1", &values![path], |_| Ok(()))?
            .is_some())
    }
}

impl Catalog {
    /// Calls `each` with the number and the URL of every repository with a number above `id`, without holding
    /// them in memory.
    ///
    /// # Errors
    /// If the database fails.
    pub fn for_each_url_after(&self, id: i64, mut each: impl FnMut(i64, String)) -> Result<()> {
        let sql = format!("SELECT id, url FROM repositories WHERE id > {id}");
        Ok(self.database.stream(&sql, &mut |row| {
            each(row.get(0)?, row.get(1)?);
            Ok(())
        })?)
    }
}

impl Visits<'_> {
    /// Returns the latest time of a recorded visit, in seconds since 1970.
    ///
    /// # Errors
    /// If the database fails.
    pub fn last_at(&self) -> Result<Option<Timestamp>> {
        let latest =
            self.catalog.database.query_one("SELECT max(last_attempt) FROM repositories", &[], |row| {
                row.get::<Option<Timestamp>>(0)
            })?;
        Ok(latest.flatten())
    }
}

impl CatalogStatus<'_> {
    /// Returns at most `max` faults that SQLite finds in the file (`PRAGMA integrity_check`). Returns none
    /// for PostgreSQL, which checks its own files.
    ///
    /// # Errors
    /// If the database fails.
    pub fn faults(&self, max: usize) -> Result<Vec<String>> {
        if self.catalog.database.is_postgres() {
            return Ok(Vec::new());
        }
        let mut found: Vec<String> =
            self.catalog
                .database
                .query(&format!("PRAGMA integrity_check({})", max.max(1)), &[], |row| row.get(0))?;
        found.retain(|line| line != "ok");
        Ok(found)
    }
}
