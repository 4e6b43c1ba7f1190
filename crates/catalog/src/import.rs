//! What dumps of others say, and how far each dump was read, in one transaction.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use crate::listed::Listed;
use crate::listing::{Taken, path_for, take, write_metadata};
use crate::sqlite::{Catalog, Result};

/// How far a dump was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportPosition {
    /// Lines of it that were taken or refused.
    pub lines: u64,
    /// Whether they are all.
    pub is_finished: bool,
}

impl Catalog {
    /// How far the dump called `source` was read.
    ///
    /// # Errors
    /// Of the database.
    pub fn import_position(&self, source: &str) -> Result<ImportPosition> {
        let mut statement = self.connection.prepare_cached("SELECT lines, finished_at IS NOT NULL FROM imports WHERE source = ?1")?;
        let position = statement
            .query_row([source], |row| Ok(ImportPosition { lines: row.get::<_, i64>(0)?.unsigned_abs(), is_finished: row.get(1)? }))
            .optional()?;
        Ok(position.unwrap_or_default())
    }

    /// Takes `rows` of the dump `source`, each with the name it gets here, as repositories of `forge`, and keeps how far it was
    /// read: all or nothing. A dump is of the past: what a listing of the forge itself has told stays as that told it.
    ///
    /// # Errors
    /// Of the database.
    pub fn take_import(
        &mut self,
        forge: &str,
        source: &str,
        position: ImportPosition,
        rows: &[(String, Listed)],
        now: i64,
    ) -> Result<Taken> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut taken = Taken::default();
        for (name, listed) in rows {
            take_row(&transaction, forge, name, listed, now, &mut taken)?;
        }
        let finished_at = position.is_finished.then_some(now);
        transaction
            .prepare_cached(
                "INSERT INTO imports (source, lines, started_at, finished_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (source) DO UPDATE SET lines = ?2, finished_at = ?4",
            )?
            .execute(params![source, position.lines as i64, now, finished_at])?;
        transaction.commit()?;
        Ok(taken)
    }

    /// Forgets how far `source` was read: the next import begins anew.
    ///
    /// # Errors
    /// Of the database.
    pub fn forget_import(&mut self, source: &str) -> Result<()> {
        self.connection.execute("DELETE FROM imports WHERE source = ?1", [source])?;
        Ok(())
    }
}

/// A dump that knows no ids of the forge gives none.
fn take_row(tx: &Transaction<'_>, forge: &str, name: &str, listed: &Listed, now: i64, taken: &mut Taken) -> Result<()> {
    if listed.forge_id.is_empty() {
        let is_known: bool =
            tx.prepare_cached("SELECT EXISTS (SELECT 1 FROM repositories WHERE name = ?1)")?.query_row([name], |row| row.get(0))?;
        let path = path_for(name);
        let id: Option<i64> = match is_known {
            true => None,
            // What had that name before has another one now, and keeps its archive.
            false => tx
                .prepare_cached(
                    "INSERT INTO repositories (name, url, path, added_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (path) DO NOTHING
                     RETURNING id",
                )?
                .query_row(params![name, listed.clone_url, path, now], |row| row.get(0))
                .optional()?,
        };
        let Some(id) = id else {
            taken.known += 1;
            return Ok(());
        };
        taken.added += 1;
        return write_metadata(tx, forge, id, listed, now);
    }
    let was_listed: Option<bool> = tx
        .prepare_cached("SELECT seen_pass > 0 OR gone_at IS NOT NULL FROM repositories WHERE forge = ?1 AND forge_id = ?2")?
        .query_row([forge, &listed.forge_id], |row| row.get(0))
        .optional()?;
    // Nor does a repository of the past take the name of one that is there now.
    let is_taken: bool = tx
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM repositories WHERE name = ?1 AND forge = ?2 AND forge_id <> ?3
             AND (seen_pass > 0 OR gone_at IS NOT NULL))",
        )?
        .query_row([name, forge, &listed.forge_id], |row| row.get(0))?;
    if was_listed == Some(true) || is_taken {
        taken.known += 1;
        return Ok(());
    }
    take(tx, forge, 0, name, listed, now, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, name: &str) -> (String, Listed) {
        let clone_url = format!("https://h/{name}.git");
        (format!("h/{name}"), Listed { forge_id: id.to_owned(), full_name: name.to_owned(), clone_url, ..Listed::default() })
    }

    #[test]
    fn a_dump_adds_and_a_listing_knows_better() {
        let dir = tempfile::tempdir().unwrap();
        let mut c = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let at = |lines, is_finished| ImportPosition { lines, is_finished };
        assert_eq!(c.import_position("d").unwrap(), at(0, false));
        // Without ids, then with: the same ones.
        assert_eq!(c.take_import("h", "d", at(2, false), &[row("", "o/a"), row("", "o/b"), row("", "o/a")], 5).unwrap().added, 2);
        assert_eq!(c.take_import("h", "d", at(5, true), &[row("1", "o/a"), row("3", "o/c")], 6).unwrap().added, 2);
        assert_eq!((c.import_position("d").unwrap(), c.list().unwrap().len()), (at(5, true), 3), "o/a was adopted");
        // A later dump renames, a listing renames, and then the dump says nothing new.
        assert_eq!(c.take_import("h", "e", at(1, true), &[row("3", "o/d")], 7).unwrap().renamed, 1);
        let mut listing = c.begin_listing("h", "all", 8).unwrap();
        let taken = c.take_page(&mut listing, &[row("3", "o/e"), row("2", "o/b")], None, 8).unwrap();
        assert_eq!((taken.renamed, taken.added), (1, 1));
        assert_eq!(c.take_import("h", "f", at(1, true), &[row("3", "o/d")], 9).unwrap().known, 1);
        assert_eq!(c.take_import("h", "f", at(2, true), &[row("99", "o/e")], 9).unwrap().known, 1, "one that had this name before");
        let e = c.get("h/o/e").unwrap().unwrap();
        assert_eq!((e.path.as_str(), c.list().unwrap().len()), ("h/o/c.tar", 3));
        // What the forge has no more is not brought back by what is older.
        let unseen = c.unseen(&listing, 0, 10).unwrap();
        assert_eq!(unseen.len(), 1);
        c.set_gone(&[unseen[0].id], 9, 9).unwrap();
        assert_eq!(c.take_import("h", "g", at(1, true), &[row("1", "o/a")], 10).unwrap().known, 1);
        c.forget_import("d").unwrap();
        assert_eq!(c.import_position("d").unwrap(), at(0, false));
    }
}
