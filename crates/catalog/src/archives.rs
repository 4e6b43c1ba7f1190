//! Records what happens to archives outside visits: an archive was restored, compacted, found damaged, or
//! adopted from the store.

use weir_ground::{Epoch, Seq, Timestamp};
use weir_sql::values;

use crate::due::{at_the_latest, hinted};
use crate::repository::Hold;
use crate::transactions::LISTING;
use crate::{Archives, Listed, Result, Visits};

/// An archive that was found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its name: what clients ask for.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// Where it lies, below the store.
    pub path: String,
    /// Number of its last commit.
    pub seq: i64,
    /// Its length in bytes.
    pub archive_bytes: i64,
    /// Refs in it.
    pub ref_count: i64,
    /// The highest number of a lease under which it was written.
    pub epoch: Epoch,
    /// As [`crate::Repository::forge`].
    pub forge: Option<String>,
    /// Whether it was set back to an older state, and is not to be visited.
    pub is_pinned: bool,
}

/// Where an archive ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveEnd {
    /// The number of its last commit.
    pub seq: Seq,
    /// Its length.
    pub bytes: u64,
}

impl Archives<'_> {
    /// Sets whether `hold` keeps the repository called `name` from being visited. Other reasons stay as they
    /// are.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_hold(&self, name: &str, hold: Hold, is_held: bool) -> Result<()> {
        let (column, other) = match hold {
            Hold::Paused => ("paused", "pinned"),
            Hold::Pinned => ("pinned", "paused"),
        };
        // A repository that is set back or resumed has other refs than the upstream was last seen with.
        let sql = format!(
            "UPDATE repositories SET {column} = ?2, enabled = CASE WHEN CAST(?2 AS BIGINT) = 0 AND {other} = \
            0 THEN 1 ELSE 0 END, fingerprint = NULL
             WHERE name = ?1"
        );
        Ok(self.catalog.database.execute(&sql, &values![name, is_held]).map(|_| ())?)
    }

    /// Records that the archive of the repository called `name` was set back to an older state, which is its
    /// last commit now. The archive ends at `end` and has `refs` refs, and `epoch` is the highest number of a
    /// lease that has written it. The repository is no longer visited.
    ///
    /// # Errors
    /// If the database fails.
    pub fn pin(&self, name: &str, end: ArchiveEnd, refs: u64, epoch: Epoch) -> Result<()> {
        let sql = "UPDATE repositories SET pinned = 1, enabled = 0, fingerprint = NULL, seq = ?2, \
            archive_bytes = ?3, ref_count = ?4,
                   epoch = GREATEST(epoch, ?5) WHERE name = ?1";
        Ok(self.catalog.database.execute(sql, &values![name, end.seq, end.bytes, refs, epoch]).map(|_| ())?)
    }

    /// Records that the archive of repository `id` was rewritten, and ends at `end`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_archive(&self, id: i64, end: ArchiveEnd) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?2, archive_bytes = ?3 WHERE id = ?1 AND seq <= ?2";
        Ok(self.catalog.database.execute(sql, &values![id, end.seq, end.bytes]).map(|_| ())?)
    }

    /// Records that repository `id` has its first archive, which was made of a clone, not by a visit. It ends
    /// at `end` and has `refs` refs.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_imported(&self, id: i64, end: ArchiveEnd, refs: u64) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?2, archive_bytes = ?3, ref_count = ?4 \
            WHERE id = ?1 AND seq IS NULL";
        Ok(self.catalog.database.execute(sql, &values![id, end.seq, end.bytes, refs]).map(|_| ())?)
    }

    /// Records that something was added to the archive of repository `id` that is no change of its upstream.
    /// Before, its last commit was number `from`. If the catalog has another number, a visit is not recorded
    /// yet, and nothing changes.
    ///
    /// # Errors
    /// If the database fails.
    pub fn add_to_archive(&self, id: i64, from: Seq, end: ArchiveEnd) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?3, archive_bytes = ?4 WHERE id = ?1 AND seq = ?2";
        Ok(self.catalog.database.execute(sql, &values![id, from, end.seq, end.bytes]).map(|_| ())?)
    }

    /// Registers archives that are in the store and that the catalog does not know, as they are. Each is due.
    /// Returns how many it registered: it skips archives whose name, path or id at a forge is known.
    ///
    /// # Errors
    /// If the database fails.
    pub fn adopt(&self, archives: &[Adopted], now: Timestamp) -> Result<usize> {
        self.catalog.database.transaction(LISTING, |db| {
            let mut added = 0;
            for a in archives {
                let (forge, id) = a.forge.as_deref().and_then(|forge| forge.split_once(' ')).unzip();
                let sql = "SELECT id FROM repositories WHERE name = ?1 OR path = ?2 LIMIT 1";
                let is_known =
                    db.query_one(sql, &values![&a.name, &a.path], |row| row.get::<i64>(0))?.is_some();
                let sql = "SELECT id FROM repositories WHERE forge = ?1 AND forge_id = ?2";
                if is_known || db.query_one(sql, &values![forge, id], |row| row.get::<i64>(0))?.is_some() {
                    continue;
                }
                db.execute(
                    "INSERT INTO repositories (name, url, path, added_at, seq, archive_bytes, ref_count, \
                    epoch, forge, forge_id, pinned, enabled, is_wiki)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                    &values![
                        &a.name,
                        &a.url,
                        &a.path,
                        now,
                        a.seq,
                        a.archive_bytes,
                        a.ref_count,
                        a.epoch,
                        forge,
                        id,
                        a.is_pinned,
                        !a.is_pinned,
                        id.is_some_and(|id| Listed::of_wiki(id).is_some())
                    ],
                )?;
                added += 1;
            }
            Ok(added)
        })
    }

    /// Records that the archive of repository `id` is damaged. The repository is due at `now`, and the visit
    /// checks the whole archive.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_damaged(&self, id: i64, what: &str, now: Timestamp) -> Result<()> {
        let sql = concat!(
            "UPDATE repositories SET error_class = 'damaged', error = ?2, fingerprint = NULL, ",
            at_the_latest!("?3"),
            " WHERE id = ?1"
        );
        Ok(self.catalog.database.execute(sql, &values![id, what, now]).map(|_| ())?)
    }
}

impl Visits<'_> {
    /// Makes the repository called `name` due, whatever its fingerprint.
    ///
    /// # Errors
    /// If the database fails.
    pub fn look_again(&self, name: &str, now: Timestamp) -> Result<()> {
        let sql = concat!("UPDATE repositories SET fingerprint = NULL, ", hinted!("?2"), " WHERE name = ?1");
        Ok(self.catalog.database.execute(sql, &values![name, now]).map(|_| ())?)
    }
}
