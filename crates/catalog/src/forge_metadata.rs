//! What forges say of repositories, as their listings told it last.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use weir_ground::Timestamp;

use crate::database::{Value, values};
use crate::{Catalog, Result};

/// What its forge says of a repository. What it does not say is `None`. Times are as the forge writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForgeMetadata {
    /// Its name there.
    pub full_name: String,
    /// Whose it is.
    pub owner: Option<String>,
    /// What it is, in its owner's words.
    pub description: Option<String>,
    /// Where more is said of it.
    pub homepage: Option<String>,
    /// What most of it is written in.
    pub language: Option<String>,
    /// Bytes by language.
    pub languages: BTreeMap<String, i64>,
    /// What it is about, by its owner.
    pub topics: Vec<String>,
    /// The branch that is shown first.
    pub default_branch: Option<String>,
    /// Whether it is a fork.
    pub fork: Option<bool>,
    /// What it was forked from: its name here, or else its id at the forge.
    pub fork_of: Option<String>,
    /// Whether nothing is to be changed in it any more.
    pub archived: Option<bool>,
    /// Whether not everybody may see it.
    pub private: Option<bool>,
    /// Its size in KiB.
    pub kibibytes: Option<i64>,
    /// Stars that it has.
    pub stars: Option<i64>,
    /// Forks of it.
    pub forks: Option<i64>,
    /// Issues that are open, as the forge counts them.
    pub open_issues: Option<i64>,
    /// When it was made.
    pub created_at: Option<String>,
    /// When something of it last changed.
    pub updated_at: Option<String>,
    /// When it was last pushed to.
    pub pushed_at: Option<String>,
    /// When a listing last said so, in seconds since 1970.
    pub listed_at: Timestamp,
}

/// What a forge should say of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgeWish {
    /// It is written in this, for the most part.
    pub language: Option<String>,
    /// It is about this.
    pub topic: Option<String>,
    /// It has so many stars at least.
    pub stars_min: Option<i64>,
    /// It was forked from the repository with this name here.
    pub fork_of: Option<String>,
}

impl ForgeWish {
    /// Whether anything is wished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == ForgeWish::default()
    }
}

impl Catalog {
    /// What forges say of the repositories with these numbers, by number.
    ///
    /// # Errors
    /// If the database fails.
    pub fn forge_metadata(&self, ids: &[i64]) -> Result<HashMap<i64, ForgeMetadata>> {
        let of = || [Value::Integers(ids.to_vec())];
        let sql = "SELECT m.repository_id, m.full_name, a.login, m.description, m.homepage, m.language, \
            m.default_branch, m.fork,
                   coalesce(p.name, m.parent_id), m.archived, m.private, m.kibibytes, m.stars, m.forks,
                   m.open_issues, m.created_at,
                   m.updated_at, m.pushed_at, m.listed_at FROM metadata m JOIN repositories r ON r.id =
                   m.repository_id
                   LEFT JOIN accounts a ON a.id = m.owner_id LEFT JOIN repositories p
                   ON p.forge = r.forge AND p.forge_id = m.parent_id WHERE m.repository_id = ANY(?1)";
        let rows = self.database.query(sql, &of(), |row| {
            let truth = |n| Ok::<_, crate::Error>(row.get::<Option<i64>>(n)?.map(|n| n != 0));
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
        for (id, language, bytes) in
            self.database.query(sql, &of(), |row| Ok((row.get::<i64>(0)?, row.get(1)?, row.get(2)?)))?
        {
            if let Some(metadata) = found.get_mut(&id) {
                metadata.languages.insert(language, bytes);
            }
        }
        let sql = "SELECT repository_id, topic FROM topics WHERE repository_id = ANY(?1) ORDER BY topic";
        for (id, topic) in self.database.query(sql, &of(), |row| Ok((row.get::<i64>(0)?, row.get(1)?)))? {
            if let Some(metadata) = found.get_mut(&id) {
                metadata.topics.push(topic);
            }
        }
        Ok(found)
    }

    /// The numbers of repositories of which forges say what is wished. Letters of languages and topics may be
    /// large or small.
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
        Ok(self.database.query(sql, &parameters, |row| row.get(0))?.into_iter().collect())
    }
}
