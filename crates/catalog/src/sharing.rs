//! Which archives build on which.
//!
//! A base is recorded before anything is built on it, so that no process deletes it meanwhile. Bases have no
//! base themselves.

use std::collections::{HashMap, HashSet};

use weir_ground::{Timestamp, name_matches};
use weir_sql::{Database, Row, Type, Value, values};

use crate::due::hinted;
use crate::repository::{COLUMNS, Repository, refuse_if_built_on};
use crate::transactions::{LISTING, VISITS};
use crate::{Archives, Error, Result};

/// How many generations of forks are followed.
const GENERATIONS_MAX: usize = 32;

/// The base on which the archive of a repository builds, or will build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Number of the repository.
    pub id: i64,
    /// Number of its base.
    pub base: i64,
    /// Name of its base.
    pub name: String,
    /// Where the archive of its base lies, below the store.
    pub path: String,
    /// Whether the base is still to be cloned.
    pub will_come: bool,
    /// How often visits to the base have failed in a row.
    pub failures: i64,
    /// When the base is visited next.
    pub next_due: Timestamp,
}

/// The names that each rule about reading is about, as patterns.
#[derive(Clone, Debug, Default)]
pub struct AccessNames(pub Vec<Vec<String>>);

impl AccessNames {
    /// Returns whether a rule is about `base` and not about `fork`: an archive gives away all objects of its
    /// base.
    pub fn hide_more(&self, base: &str, fork: &str) -> bool {
        let is_about = |rule: &[String], name: &str| rule.iter().any(|pattern| name_matches(pattern, name));
        self.0.iter().any(|rule| is_about(rule, base) && !is_about(rule, fork))
    }
}

/// The columns of a base, from `b`, in the order that `Base::from_row` reads.
const BASE: &str = "b.id, b.name, b.path, b.seq, b.enabled, b.gone_at, b.failures, b.next_due";

impl Base {
    /// Returns `base` as the base of repository `id`.
    pub fn of(id: i64, base: &Repository) -> Base {
        Base {
            id,
            base: base.id,
            name: base.name.clone(),
            path: base.path.clone(),
            will_come: base.seq.is_none(),
            failures: base.failures,
            next_due: base.next_due,
        }
    }

    fn from_row(id: i64, row: &Row<'_>, at: usize) -> weir_sql::Result<Base> {
        let (seq, enabled, gone_at): (Option<i64>, i64, Option<i64>) =
            (row.get(at + 3)?, row.get(at + 4)?, row.get(at + 5)?);
        Ok(Base {
            id,
            base: row.get(at)?,
            name: row.get(at + 1)?,
            path: row.get(at + 2)?,
            will_come: seq.is_none() && enabled == 1 && gone_at.is_none(),
            failures: row.get(at + 6)?,
            next_due: row.get(at + 7)?,
        })
    }
}

/// Sets bases. A repository that others build on gets none, and one that has a base cannot be a base. Of
/// `rows`, p1 is the id and p2 the base.
const CHOOSE: &str =
    "UPDATE repositories SET base_id = rows.p2 FROM rows WHERE id = rows.p1 AND base_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM repositories o WHERE o.base_id = rows.p1)
    AND EXISTS (SELECT 1 FROM repositories b WHERE b.id = rows.p2 AND b.base_id IS NULL)";

/// The repository that a fork was forked from.
struct Parent {
    id: i64,
    base_id: Option<i64>,
    is_mirrored: bool,
    is_private: bool,
}

impl Archives<'_> {
    /// Chooses a base for those of `ids` that are not mirrored yet and have none, as
    /// [`Archives::bases_by_forge`] does.
    ///
    /// # Errors
    /// If the database fails.
    pub fn choose_bases(&self, ids: &[i64], access: &AccessNames) -> Result<()> {
        let chosen = self.find_bases(ids, "AND r.seq IS NULL", access)?;
        if chosen.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<Value<'_>>> = chosen.iter().map(|&(id, base)| values![id, base].into()).collect();
        Ok(self
            .catalog
            .database
            .durably(LISTING, |db| db.execute_rows(CHOOSE, &[Type::Integer, Type::Integer], &rows))
            .map(|_| ())?)
    }

    /// Returns possible bases for those of `ids` that are forks and have none. The base is the repository
    /// that the forge's whole network was forked from, as far as it is known and public, and no rule of
    /// `access` hides more of it than of the fork.
    ///
    /// # Errors
    /// If the database fails.
    pub fn bases_by_forge(&self, ids: &[i64], access: &AccessNames) -> Result<Vec<Base>> {
        let found = self.find_bases(ids, "", access)?;
        let sql = format!("SELECT {BASE} FROM repositories b WHERE b.id = ANY(?1)");
        let bases = [Value::Integers(found.iter().map(|f| f.1).collect())];
        let bases = self.catalog.database.query(&sql, &bases, |row| Base::from_row(0, row, 0))?;
        let bases: HashMap<i64, Base> = bases.into_iter().map(|base| (base.base, base)).collect();
        Ok(found
            .into_iter()
            .filter_map(|(id, base)| Some(Base { id, ..bases.get(&base)?.clone() }))
            .collect())
    }

    /// Returns pairs of a fork and its base.
    fn find_bases(&self, ids: &[i64], condition: &str, access: &AccessNames) -> Result<Vec<(i64, i64)>> {
        let mut parents: HashMap<i64, Parent> = HashMap::new();
        let mut level: Vec<i64> = ids.to_vec();
        for generation in 0..GENERATIONS_MAX {
            if level.is_empty() {
                break;
            }
            let condition = if generation == 0 { condition } else { "" };
            level = read_parents(&self.catalog.database, level, condition, &mut parents)?;
        }
        let mut found: Vec<(i64, i64)> =
            ids.iter().filter_map(|&id| Some((id, root(&parents, id)?))).collect();
        // A base has no base. If it gets one now, the caller has to ask again for the forks that would build
        // on it.
        let forks: HashSet<i64> = found.iter().map(|f| f.0).collect();
        found.retain(|(_, base)| !forks.contains(base));
        // The base of a parent may be private, too.
        let sql = "SELECT repository_id FROM metadata WHERE private = 1 AND repository_id = ANY(?1)";
        let bases = [Value::Integers(found.iter().map(|f| f.1).collect())];
        let private: HashSet<i64> =
            self.catalog.database.query(sql, &bases, |row| row.get(0))?.into_iter().collect();
        found.retain(|(_, base)| !private.contains(base));
        if !access.0.is_empty() && !found.is_empty() {
            let ids = [Value::Integers(found.iter().flat_map(|f| [f.0, f.1]).collect())];
            let sql = "SELECT id, name FROM repositories WHERE id = ANY(?1)";
            let names = self.catalog.database.query(sql, &ids, |row| Ok((row.get(0)?, row.get(1)?)))?;
            let names: HashMap<i64, String> = names.into_iter().collect();
            let name = |id: &i64| names.get(id).map_or("", String::as_str);
            found.retain(|(fork, base)| !access.hide_more(name(base), name(fork)));
        }
        Ok(found)
    }

    /// Returns the bases of those of `ids` that have one.
    ///
    /// # Errors
    /// If the database fails.
    pub fn bases(&self, ids: &[i64]) -> Result<Vec<Base>> {
        let sql = format!(
            "SELECT r.id, {BASE} FROM repositories r JOIN repositories b ON b.id = r.base_id WHERE r.base_id \
            IS NOT NULL AND r.id = ANY(?1)"
        );
        Ok(self
            .catalog
            .database
            .query(&sql, &[Value::Integers(ids.to_vec())], |row| Base::from_row(row.get(0)?, row, 1))?)
    }

    /// Returns the repositories that build on repository `id`, by name.
    ///
    /// # Errors
    /// If the database fails.
    pub fn built_on(&self, id: i64) -> Result<Vec<Repository>> {
        Ok(self.catalog.database.query(
            &format!("SELECT {COLUMNS} FROM repositories WHERE base_id = ?1 ORDER BY name"),
            &values![id],
            Repository::from_row,
        )?)
    }

    /// Sets the base of repository `id` to `base`, whatever it was before.
    ///
    /// # Errors
    /// If `base` cannot be a base, or if others build on `id`.
    pub fn set_base(&self, id: i64, base: i64) -> Result<()> {
        self.catalog.database.durably(LISTING, |db| {
            refuse_if_built_on(db, id)?;
            let sql = "UPDATE repositories SET base_id = ?2 WHERE id = ?1 AND id <> ?2
                       AND EXISTS (SELECT 1 FROM repositories b WHERE b.id = ?2 AND b.base_id IS NULL)";
            if db.execute(sql, &values![id, base])? == 0 {
                return Err(Error::NoBase);
            }
            Ok(())
        })
    }

    /// Records which base the archive of repository `id` was found to have: the archive at `path` below the
    /// store, or none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_base_found(&self, id: i64, path: Option<&str>) -> Result<()> {
        let sql = "UPDATE repositories SET base_id = (SELECT b.id FROM repositories b WHERE b.path = ?2 AND \
            b.id <> ?1) WHERE id = ?1";
        Ok(self.catalog.database.durably(LISTING, |db| db.execute(sql, &values![id, path])).map(|_| ())?)
    }

    /// Records that these repositories have no base any more: their archives are whole.
    ///
    /// # Errors
    /// If the database fails.
    pub fn clear_bases(&self, ids: &[i64]) -> Result<()> {
        let sql = "UPDATE repositories SET base_id = NULL WHERE base_id IS NOT NULL AND id = ANY(?1)";
        Ok(self
            .catalog
            .database
            .transaction(VISITS, |db| db.execute(sql, &[Value::Integers(ids.to_vec())]))
            .map(|_| ())?)
    }

    /// Makes the repositories that build on repository `id` due, whatever their fingerprints, because another
    /// archive is in its place.
    ///
    /// # Errors
    /// If the database fails.
    pub fn look_again_at_what_builds_on(&self, id: i64, now: Timestamp) -> Result<()> {
        let sql =
            concat!("UPDATE repositories SET fingerprint = NULL, ", hinted!("?2"), " WHERE base_id = ?1");
        Ok(self.catalog.database.transaction(VISITS, |db| db.execute(sql, &values![id, now])).map(|_| ())?)
    }
}

/// Reads the parents of those of `ids` that fulfil `condition`. Returns the parents whose own parents matter,
/// too.
fn read_parents(
    db: &Database,
    mut ids: Vec<i64>,
    condition: &str,
    parents: &mut HashMap<i64, Parent>,
) -> Result<Vec<i64>> {
    ids.retain(|id| !parents.contains_key(id));
    let sql = format!(
        "SELECT r.id, p.id, p.base_id, p.seq, m.private FROM repositories r JOIN metadata f ON \
        f.repository_id = r.id
         JOIN repositories p ON p.forge = r.forge AND p.forge_id = f.parent_id
         LEFT JOIN metadata m ON m.repository_id = p.id
         WHERE r.base_id IS NULL AND r.id = ANY(?1) {condition}"
    );
    let found = db.query(&sql, &[Value::Integers(ids)], |row| {
        let (seq, private): (Option<i64>, Option<i64>) = (row.get(3)?, row.get(4)?);
        let parent = Parent {
            id: row.get(1)?,
            base_id: row.get(2)?,
            is_mirrored: seq.is_some(),
            is_private: private == Some(1),
        };
        Ok((row.get::<i64>(0)?, parent))
    })?;
    let mut next = Vec::new();
    for (id, parent) in found {
        if !parent.is_mirrored && parent.base_id.is_none() {
            next.push(parent.id);
        }
        parents.insert(id, parent);
    }
    Ok(next)
}

/// Returns the base for `id`: the nearest ancestor that is mirrored, or the base of an ancestor. If there is
/// none, returns the oldest ancestor that is known.
fn root(parents: &HashMap<i64, Parent>, id: i64) -> Option<i64> {
    let (mut at, mut seen) = (id, HashSet::from([id]));
    let mut base = None;
    while let Some(parent) = parents.get(&at) {
        if parent.is_private || !seen.insert(parent.id) {
            return None;
        }
        base = parent.base_id.or(Some(parent.id));
        if parent.base_id.is_some() || parent.is_mirrored {
            break;
        }
        at = parent.id;
    }
    base
}
