//! Dumps that others have made. Their repositories, and how far each dump was read, are written in one
//! transaction.

use weir_ground::Timestamp;
use weir_sql::{Database, values};

use crate::transactions::LISTING;
use crate::upsert::{ListingSource, Taken, take};
use crate::{Listings, Result};
use weir_listed::Listed;

/// How far a dump was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportPosition {
    /// Lines that were taken or refused.
    pub lines: u64,
    /// Whether the whole dump was read.
    pub is_finished: bool,
}

fn position_of(db: &Database, source: &str) -> Result<ImportPosition> {
    let sql = "SELECT lines, finished_at IS NOT NULL FROM imports WHERE source = ?1";
    let position = db.query_one(sql, &values![source], |row| {
        Ok(ImportPosition { lines: row.get::<i64>(0)?.unsigned_abs(), is_finished: row.get(1)? })
    })?;
    Ok(position.unwrap_or_default())
}

impl Listings<'_> {
    /// Returns how far the dump called `source` was read.
    ///
    /// # Errors
    /// If the database fails.
    pub fn import_position(&self, source: &str) -> Result<ImportPosition> {
        position_of(&self.catalog.database, source)
    }

    /// Takes `rows` of the dump `source`, each with the name it gets here, as repositories of `forge`, and
    /// records how far the dump was read: all or nothing. A dump is of the past: it does not change what a
    /// listing of the forge has said.
    ///
    /// Returns `None`, and changes nothing, if another import has already read the dump up to `position`.
    /// It can be a concurrent import, or a killed one whose last transaction PostgreSQL committed late.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take_import(
        &self,
        forge: &str,
        source: &str,
        position: ImportPosition,
        rows: &[(String, Listed)],
        now: Timestamp,
    ) -> Result<Option<Taken>> {
        let finished_at = position.is_finished.then_some(now);
        self.catalog.database.transaction(LISTING, |db| {
            let kept = position_of(db, source)?;
            if kept.lines >= position.lines && kept.is_finished >= position.is_finished {
                return Ok(None);
            }
            let taken = take(db, forge, ListingSource::Dump, rows, now)?;
            db.execute(
                "INSERT INTO imports (source, lines, started_at, finished_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (source) DO UPDATE SET lines = excluded.lines, finished_at =
                 excluded.finished_at",
                &values![source, position.lines, now, finished_at],
            )?;
            Ok(Some(taken))
        })
    }

    /// Forgets how far `source` was read: the next import starts from the beginning.
    ///
    /// # Errors
    /// If the database fails.
    pub fn forget_import(&self, source: &str) -> Result<()> {
        Ok(self
            .catalog
            .database
            .execute("DELETE FROM imports WHERE source = ?1", &values![source])
            .map(|_| ())?)
    }
}
