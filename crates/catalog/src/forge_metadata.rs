//! Descriptions of repositories by their forges, as of the last listing.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Value, values};

use crate::{Listings, MetadataLooks, Result};

/// The description of a repository by its forge. A value that the forge does not give is `None`. Times are as
/// the forge writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForgeMetadata {
    /// Its name there.
    pub full_name: String,
    /// The login of its owner.
    pub owner: Option<String>,
    /// Its description, by its owner.
    pub description: Option<String>,
    /// Its web site.
    pub homepage: Option<String>,
    /// The language most of it is in.
    pub language: Option<String>,
    /// Bytes by language.
    pub languages: BTreeMap<String, i64>,
    /// Its topics, by its owner.
    pub topics: Vec<String>,
    /// The default branch.
    pub default_branch: Option<String>,
    /// Whether it is a fork.
    pub fork: Option<bool>,
    /// What it was forked from: its name here, or else its id at the forge.
    pub fork_of: Option<String>,
    /// Whether it is read-only.
    pub archived: Option<bool>,
    /// Whether only some users may see it.
    pub private: Option<bool>,
    /// Its size in KiB.
    pub kibibytes: Option<i64>,
    /// The number of its stars.
    pub stars: Option<i64>,
    /// The number of its forks.
    pub forks: Option<i64>,
    /// The number of open issues, as the forge counts them.
    pub open_issues: Option<i64>,
    /// When it was created.
    pub created_at: Option<String>,
    /// When something about it last changed.
    pub updated_at: Option<String>,
    /// When it was last pushed to.
    pub pushed_at: Option<String>,
    /// When a listing last said so, in seconds since 1970.
    pub listed_at: Timestamp,
}

/// Conditions on what a forge says of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgeWish {
    /// The language most of it is in.
    pub language: Option<String>,
    /// One of its topics.
    pub topic: Option<String>,
    /// The minimum number of its stars.
    pub stars_min: Option<i64>,
    /// The name of the repository that it was forked from.
    pub fork_of: Option<String>,
}

impl ForgeWish {
    /// Returns whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == ForgeWish::default()
    }
}

impl MetadataLooks<'_> {
    /// Returns what forges say of the repositories with these numbers, by number.
    ///
    /// # Errors
    /// If the database fails.
    pub fn of_forge(&self, ids: &[i64]) -> Result<HashMap<i64, ForgeMetadata>> {
        let of = || [Value::Integers(ids.to_vec())];
        let sql = "SELECT m.repository_id, m.full_name, a.login, m.description, m.homepage, m.language, \
            m.default_branch, m.fork,
                   coalesce(p.name, m.parent_id), m.archived, m.private, m.kibibytes, m.stars, m.forks,
                   m.open_issues, m.created_at,
                   m.updated_at, m.pushed_at, m.listed_at FROM metadata m JOIN repositories r ON r.id =
                   m.repository_id
                   LEFT JOIN accounts a ON a.id = m.owner_id LEFT JOIN repositories p
                   ON p.forge = r.forge AND p.forge_id = m.parent_id WHERE m.repository_id = ANY(?1)";
        let rows = self.catalog.database.query(sql, &of(), |row| {
            let truth = |n| Ok::<_, weir_sql::Error>(row.get::<Option<i64>>(n)?.map(|n| n != 0));
            let metadata = ForgeMetadata {
                full_name: row.get(1)?,
                owner: row.get(2)?,
                description: row.get(3)?,
                homepage: row.get(4)?,
                language: row.get(5)?,
                languages: BTreeMap::new(),
                topics: Vec::new(),
                default_branch: row.get(6)?,
                fork: truth(7)?,
                fork_of: row.get(8)?,
                archived: truth(9)?,
                private: truth(10)?,
                kibibytes: row.get(11)?,
                stars: row.get(12)?,
                forks: row.get(13)?,
                open_issues: row.get(14)?,
                created_at: row.get(15)?,
                updated_at: row.get(16)?,
                pushed_at: row.get(17)?,
                listed_at: row.get(18)?,
            };
            Ok((row.get::<i64>(0)?, metadata))
        })?;
        let mut found: HashMap<i64, ForgeMetadata> = rows.into_iter().collect();
        let sql = "SELECT repository_id, language, bytes FROM languages WHERE repository_id = ANY(?1)";
        for (id, language, bytes) in self
            .catalog
            .database
            .query(sql, &of(), |row| Ok((row.get::<i64>(0)?, row.get(1)?, row.get(2)?)))?
        {
            if let Some(metadata) = found.get_mut(&id) {
                metadata.languages.insert(language, bytes);
            }
        }
        let sql = "SELECT repository_id, topic FROM topics WHERE repository_id = ANY(?1) ORDER BY topic";
        for (id, topic) in
            self.catalog.database.query(sql, &of(), |row| Ok((row.get::<i64>(0)?, row.get(1)?)))?
        {
            if let Some(metadata) = found.get_mut(&id) {
                metadata.topics.push(topic);
            }
        }
        Ok(found)
    }
}

impl Listings<'_> {
    /// Returns the numbers of the repositories that fulfil `wish`. Case does not matter in languages and
    /// topics.
    ///
    /// # Errors
    /// If the database fails.
    pub fn ids_wished(&self, wish: &ForgeWish) -> Result<HashSet<i64>> {
        let sql = "SELECT m.repository_id FROM metadata m JOIN repositories r ON r.id = m.repository_id
                   WHERE (CAST(?1 AS TEXT) IS NULL OR lower(m.language) = lower(?1))
                   AND (CAST(?2 AS TEXT) IS NULL
                        OR EXISTS (SELECT 1 FROM topics t WHERE t.repository_id = m.repository_id AND
                        lower(t.topic) = lower(?2)))
                   AND (CAST(?3 AS BIGINT) IS NULL OR m.stars >= ?3)
                   AND (CAST(?4 AS TEXT) IS NULL
                        OR EXISTS (SELECT 1 FROM repositories p WHERE p.name = ?4 AND p.forge = r.forge AND
                        p.forge_id = m.parent_id))";
        let ForgeWish { language, topic, stars_min, fork_of } = wish;
        let parameters = values![language.as_deref(), topic.as_deref(), *stars_min, fork_of.as_deref()];
        Ok(self.catalog.database.query(sql, &parameters, |row| row.get(0))?.into_iter().collect())
    }
}
