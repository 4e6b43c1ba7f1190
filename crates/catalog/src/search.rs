//! Searches for repositories, a window of names at a time, so that no search takes long.

use weir_sql::{Value, values};

use crate::repository::{COLUMNS, Repository};
use crate::{Catalog, Result};

/// A filter by the state that the catalog records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    /// Somebody has paused them.
    Paused,
    /// They are set back to an older state.
    Pinned,
    /// The last visit failed.
    Failing,
    /// They were never visited.
    New,
    /// Git LFS files of them are missing.
    Incomplete,
}

impl StateFilter {
    fn condition(self) -> &'static str {
        match self {
            StateFilter::Paused => "paused = 1",
            StateFilter::Pinned => "pinned = 1",
            StateFilter::Failing => "error_class IS NOT NULL",
            StateFilter::New => "error_class IS NULL AND last_success IS NULL AND seq IS NULL",
            StateFilter::Incomplete => "lfs_missing > 0",
        }
    }
}

/// A search for repositories.
#[derive(Clone, Debug, Default)]
pub struct RepositorySearch {
    /// The name after which it begins.
    pub after: String,
    /// Text in the name, in any case.
    pub text: Option<String>,
    /// The state that they must have.
    pub state: Option<StateFilter>,
    /// How many repositories to look at.
    pub window: usize,
    /// How many to find.
    pub max: usize,
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct FoundRepositories {
    /// The repositories, by name.
    pub list: Vec<Repository>,
    /// The name up to which all were looked at, if there may be more behind it.
    pub passed: Option<String>,
}

impl Catalog {
    /// Searches for repositories.
    ///
    /// # Errors
    /// If the database fails.
    pub fn search(&self, search: &RepositorySearch) -> Result<FoundRepositories> {
        let RepositorySearch { after, text, state, window, max } = search;
        let end = "SELECT name FROM repositories WHERE name > ?1 ORDER BY name LIMIT 1 OFFSET ?2";
        let end: Option<String> =
            self.database
                .query_one(end, &values![after.as_str(), window.saturating_sub(1)], |row| row.get(0))?;
        let mut parameters = vec![Value::from(after.as_str()), Value::from(*max)];
        // The names are read from their index, the rows of those that match from the table.
        let mut sql = "SELECT name FROM repositories WHERE name > ?1".to_owned();
        if let Some(end) = &end {
            parameters.push(end.as_str().into());
            sql += &format!(" AND name <= ?{}", parameters.len());
        }
        if let Some(text) = text {
            let text = text.to_lowercase().replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            parameters.push(format!("%{text}%").into());
            sql += &format!(" AND lower(name) LIKE ?{} ESCAPE '\\'", parameters.len());
        }
        if let Some(state) = state {
            sql += &format!(" AND {}", state.condition());
        }
        let sql = format!(
            "SELECT {COLUMNS} FROM repositories WHERE name IN ({sql} ORDER BY name LIMIT ?2) ORDER BY name"
        );
        let list = self.database.query(&sql, &parameters, Repository::from_row)?;
        debug_assert!(list.is_sorted_by(|a, b| a.name != b.name) && list.len() <= *max, "names are unique");
        // If as many were found as were wanted, what lies behind the last was not looked at.
        let last = list.last().filter(|_| list.len() >= *max).map(|r| r.name.clone());
        Ok(FoundRepositories { passed: last.or(end), list })
    }
}
