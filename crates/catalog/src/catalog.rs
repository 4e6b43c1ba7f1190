//! Repositories and their schedule.

use std::path::Path;

use weir_ground::Timestamp;
use weir_sql::{Database, values};

use crate::due::due;

use crate::repository::{COLUMNS, NewRepository, Repository, refuse_if_built_on, remove_what_belongs_to};
use crate::transactions::{LISTING, VISITS};
use crate::upsert::{free_path, remember_name};
use crate::{Error, Result, schema};

/// Returns the first text behind all that begin with `prefix`, if there is one.
fn after_all_with(prefix: &str) -> Option<String> {
    let mut text: Vec<char> = prefix.chars().collect();
    while let Some(last) = text.pop() {
        // Skip surrogates, which are no characters.
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            text.push(next);
            return Some(text.into_iter().collect());
        }
    }
    None
}

/// The catalog of a pool.
pub struct Catalog {
    pub(crate) database: Database,
    /// The machine whose events these are; empty if there is only one.
    pub(crate) machine: String,
}

impl Catalog {
    /// Opens the catalog at `path`, creating it or bringing it up to date.
    ///
    /// # Errors
    /// If it cannot be opened, or is newer than this program.
    pub fn open(path: &Path) -> Result<Catalog> {
        Catalog::over(Database::open(path)?)
    }

    /// Opens the catalog in the PostgreSQL database at `url`, `postgres://user@host/database`, with options
    /// as libpq names them.
    ///
    /// # Errors
    /// If it cannot be connected to, or is newer than this program.
    pub fn connect(url: &str) -> Result<Catalog> {
        Catalog::over(Database::connect(url)?)
    }

    fn over(database: Database) -> Result<Catalog> {
        schema::migrate(&database)?;
        Ok(Catalog { database, machine: String::new() })
    }

    /// Returns whether the catalog is asked over a network, which may take long or fail.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.database.is_postgres()
    }

    /// Records that the archives are in the store called `store`, unless a store is recorded already.
    ///
    /// # Errors
    /// If they are in another store.
    pub fn claim_store(&self, store: &str) -> Result<()> {
        // Most often the store is recorded already. So a user who may only read the catalog can open it.
        if self.store()?.as_deref() == Some(store) {
            return Ok(());
        }
        self.database.execute(
            "INSERT INTO properties (name, value) VALUES ('store', ?1) ON CONFLICT (name) DO NOTHING",
            &values![store],
        )?;
        let of = self.store()?;
        if of.as_deref() == Some(store) { Ok(()) } else { Err(Error::OtherStore(store.to_owned())) }
    }

    /// Adds repositories in one transaction. Those that exist with the same name and URL are left as they
    /// are. Returns how many are new.
    ///
    /// # Errors
    /// If a name is taken by another URL; then nothing is added.
    pub fn add(&self, list: &[NewRepository], now: Timestamp) -> Result<usize> {
        self.database.transaction(LISTING, |db| {
            let mut added = 0;
            for NewRepository { name, url, path } in list {
                let there: Option<String> =
                    db.query_one("SELECT url FROM repositories WHERE name = ?1", &values![name], |row| {
                        row.get(0)
                    })?;
                match there {
                    Some(there) if there == *url => {}
                    Some(there) => return Err(Error::NameTaken { name: name.clone(), url: there }),
                    None => {
                        // The repository that had this name before keeps its archive.
                        let path = free_path(db, path, name)?;
                        db.execute(
                            "INSERT INTO repositories (name, url, path, added_at) VALUES (?1, ?2, ?3, ?4)",
                            &values![name, url, path, now],
                        )?;
                        added += 1;
                    }
                }
            }
            Ok(added)
        })
    }

    /// Returns all repositories by name.
    ///
    /// # Errors
    /// If the database fails.
    pub fn list(&self) -> Result<Vec<Repository>> {
        Ok(self.database.query(
            &format!("SELECT {COLUMNS} FROM repositories ORDER BY name"),
            &[],
            Repository::from_row,
        )?)
    }

    /// Returns the repository with the number `id`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn get_by_id(&self, id: i64) -> Result<Option<Repository>> {
        let sql = format!("SELECT {COLUMNS} FROM repositories WHERE id = ?1");
        Ok(self.database.query_one(&sql, &values![id], Repository::from_row)?)
    }

    /// Returns the repositories whose name begins with `prefix`, by name.
    ///
    /// # Errors
    /// If the database fails.
    pub fn list_from(&self, prefix: &str) -> Result<Vec<Repository>> {
        let Some(end) = after_all_with(prefix) else {
            let mut list = self.list()?;
            list.retain(|r| r.name.starts_with(prefix));
            return Ok(list);
        };
        let sql = format!("SELECT {COLUMNS} FROM repositories WHERE name >= ?1 AND name < ?2 ORDER BY name");
        Ok(self.database.query(&sql, &values![prefix, end], Repository::from_row)?)
    }

    /// Returns the numbers of at most `max` repositories that are visited, by number, after `after`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn enabled_ids(&self, after: i64, max: usize) -> Result<Vec<i64>> {
        let sql = "SELECT id FROM repositories WHERE id > ?1 AND enabled = 1 ORDER BY id LIMIT ?2";
        Ok(self.database.query(sql, &values![after, max], |row| row.get(0))?)
    }

    /// Returns the repository called `name`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn get(&self, name: &str) -> Result<Option<Repository>> {
        Ok(self.database.query_one(
            &format!("SELECT {COLUMNS} FROM repositories WHERE name = ?1"),
            &values![name],
            Repository::from_row,
        )?)
    }

    /// Renames a repository. Its archive stays where it is, and rules about its old name still apply to it.
    ///
    /// # Errors
    /// If the new name is taken, or the forge of the repository decides its name.
    pub fn rename(&self, name: &str, new: &str) -> Result<()> {
        self.database.transaction(LISTING, |db| {
            let get = |name: &str| {
                db.query_one(
                    &format!("SELECT {COLUMNS} FROM repositories WHERE name = ?1"),
                    &values![name],
                    Repository::from_row,
                )
            };
            if let Some(other) = get(new)? {
                return Err(Error::NameTaken { name: new.to_owned(), url: other.url });
            }
            let Some(repository) = get(name)? else { return Ok(()) };
            if repository.forge.is_some() {
                return Err(Error::OfForge(name.to_owned()));
            }
            remember_name(db, repository.id, name)?;
            Ok(db
                .execute("UPDATE repositories SET name = ?2 WHERE id = ?1", &values![repository.id, new])
                .map(|_| ())?)
        })
    }

    /// Sets the upstream of the repository called `name` to `url`. It is due at `now`, and the failures of
    /// the old upstream are forgotten.
    ///
    /// # Errors
    /// If the forge of the repository decides its URL.
    pub fn set_url(&self, name: &str, url: &str, now: Timestamp) -> Result<()> {
        self.database.transaction(VISITS, |db| {
            let sql = "SELECT 1 FROM repositories WHERE name = ?1 AND forge IS NOT NULL";
            if db.query_one(sql, &values![name], |row| row.get::<i64>(0))?.is_some() {
                return Err(Error::OfForge(name.to_owned()));
            }
            let sql = concat!(
                "UPDATE repositories SET url = ?2, fingerprint = NULL, failures = 0, error_class = NULL, \
                error = NULL, ",
                due!("?3"),
                " WHERE name = ?1"
            );
            Ok(db.execute(sql, &values![name, url, now]).map(|_| ())?)
        })
    }

    /// Forgets the repository called `name`. Returns whether it existed.
    ///
    /// # Errors
    /// If other archives build on its archive.
    pub fn remove(&self, name: &str) -> Result<bool> {
        self.database.transaction(LISTING, |db| {
            if let Some(id) =
                db.query_one("SELECT id FROM repositories WHERE name = ?1", &values![name], |row| row.get(0))?
            {
                refuse_if_built_on(db, id)?;
            }
            // The next crawl reads the forge's pages again: the repository may match the filters again.
            db.execute(
                "DELETE FROM pages WHERE forge IN (SELECT forge FROM repositories WHERE name = ?1)",
                &values![name],
            )?;
            let removed: Vec<i64> =
                db.query("DELETE FROM repositories WHERE name = ?1 RETURNING id", &values![name], |row| {
                    row.get(0)
                })?;
            for id in &removed {
                remove_what_belongs_to(db, *id)?;
            }
            Ok(!removed.is_empty())
        })
    }

    /// Returns the store that the archives are in, once it is recorded.
    ///
    /// # Errors
    /// If the database fails.
    pub fn store(&self) -> Result<Option<String>> {
        Ok(self
            .database
            .query_one("SELECT value FROM properties WHERE name = 'store'", &[], |row| row.get(0))?)
    }
}
