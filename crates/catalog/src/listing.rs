//! Listings of forges. A page and the position of its listing are written in one transaction.

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Database, Row, Value, values};

use crate::transactions::{LISTING, LISTING_LOCKS};
use crate::upsert::{ListingSource, Taken, take};
use crate::{Listings, Result};
use weir_listed::Listed;

/// The progress of a listing of a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The forge, by its name in the configuration.
    pub forge: String,
    /// The number of the pass.
    pub pass: i64,
    /// Where to go on; `None` at the start.
    pub position: Option<String>,
    /// Repositories listed so far.
    pub listed: i64,
    /// When it began, in seconds since 1970.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When it last failed, if it has not gone on since.
    pub failed_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A page of a listing that could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedPage {
    /// The position of the page.
    pub position: String,
    /// How often it was tried.
    pub tries: i64,
    /// The error of the last try.
    pub error: String,
    /// When the last try was, in seconds since 1970.
    pub last_at: Timestamp,
}

/// A repository that a whole listing did not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// Its number.
    pub id: i64,
    /// Its name here.
    pub name: String,
    /// Its id at the forge.
    pub forge_id: String,
    /// Whether the forge said that everybody sees it.
    pub is_public: bool,
}

impl Listings<'_> {
    /// Locks the listing of `forge` for this process, until [`Listings::unlock`] or its end. Returns
    /// false if it is locked already.
    ///
    /// # Errors
    /// If the database fails, or a file beside it cannot be locked.
    pub fn try_lock(&self, forge: &str) -> Result<bool> {
        Ok(self.catalog.database.try_lock(LISTING_LOCKS, forge)?)
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// If the database fails.
    pub fn unlock(&self, forge: &str) -> Result<()> {
        Ok(self.catalog.database.unlock(LISTING_LOCKS, forge)?)
    }

    /// Returns the listing of `forge` to go on with: the last one if it did not end and has the same `scope`,
    /// else a new one.
    ///
    /// # Errors
    /// If the database fails.
    pub fn begin(&self, forge: &str, scope: &str, now: Timestamp) -> Result<Listing> {
        self.catalog.database.transaction(LISTING, |db| {
            // With another scope, positions mean something else.
            for table in ["skipped_pages", "pages"] {
                db.execute(
                    &format!(
                        "DELETE FROM {table} WHERE forge = ?1 AND EXISTS (SELECT 1 FROM forges WHERE \
                        name = ?1 AND scope <> ?2)"
                    ),
                    &values![forge, scope],
                )?;
            }
            db.execute(
                "INSERT INTO forges (name, scope, pass, listed, started_at) VALUES (?1, ?2, 1, 0, ?3) ON \
                CONFLICT (name) DO UPDATE SET
                 scope = excluded.scope, pass = forges.pass + 1, position = NULL, listed = 0,
                 started_at = excluded.started_at,
                 finished_at = NULL WHERE forges.finished_at IS NOT NULL OR forges.scope <> excluded.scope",
                &values![forge, scope, now],
            )?;
            Ok(listing(db, forge)?.expect("made above"))
        })
    }

    /// Writes the scope of the last listing of `forge` as `new`, if it was written as `old`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn respell_scope(&self, forge: &str, old: &str, new: &str) -> Result<()> {
        let sql = "UPDATE forges SET scope = ?3 WHERE name = ?1 AND scope = ?2";
        Ok(self.catalog.database.execute(sql, &values![forge, old, new]).map(|_| ())?)
    }

    /// Returns how far the last listing of `forge` came.
    ///
    /// # Errors
    /// If the database fails.
    pub fn get(&self, forge: &str) -> Result<Option<Listing>> {
        listing(&self.catalog.database, forge)
    }

    /// Records that the listing of `forge` ended early, and why. The error stays until the listing goes on.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_failed(&self, forge: &str, error: &str, now: Timestamp) -> Result<()> {
        let sql = "UPDATE forges SET failed_at = ?2, error = ?3 WHERE name = ?1";
        Ok(self.catalog.database.execute(sql, &values![forge, now, error]).map(|_| ())?)
    }

    /// Takes a page of `listing`, each repository with the name it gets here, and records where to go on: at
    /// `next`, or that the listing has ended. It writes all or nothing.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take_page(
        &self,
        listing: &mut Listing,
        page: &[(String, Listed)],
        next: Option<&str>,
        now: Timestamp,
    ) -> Result<Taken> {
        let finished_at = next.is_none().then_some(now);
        let taken = self.catalog.database.transaction(LISTING, |db| -> Result<Taken> {
            let taken = take(db, &listing.forge, ListingSource::Listing(listing.pass), page, now)?;
            db.execute(
                "UPDATE forges SET position = ?3, listed = listed + ?4, finished_at = ?5, failed_at = NULL, \
                error = NULL
                 WHERE name = ?1 AND pass = ?2",
                &values![&listing.forge, listing.pass, next, page.len(), finished_at],
            )?;
            Ok(taken)
        })?;
        listing.position = next.map(str::to_owned);
        listing.listed += page.len() as i64;
        listing.finished_at = finished_at;
        (listing.failed_at, listing.error) = (None, None);
        Ok(taken)
    }

    /// Notes that `listing` has named those of `forge_ids` that are known, whether they are wanted or not.
    ///
    /// # Errors
    /// If the database fails.
    pub fn mark_seen(&self, listing: &Listing, forge_ids: &[&str]) -> Result<()> {
        let sql = "UPDATE repositories SET seen_pass = ?3 WHERE forge = ?1 AND forge_id = ANY(?2) AND \
            seen_pass < ?3";
        let parameters = [Value::from(&listing.forge), Value::Texts(forge_ids.to_vec()), listing.pass.into()];
        Ok(self.catalog.database.transaction(LISTING, |db| db.execute(sql, &parameters)).map(|_| ())?)
    }

    /// Takes repositories of `forge` that were found outside its listing, as part of `listing`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take_more(&self, listing: &Listing, more: &[(String, Listed)], now: Timestamp) -> Result<Taken> {
        self.catalog.database.transaction(LISTING, |db| {
            take(db, &listing.forge, ListingSource::Listing(listing.pass), more, now)
        })
    }

    /// Records that a page could not be fetched.
    ///
    /// # Errors
    /// If the database fails.
    pub fn skip_page(&self, forge: &str, position: &str, error: &str, now: Timestamp) -> Result<()> {
        let sql = "INSERT INTO skipped_pages (forge, position, error, tries, first_at, last_at) VALUES (?1, \
            ?2, ?3, 1, ?4, ?4)
                   ON CONFLICT (forge, position) DO UPDATE SET error = excluded.error,
                   tries = skipped_pages.tries + 1,
                   last_at = excluded.last_at";
        Ok(self.catalog.database.execute(sql, &values![forge, position, error, now]).map(|_| ())?)
    }

    /// Returns the pages of `forge` that could not be fetched.
    ///
    /// # Errors
    /// If the database fails.
    pub fn skipped_pages(&self, forge: &str) -> Result<Vec<SkippedPage>> {
        let sql = "SELECT position, tries, error, last_at FROM skipped_pages WHERE forge = ?1 ORDER BY \
            first_at, position";
        let page = |row: &Row<'_>| {
            Ok(SkippedPage {
                position: row.get(0)?,
                tries: row.get(1)?,
                error: row.get(2)?,
                last_at: row.get(3)?,
            })
        };
        Ok(self.catalog.database.query(sql, &values![forge], page)?)
    }

    /// Forgets that a page was skipped, because it was fetched after all.
    ///
    /// # Errors
    /// If the database fails.
    pub fn forget_skipped(&self, forge: &str, position: &str) -> Result<()> {
        let sql = "DELETE FROM skipped_pages WHERE forge = ?1 AND position = ?2";
        Ok(self.catalog.database.execute(sql, &values![forge, position]).map(|_| ())?)
    }

    /// Returns at most `max` repositories that `listing` has not named and that are not known to be gone, by
    /// number from `after` on.
    ///
    /// # Errors
    /// If the database fails.
    pub fn unseen(&self, listing: &Listing, after: i64, max: usize) -> Result<Vec<Unseen>> {
        // Use the index of numbers, not that of forges: reading goes on from `after`.
        let sql = "SELECT id, name, forge_id, (SELECT private FROM metadata WHERE repository_id = id)
                   FROM repositories WHERE forge || '' = ?1 AND seen_pass < ?2 AND gone_at IS NULL AND id > ?3
                   ORDER BY id LIMIT ?4";
        Ok(self.catalog.database.query(sql, &values![&listing.forge, listing.pass, after, max], unseen)?)
    }

    /// Returns at most `max` repositories of `forge` that an event says were changed, by number from `after`
    /// on.
    ///
    /// # Errors
    /// If the database fails.
    pub fn questions(&self, forge: &str, after: i64, max: usize) -> Result<Vec<Unseen>> {
        let sql = "SELECT r.id, r.name, r.forge_id, (SELECT private FROM metadata WHERE repository_id = r.id)
                   FROM forge_questions q JOIN repositories r ON r.id = q.repository_id
                   WHERE q.repository_id > ?2 AND r.forge = ?1 ORDER BY q.repository_id LIMIT ?3";
        Ok(self.catalog.database.query(sql, &values![forge, after, max], unseen)?)
    }

    /// Deletes the questions about the repositories `ids`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn forget_questions(&self, ids: &[i64]) -> Result<()> {
        let sql = "DELETE FROM forge_questions WHERE repository_id = ANY(?1)";
        let ids = [Value::Integers(ids.to_vec())];
        Ok(self.catalog.database.transaction(LISTING, |db| db.execute(sql, &ids)).map(|_| ())?)
    }

    /// Records that a forge no longer has these repositories, and when to visit them again all the same.
    /// Their archives stay.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_gone(&self, ids: &[i64], now: Timestamp, next_due: Timestamp) -> Result<()> {
        let sql =
            "UPDATE repositories SET gone_at = ?2, next_due = GREATEST(next_due, ?3) WHERE id = ANY(?1)";
        let parameters = [Value::Integers(ids.to_vec()), now.into(), next_due.into()];
        Ok(self.catalog.database.transaction(LISTING, |db| db.execute(sql, &parameters)).map(|_| ())?)
    }

    /// Returns whether one of these repositories of `forge` is known to be gone.
    ///
    /// # Errors
    /// If the database fails.
    pub fn has_gone(&self, forge: &str, forge_ids: &[String]) -> Result<bool> {
        let sql = "SELECT 1 FROM repositories WHERE forge = ?1 AND forge_id = ANY(?2) AND gone_at IS NOT \
            NULL LIMIT 1";
        let ids = Value::Texts(forge_ids.iter().map(String::as_str).collect());
        Ok(self.catalog.database.query_one(sql, &[forge.into(), ids], |row| row.get::<i64>(0))?.is_some())
    }

    /// Returns the owner's description of repository `id`, if a forge gave one.
    ///
    /// # Errors
    /// If the database fails.
    pub fn description(&self, id: i64) -> Result<Option<String>> {
        let sql = "SELECT description FROM metadata WHERE repository_id = ?1";
        Ok(self.catalog.database.query_one(sql, &values![id], |row| row.get(0))?.flatten())
    }

    /// Returns how many repositories of `forge` are known, and how many of them are gone.
    ///
    /// # Errors
    /// If the database fails.
    pub fn counts(&self, forge: &str) -> Result<(i64, i64)> {
        let sql = "SELECT count(*), count(gone_at) FROM repositories WHERE forge = ?1";
        let counts =
            self.catalog.database.query_one(sql, &values![forge], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(counts.unwrap_or_default())
    }
}

fn listing(db: &Database, forge: &str) -> Result<Option<Listing>> {
    Ok(db.query_one(
        "SELECT name, pass, position, listed, started_at, finished_at, failed_at, error FROM forges WHERE \
        name = ?1",
        &values![forge],
        |row| {
            Ok(Listing {
                forge: row.get(0)?,
                pass: row.get(1)?,
                position: row.get(2)?,
                listed: row.get(3)?,
                started_at: row.get(4)?,
                finished_at: row.get(5)?,
                failed_at: row.get(6)?,
                error: row.get(7)?,
            })
        },
    )?)
}

fn unseen(row: &Row<'_>) -> weir_sql::Result<Unseen> {
    let private: Option<i64> = row.get(3)?;
    Ok(Unseen { id: row.get(0)?, name: row.get(1)?, forge_id: row.get(2)?, is_public: private == Some(0) })
}
