//! Listings of forges: what a page brings, and where each listing stands, in one transaction.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use serde::Serialize;

use crate::listed::{AccountKind, Listed};
use crate::sqlite::{Catalog, Result};

/// How far a listing of a forge has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The forge, by its name in the configuration.
    pub forge: String,
    /// Which listing of it this is.
    pub pass: i64,
    /// Where to go on; `None` at the start.
    pub position: Option<String>,
    /// Repositories listed so far.
    pub listed: i64,
    /// When it began, in seconds since 1970.
    pub started_at: i64,
    /// When it ended.
    pub finished_at: Option<i64>,
}

/// What came of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// Repositories that are new.
    pub added: usize,
    /// Those that have another name or owner now.
    pub renamed: usize,
    /// Those that are there again after they were gone.
    pub back: usize,
    /// Those whose content is said to have changed: they are due at once.
    pub hinted: usize,
    /// Those that are as they were.
    pub known: usize,
}

impl std::ops::AddAssign for Taken {
    fn add_assign(&mut self, other: Taken) {
        self.added += other.added;
        self.renamed += other.renamed;
        self.back += other.back;
        self.hinted += other.hinted;
        self.known += other.known;
    }
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
}

/// Where an archive of that name goes: no part of the path starts with a dot.
pub(crate) fn path_for(name: &str) -> String {
    let parts: Vec<String> = name.split('/').map(|part| part.strip_prefix('.').map_or(part.to_owned(), |p| format!("%2E{p}"))).collect();
    format!("{}.tar", parts.join("/"))
}

impl Catalog {
    /// The listing of `forge` that is to go on: the last one if it did not end and lists the same `scope`, else a new one.
    ///
    /// # Errors
    /// Of the database.
    pub fn begin_listing(&mut self, forge: &str, scope: &str, now: i64) -> Result<Listing> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Positions mean something else there.
        transaction.execute(
            "DELETE FROM skipped_pages WHERE forge = ?1 AND EXISTS (SELECT 1 FROM forges WHERE name = ?1 AND scope <> ?2)",
            [forge, scope],
        )?;
        transaction.execute(
            "INSERT INTO forges (name, scope, pass, listed, started_at) VALUES (?1, ?2, 1, 0, ?3) ON CONFLICT (name) DO UPDATE SET
             scope = ?2, pass = pass + 1, position = NULL, listed = 0, started_at = ?3, finished_at = NULL
             WHERE forges.finished_at IS NOT NULL OR forges.scope <> ?2",
            params![forge, scope, now],
        )?;
        transaction.commit()?;
        Ok(self.listing(forge)?.expect("made above"))
    }

    /// How far the last listing of `forge` came.
    ///
    /// # Errors
    /// Of the database.
    pub fn listing(&self, forge: &str) -> Result<Option<Listing>> {
        let mut statement =
            self.connection.prepare_cached("SELECT name, pass, position, listed, started_at, finished_at FROM forges WHERE name = ?1")?;
        let listing = statement.query_row([forge], |row| {
            Ok(Listing {
                forge: row.get(0)?,
                pass: row.get(1)?,
                position: row.get(2)?,
                listed: row.get(3)?,
                started_at: row.get(4)?,
                finished_at: row.get(5)?,
            })
        });
        Ok(listing.optional()?)
    }

    /// Takes a page of `listing`, each repository with the name it gets here, and keeps where to go on: `next`, or that the
    /// listing has ended. All of it or nothing.
    ///
    /// # Errors
    /// Of the database.
    pub fn take_page(&mut self, listing: &mut Listing, page: &[(String, Listed)], next: Option<&str>, now: i64) -> Result<Taken> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut taken = Taken::default();
        for (name, listed) in page {
            take(&transaction, &listing.forge, listing.pass, name, listed, now, &mut taken)?;
        }
        let finished_at = next.is_none().then_some(now);
        transaction
            .prepare_cached("UPDATE forges SET position = ?3, listed = listed + ?4, finished_at = ?5 WHERE name = ?1 AND pass = ?2")?
            .execute(params![listing.forge, listing.pass, next, page.len() as i64, finished_at])?;
        transaction.commit()?;
        listing.position = next.map(str::to_owned);
        listing.listed += page.len() as i64;
        listing.finished_at = finished_at;
        Ok(taken)
    }

    /// Notes that `listing` has named these, wanted or not, as far as they are known.
    ///
    /// # Errors
    /// Of the database.
    pub fn mark_seen(&mut self, listing: &Listing, forge_ids: &[&str]) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for forge_id in forge_ids {
            transaction
                .prepare_cached("UPDATE repositories SET seen_pass = ?3 WHERE forge = ?1 AND forge_id = ?2 AND seen_pass < ?3")?
                .execute(params![listing.forge, forge_id, listing.pass])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Takes repositories of `forge` that were found outside its listing, as part of `listing`.
    ///
    /// # Errors
    /// Of the database.
    pub fn take_more(&mut self, listing: &Listing, more: &[(String, Listed)], now: i64) -> Result<Taken> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut taken = Taken::default();
        for (name, listed) in more {
            take(&transaction, &listing.forge, listing.pass, name, listed, now, &mut taken)?;
        }
        transaction.commit()?;
        Ok(taken)
    }

    /// Writes down that a page could not be had.
    ///
    /// # Errors
    /// Of the database.
    pub fn skip_page(&mut self, forge: &str, position: &str, error: &str, now: i64) -> Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO skipped_pages (forge, position, error, tries, first_at, last_at) VALUES (?1, ?2, ?3, 1, ?4, ?4)
                 ON CONFLICT (forge, position) DO UPDATE SET error = ?3, tries = tries + 1, last_at = ?4",
            )?
            .execute(params![forge, position, error, now])?;
        Ok(())
    }

    /// Pages of `forge` that could not be had: positions, and how often they were tried.
    ///
    /// # Errors
    /// Of the database.
    pub fn skipped_pages(&self, forge: &str) -> Result<Vec<(String, i64)>> {
        let mut statement =
            self.connection.prepare_cached("SELECT position, tries FROM skipped_pages WHERE forge = ?1 ORDER BY first_at")?;
        let rows = statement.query_map([forge], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Forgets that a page was skipped: it was had after all.
    ///
    /// # Errors
    /// Of the database.
    pub fn forget_skipped(&mut self, forge: &str, position: &str) -> Result<()> {
        self.connection.execute("DELETE FROM skipped_pages WHERE forge = ?1 AND position = ?2", [forge, position])?;
        Ok(())
    }

    /// At most `max` repositories that `listing` has not named and that are not known to be gone, by number from `after` on.
    ///
    /// # Errors
    /// Of the database.
    pub fn unseen(&self, listing: &Listing, after: i64, max: usize) -> Result<Vec<Unseen>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, name, forge_id FROM repositories WHERE +forge = ?1 AND seen_pass < ?2 AND gone_at IS NULL AND id > ?3
             ORDER BY id LIMIT ?4",
        )?;
        let rows = statement.query_map(params![listing.forge, listing.pass, after, max as i64], |row| {
            Ok(Unseen { id: row.get(0)?, name: row.get(1)?, forge_id: row.get(2)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Writes down that a forge has these no more, and when to look at them again all the same. Their archives stay.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_gone(&mut self, ids: &[i64], now: i64, next_due: i64) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for id in ids {
            transaction
                .prepare_cached("UPDATE repositories SET gone_at = ?2, next_due = max(next_due, ?3) WHERE id = ?1")?
                .execute(params![id, now, next_due])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// What the owner of repository `id` says it is, if a forge told.
    ///
    /// # Errors
    /// Of the database.
    pub fn description(&self, id: i64) -> Result<Option<String>> {
        let mut statement = self.connection.prepare_cached("SELECT description FROM metadata WHERE repository_id = ?1")?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?.flatten())
    }

    /// How many repositories of `forge` are known, and how many of them are gone.
    ///
    /// # Errors
    /// Of the database.
    pub fn forge_counts(&self, forge: &str) -> Result<(i64, i64)> {
        let sql = "SELECT count(*), count(gone_at) FROM repositories WHERE forge = ?1";
        Ok(self.connection.query_row(sql, [forge], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }
}

/// What is known of a repository that is listed.
struct Known {
    id: i64,
    name: String,
    url: String,
    is_gone: bool,
    pushed_at: Option<String>,
}

pub(crate) fn take(tx: &Transaction<'_>, forge: &str, pass: i64, name: &str, listed: &Listed, now: i64, taken: &mut Taken) -> Result<()> {
    let known = tx
        .prepare_cached(
            "SELECT r.id, r.name, r.url, r.gone_at IS NOT NULL, m.pushed_at FROM repositories r LEFT JOIN metadata m
             ON m.repository_id = r.id WHERE r.forge = ?1 AND r.forge_id = ?2",
        )?
        .query_row([forge, &listed.forge_id], |row| {
            Ok(Known { id: row.get(0)?, name: row.get(1)?, url: row.get(2)?, is_gone: row.get(3)?, pushed_at: row.get(4)? })
        })
        .optional()?;
    let id = match known {
        None => {
            taken.added += 1;
            add(tx, forge, pass, name, listed, now)?
        }
        Some(known) => {
            // A name that was given because another had it is kept until that other gives it up.
            let stays = known.name == name || known.name == set_aside(name, &listed.forge_id);
            let name = if known.name == name { name.to_owned() } else { free_name(tx, forge, name, listed)? };
            let is_pushed = known.pushed_at.is_some() && listed.pushed_at.is_some() && known.pushed_at != listed.pushed_at;
            let due_now = known.is_gone || is_pushed;
            tx.prepare_cached(
                "UPDATE repositories SET name = ?2, url = ?3, seen_pass = ?4, gone_at = NULL,
                 next_due = CASE WHEN ?5 THEN min(next_due, ?6) ELSE next_due END,
                 hinted_at = CASE WHEN ?5 THEN ?6 ELSE hinted_at END WHERE id = ?1",
            )?
            .execute(params![known.id, name, listed.clone_url, pass, due_now, now])?;
            match () {
                () if known.is_gone => taken.back += 1,
                () if !stays || known.url != listed.clone_url => taken.renamed += 1,
                () if is_pushed => taken.hinted += 1,
                () => taken.known += 1,
            }
            known.id
        }
    };
    write_metadata(tx, forge, id, listed, now)
}

fn add(tx: &Transaction<'_>, forge: &str, pass: i64, name: &str, listed: &Listed, now: i64) -> Result<i64> {
    // What somebody added by its URL before.
    let adopted = tx
        .prepare_cached(
            "UPDATE repositories SET forge = ?1, forge_id = ?2, seen_pass = ?3 WHERE forge IS NULL AND url = ?4 AND name = ?5 RETURNING id",
        )?
        .query_row(params![forge, listed.forge_id, pass, listed.clone_url, name], |row| row.get(0))
        .optional()?;
    if let Some(id) = adopted {
        return Ok(id);
    }
    let name = free_name(tx, forge, name, listed)?;
    let path = path_for(&name);
    let is_taken: bool =
        tx.prepare_cached("SELECT EXISTS (SELECT 1 FROM repositories WHERE path = ?1)")?.query_row([&path], |row| row.get(0))?;
    // The archive of what had that name before stays where it is.
    let path = if is_taken { path_for(&set_aside(&name, &listed.forge_id)) } else { path };
    let id = tx
        .prepare_cached(
            "INSERT INTO repositories (name, url, path, added_at, forge, forge_id, seen_pass) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id",
        )?
        .query_row(params![name, listed.clone_url, path, now, forge, listed.forge_id, pass], |row| row.get(0))?;
    Ok(id)
}

/// The name of a repository whose own is another's.
fn set_aside(name: &str, forge_id: &str) -> String {
    format!("{name}~{}", forge_id.replace('/', "~"))
}

/// `name`, taken from whichever repository of the same forge had it, as that must have another one by now; or one beside it, if
/// it belongs to something that this forge does not list.
fn free_name(tx: &Transaction<'_>, forge: &str, name: &str, listed: &Listed) -> Result<String> {
    let holder: Option<(i64, Option<String>, Option<String>)> = tx
        .prepare_cached("SELECT id, forge, forge_id FROM repositories WHERE name = ?1")?
        .query_row([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    match holder {
        None => Ok(name.to_owned()),
        Some((id, Some(of), Some(forge_id))) if of == forge => {
            tx.prepare_cached("UPDATE repositories SET name = ?2 WHERE id = ?1")?.execute(params![id, set_aside(name, &forge_id)])?;
            Ok(name.to_owned())
        }
        Some(_) => Ok(set_aside(name, &listed.forge_id)),
    }
}

pub(crate) fn write_metadata(tx: &Transaction<'_>, forge: &str, id: i64, l: &Listed, now: i64) -> Result<()> {
    let owner: Option<i64> = match &l.owner {
        None => None,
        Some(owner) => {
            let kind = match owner.kind {
                AccountKind::User => "user",
                AccountKind::Organization => "organization",
            };
            let id = tx
                .prepare_cached(
                    "INSERT INTO accounts (forge, forge_id, login, kind) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (forge, forge_id) DO UPDATE SET login = ?3 RETURNING id",
                )?
                .query_row(params![forge, owner.forge_id, owner.login, kind], |row| row.get(0))?;
            Some(id)
        }
    };
    // What a later listing does not say stays as it was known.
    tx.prepare_cached(
        "INSERT INTO metadata VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
         ON CONFLICT (repository_id) DO UPDATE SET listed_at = ?2, full_name = ?3, owner_id = coalesce(?4, owner_id),
         description = ?5, homepage = ?6, language = coalesce(?7, language), default_branch = coalesce(?8, default_branch),
         fork = coalesce(?9, fork), parent_id = coalesce(?10, parent_id), archived = coalesce(?11, archived),
         private = coalesce(?12, private), kibibytes = coalesce(?13, kibibytes), stars = coalesce(?14, stars),
         forks = coalesce(?15, forks), open_issues = coalesce(?16, open_issues), created_at = coalesce(?17, created_at),
         updated_at = coalesce(?18, updated_at), pushed_at = coalesce(?19, pushed_at)",
    )?
    .execute(params![
        id,
        now,
        l.full_name,
        owner,
        l.description,
        l.homepage,
        l.language,
        l.default_branch,
        l.fork,
        l.parent_id,
        l.archived,
        l.private,
        l.kibibytes.map(|n| n as i64),
        l.stars.map(|n| n as i64),
        l.forks.map(|n| n as i64),
        l.open_issues.map(|n| n as i64),
        l.created_at,
        l.updated_at,
        l.pushed_at,
    ])?;
    if !l.languages.is_empty() {
        tx.prepare_cached("DELETE FROM languages WHERE repository_id = ?1")?.execute([id])?;
        for (language, bytes) in &l.languages {
            tx.prepare_cached("INSERT OR REPLACE INTO languages VALUES (?1, ?2, ?3)")?.execute(params![id, language, *bytes as i64])?;
        }
    }
    if !l.topics.is_empty() {
        tx.prepare_cached("DELETE FROM topics WHERE repository_id = ?1")?.execute([id])?;
        for topic in &l.topics {
            tx.prepare_cached("INSERT OR REPLACE INTO topics VALUES (?1, ?2)")?.execute(params![id, topic])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> (tempfile::TempDir, Catalog) {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        (dir, catalog)
    }

    fn listed(id: u32, name: &str) -> (String, Listed) {
        let listed = Listed {
            forge_id: id.to_string(),
            full_name: name.to_owned(),
            clone_url: format!("https://h/{name}.git"),
            pushed_at: Some("1".into()),
            ..Listed::default()
        };
        (format!("h/{name}"), listed)
    }

    fn pass(c: &mut Catalog, page: &[(String, Listed)], now: i64) -> (Listing, Taken) {
        let mut listing = c.begin_listing("f", "all", now).unwrap();
        let taken = c.take_page(&mut listing, page, None, now).unwrap();
        (listing, taken)
    }

    #[test]
    fn renames_keep_the_archive_and_names_move_on() {
        let (_dir, mut c) = catalog();
        let (_, taken) = pass(&mut c, &[listed(1, "o/a"), listed(2, "o/.github")], 10);
        assert_eq!(taken, Taken { added: 2, ..Taken::default() });
        assert_eq!(c.get("h/o/.github").unwrap().unwrap().path, "h/o/%2Egithub.tar");
        // 1 is called b now, and 3 has its old name; 3 is told of first.
        let (_, taken) = pass(&mut c, &[listed(3, "o/a"), listed(1, "o/b"), listed(2, "o/.github")], 20);
        assert_eq!(taken, Taken { added: 1, renamed: 1, known: 1, ..Taken::default() });
        let (a, b) = (c.get("h/o/a").unwrap().unwrap(), c.get("h/o/b").unwrap().unwrap());
        assert_eq!((a.path.as_str(), a.url.as_str()), ("h/o/a~3.tar", "https://h/o/a.git"));
        assert_eq!((b.path.as_str(), b.url.as_str()), ("h/o/a.tar", "https://h/o/b.git"));
        // Two that swap their names.
        let (_, taken) = pass(&mut c, &[listed(3, "o/b"), listed(1, "o/a"), listed(2, "o/.github")], 30);
        assert_eq!(taken.renamed, 2);
        assert_eq!((c.get("h/o/a").unwrap().unwrap().id, c.get("h/o/b").unwrap().unwrap().id), (b.id, a.id));
    }

    #[test]
    fn names_of_others_are_not_taken() {
        let (_dir, mut c) = catalog();
        let entry = |name: &str, url: &str| (name.to_owned(), url.to_owned(), format!("{name}.tar"));
        c.add(&[entry("h/o/a", "git://elsewhere/a"), entry("h/o/b", "https://h/o/b.git")], 1).unwrap();
        pass(&mut c, &[listed(1, "o/a"), listed(2, "o/b")], 10);
        assert_eq!(c.get("h/o/a").unwrap().unwrap().url, "git://elsewhere/a");
        assert_eq!(c.get("h/o/a~1").unwrap().unwrap().url, "https://h/o/a.git");
        assert_eq!(c.list().unwrap().len(), 3, "what was added by its URL is the same one");
        let (_, taken) = pass(&mut c, &[listed(1, "o/a"), listed(2, "o/b")], 20);
        assert_eq!(taken, Taken { known: 2, ..Taken::default() }, "and it stays so");
    }

    #[test]
    fn a_listing_goes_on_where_it_was() {
        let (_dir, mut c) = catalog();
        let mut listing = c.begin_listing("f", "all", 10).unwrap();
        c.take_page(&mut listing, &[listed(1, "o/a")], Some("7"), 11).unwrap();
        let again = c.begin_listing("f", "all", 20).unwrap();
        assert_eq!((again.pass, again.position.as_deref(), again.listed, again.started_at), (1, Some("7"), 1, 10));
        assert_eq!(c.begin_listing("f", "owners", 30).unwrap().position, None, "another scope begins anew");
        let mut listing = c.begin_listing("f", "owners", 30).unwrap();
        c.take_page(&mut listing, &[], None, 31).unwrap();
        assert_eq!(c.begin_listing("f", "owners", 40).unwrap().pass, 3);
        c.skip_page("f", "7", "500", 1).unwrap();
        c.skip_page("f", "7", "502", 2).unwrap();
        assert_eq!(c.skipped_pages("f").unwrap(), [("7".to_owned(), 2)]);
        c.forget_skipped("f", "7").unwrap();
        assert!(c.skipped_pages("f").unwrap().is_empty());
    }

    #[test]
    fn what_is_gone_comes_back_and_what_was_pushed_is_due() {
        let (_dir, mut c) = catalog();
        pass(&mut c, &[listed(1, "o/a"), listed(2, "o/b")], 10);
        let (listing, _) = pass(&mut c, &[listed(2, "o/b")], 20);
        let unseen = c.unseen(&listing, 0, 10).unwrap();
        assert_eq!(unseen.iter().map(|u| u.forge_id.as_str()).collect::<Vec<_>>(), ["1"]);
        c.set_gone(&[unseen[0].id], 20, 1000).unwrap();
        assert_eq!((c.get("h/o/a").unwrap().unwrap().next_due, c.forge_counts("f").unwrap()), (1000, (2, 1)));
        assert!(c.unseen(&listing, 0, 10).unwrap().is_empty());
        let mut pushed = listed(2, "o/b");
        pushed.1.pushed_at = Some("2".into());
        let (_, taken) = pass(&mut c, &[listed(1, "o/a"), pushed], 30);
        assert_eq!(taken, Taken { back: 1, hinted: 1, ..Taken::default() });
        assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, 30);
    }

    #[test]
    fn a_push_during_a_visit_is_not_forgotten() {
        let (_dir, mut c) = catalog();
        pass(&mut c, &[listed(1, "o/a")], 10);
        let id = c.get("h/o/a").unwrap().unwrap().id;
        let mut pushed = listed(1, "o/a");
        pushed.1.pushed_at = Some("2".into());
        pass(&mut c, &[pushed], 50);
        let visit = |began_at| crate::Visit {
            id,
            began_at,
            at: 100,
            next_due: 9000,
            fingerprint: None,
            changes: 0.0,
            watched_s: 0.0,
            outcome: crate::Outcome::Unchanged,
        };
        c.record(&[visit(40)]).unwrap();
        assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, 50, "it may have come too late to be seen");
        c.record(&[visit(60)]).unwrap();
        assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, 9000);
    }

    #[test]
    fn what_was_skipped_belongs_to_its_scope_and_what_is_not_wanted_is_seen() {
        let (_dir, mut c) = catalog();
        pass(&mut c, &[listed(1, "o/a"), listed(2, "o/b")], 10);
        let mut listing = c.begin_listing("f", "all", 20).unwrap();
        c.mark_seen(&listing, &["1", "77"]).unwrap();
        c.take_page(&mut listing, &[], None, 20).unwrap();
        assert_eq!(c.unseen(&listing, 0, 10).unwrap().iter().map(|u| u.forge_id.as_str()).collect::<Vec<_>>(), ["2"]);
        c.skip_page("f", "7", "500", 1).unwrap();
        c.begin_listing("f", "all", 30).unwrap();
        assert_eq!(c.skipped_pages("f").unwrap().len(), 1);
        c.begin_listing("f", "owners", 40).unwrap();
        assert!(c.skipped_pages("f").unwrap().is_empty());
    }
}
