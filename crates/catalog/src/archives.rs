//! Records what happens to archives outside visits: an archive was restored, compacted, found damaged, or
//! adopted from the store.

use weir_ground::{Epoch, Seq, Timestamp};

use crate::database::{TransactionKind, values};
use crate::due::{at_the_latest, hinted};
use crate::repository::Hold;
use crate::{Catalog, Listed, Result};

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

impl Catalog {
    /// Says whether `hold` keeps the repository called `name` from being visited; nothing else that does is
    /// changed.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_hold(&mut self, name: &str, hold: Hold, is_held: bool) -> Result<()> {
        let (column, other) = match hold {
            Hold::Paused => ("paused", "pinned"),
            Hold::Pinned => ("pinned", "paused"),
        };
        // What is set back or resumed has other refs than the upstream was last seen with.
        let sql = format!(
            "UPDATE repositories SET {column} = ?2, enabled = CASE WHEN CAST(?2 AS BIGINT) = 0 AND {other} = \
            0 THEN 1 ELSE 0 END, fingerprint = NULL
             WHERE name = ?1"
        );
        self.database.execute(&sql, &values![name, is_held]).map(|_| ())
    }

    /// Writes down that the archive of the repository called `name` was set back to an older state, which is
    /// its last commit now: where the archive `end`s, how many refs it has, and the highest
    /// number of a lease it was written under: it is not visited any more.
    ///
    /// # Errors
    /// If the database fails.
    pub fn pin(&mut self, name: &str, end: ArchiveEnd, refs: u64, epoch: Epoch) -> Result<()> {
        let sql = "UPDATE repositories SET pinned = 1, enabled = 0, fingerprint = NULL, seq = ?2, \
            archive_bytes = ?3, ref_count = ?4,
                   epoch = GREATEST(epoch, ?5) WHERE name = ?1";
        self.database.execute(sql, &values![name, end.seq, end.bytes, refs, epoch]).map(|_| ())
    }

    /// Records that the archive of repository `id` was rewritten, and ends at `end`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_archive(&mut self, id: i64, end: ArchiveEnd) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?2, archive_bytes = ?3 WHERE id = ?1 AND seq <= ?2";
        self.database.execute(sql, &values![id, end.seq, end.bytes]).map(|_| ())
    }

    /// Writes down that something was added to the archive of repository `id` that is no change of its
    /// upstream: it had `from` for the number of its last commit. If that is not what is known here, a visit
    /// has still to be told of.
    ///
    /// # Errors
    /// If the database fails.
    pub fn add_to_archive(&mut self, id: i64, from: Seq, end: ArchiveEnd) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?3, archive_bytes = ?4 WHERE id = ?1 AND seq = ?2";
        self.database.execute(sql, &values![id, from, end.seq, end.bytes]).map(|_| ())
    }

    /// Somebody says that the repository called `name` is to be looked at, whatever its fingerprint.
    ///
    /// # Errors
    /// If the database fails.
    pub fn look_again(&mut self, name: &str, now: Timestamp) -> Result<()> {
        let sql = concat!("UPDATE repositories SET fingerprint = NULL, ", hinted!("?2"), " WHERE name = ?1");
        self.database.execute(sql, &values![name, now]).map(|_| ())
    }

    /// Registers archives that are in the store, and of which this catalog knows nothing, as they are; each
    /// is due. Gives how many that were: a name, a path or a forge's id that it knows already is left as it
    /// is.
    ///
    /// # Errors
    /// If the database fails.
    pub fn adopt(&mut self, archives: &[Adopted], now: Timestamp) -> Result<usize> {
        self.database.transaction(TransactionKind::Listing, |db| {
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

    /// Says that the archive of repository `id` was found to be damaged: it is due at `now`, and whoever
    /// visits it looks at all of it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_damaged(&mut self, id: i64, what: &str, now: Timestamp) -> Result<()> {
        let sql = concat!(
            "UPDATE repositories SET error_class = 'damaged', error = ?2, fingerprint = NULL, ",
            at_the_latest!("?3"),
            " WHERE id = ?1"
        );
        self.database.execute(sql, &values![id, what, now]).map(|_| ())
    }
}
