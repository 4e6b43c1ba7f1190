//! Former names and privacy of repositories, which access rules depend on.

use std::collections::HashMap;

use weir_ground::Timestamp;
use weir_sql::{Value, values};

use crate::repository::NewRepository;
use crate::transactions::LISTING;
use crate::upsert::remember_name;
use crate::{Catalog, Error, Result};

/// The facts besides its name that decide who may read a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Names that it had before. For a copy, also the names that the original has or had.
    pub former_names: Vec<String>,
    /// Whether its forge shows it only to some users.
    pub is_private: bool,
}

impl Catalog {
    /// Returns what decides who may read repository `id`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn exposure(&self, id: i64) -> Result<Exposure> {
        let sql = "SELECT name FROM former_names WHERE repository_id = ?1";
        let former_names = self.database.query(sql, &values![id], |row| row.get(0))?;
        let sql = "SELECT private FROM metadata WHERE repository_id = ?1";
        let private: Option<Option<i64>> = self.database.query_one(sql, &values![id], |row| row.get(0))?;
        Ok(Exposure { former_names, is_private: private.flatten() == Some(1) })
    }

    /// Returns what decides who may read the repositories `ids`, by number.
    ///
    /// # Errors
    /// If the database fails.
    pub fn exposures(&self, ids: &[i64]) -> Result<HashMap<i64, Exposure>> {
        let mut all: HashMap<i64, Exposure> = HashMap::new();
        let parameters = [Value::Integers(ids.to_vec())];
        let sql = "SELECT repository_id, name FROM former_names WHERE repository_id = ANY(?1)";
        let names = self.database.query(sql, &parameters, |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (id, name) in names {
            all.entry(id).or_default().former_names.push(name);
        }
        let sql = "SELECT repository_id FROM metadata WHERE repository_id = ANY(?1) AND private = 1";
        for id in self.database.query(sql, &parameters, |row| row.get(0))? {
            all.entry(id).or_default().is_private = true;
        }
        Ok(all)
    }

    /// Returns the names that repositories had before and that none has now, by number.
    ///
    /// # Errors
    /// If the database fails.
    pub fn former_names(&self) -> Result<HashMap<i64, Vec<String>>> {
        let sql = "SELECT repository_id, name FROM former_names f
                   WHERE NOT EXISTS (SELECT 1 FROM repositories r WHERE r.name = f.name)
                   ORDER BY repository_id, name";
        let rows = self.database.query(sql, &[], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut names: HashMap<i64, Vec<String>> = HashMap::new();
        rows.into_iter().for_each(|(id, name)| names.entry(id).or_default().push(name));
        Ok(names)
    }

    /// Adds `copy`, a copy of repository `of`. Clients that may not read the original may not read the copy
    /// either.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn add_copy(&self, copy: &NewRepository, of: i64, now: Timestamp) -> Result<()> {
        let NewRepository { name, url, path } = copy;
        self.database.transaction(LISTING, |db| {
            let sql = "INSERT INTO repositories (name, url, path, added_at) VALUES (?1, ?2, ?3, ?4) ON \
                CONFLICT DO NOTHING RETURNING id";
            let Some(id) = db.query_one(sql, &values![name, url, path, now], |row| row.get::<i64>(0))? else {
                return Err(Error::NameTaken { name: name.clone(), url: url.clone() });
            };
            let sql = "SELECT name FROM former_names WHERE repository_id = ?1 UNION SELECT name FROM \
                repositories WHERE id = ?1";
            let names: Vec<String> = db.query(sql, &values![of], |row| row.get(0))?;
            for name in names {
                remember_name(db, id, &name)?;
            }
            let sql = "INSERT INTO metadata (repository_id, listed_at, full_name, private)
                       SELECT ?1, listed_at, full_name, private FROM metadata WHERE repository_id = ?2 AND
                       private = 1
                       ON CONFLICT DO NOTHING";
            Ok(db.execute(sql, &values![id, of]).map(|_| ())?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listed;

    #[test]
    fn former_names_and_privacy_go_along() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let listed = |id: &str, name: &str, private: bool| {
            let listed = Listed {
                forge_id: id.to_owned(),
                full_name: name.to_owned(),
                clone_url: format!("https://f.example/{name}"),
                private: Some(private),
                ..Listed::default()
            };
            (format!("f/{name}"), listed)
        };
        let list = |catalog: &Catalog, now: Timestamp, rows: &[(String, Listed)]| {
            let mut listing = catalog.listings().begin("f", "all", now).unwrap();
            catalog.listings().take_page(&mut listing, rows, None, now).unwrap();
        };
        list(&catalog, Timestamp(1), &[listed("1", "secret", true), listed("2", "open", false)]);
        let first = catalog.get("f/secret").unwrap().unwrap().id;
        assert_eq!(catalog.exposure(first).unwrap(), Exposure { former_names: Vec::new(), is_private: true });
        // Another repository gets its name; then both are renamed.
        list(&catalog, Timestamp(2), &[listed("3", "secret", false)]);
        list(&catalog, Timestamp(3), &[listed("1", "moved", true), listed("3", "also", false)]);
        let moved = catalog.get("f/moved").unwrap().unwrap();
        assert_eq!(moved.id, first);
        let mut names = catalog.exposure(first).unwrap().former_names;
        names.sort();
        assert_eq!(names, ["f/secret", "f/secret~1"]);
        let also = catalog.get("f/also").unwrap().unwrap().id;
        assert_eq!(catalog.exposure(also).unwrap().former_names, ["f/secret"]);
        catalog.add_copy(&NewRepository::new("copy", &moved.url), first, Timestamp(4)).unwrap();
        assert!(catalog.add_copy(&NewRepository::new("copy", &moved.url), first, Timestamp(4)).is_err());
        let copy = catalog.get("copy").unwrap().unwrap().id;
        let Exposure { mut former_names, is_private } = catalog.exposure(copy).unwrap();
        former_names.sort();
        assert_eq!(
            (former_names, is_private),
            (vec!["f/moved".to_owned(), "f/secret".to_owned(), "f/secret~1".to_owned()], true)
        );
        catalog.remove("copy").unwrap();
        assert_eq!(catalog.exposure(copy).unwrap(), Exposure::default());
    }
}
