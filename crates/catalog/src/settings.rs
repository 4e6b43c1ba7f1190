//! What is said of one repository alone, and who goes ahead of others.

use serde::{Deserialize, Serialize};

use crate::catalog::COLUMNS;
use crate::database::{Kind, Value, values};
use crate::{Catalog, Repository, Result};

/// The highest priority.
pub const PRIORITY_MAX: i64 = 3;

/// Who goes ahead of those that are only due: the highest of the column `ahead`. A column, for the database knows how many have which
/// value; what it can only guess at it looks up in the wrong index.
pub(crate) const AHEAD_MAX: i64 = PRIORITY_MAX + 1;

/// What is said of one repository alone; `None` where what holds for all holds for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Seconds between visits, however often it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<u64>,
    /// Whether only HEAD, branches and tags are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_and_tags_only: Option<bool>,
    /// Whether the files that Git LFS keeps beside it are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfs: Option<bool>,
    /// Whether what its forge says around it is mirrored: issues, pull requests, releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<bool>,
}

impl Settings {
    pub(crate) fn from_json(text: Option<&str>) -> Settings {
        // Only this crate writes them. Should somebody else have: what holds for all is not wrong.
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Whether it says anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Settings::default()
    }
}

impl Catalog {
    /// Sets the priority of repositories, and what is said of each alone; they are due at `due` at the latest.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_settings(&mut self, changed: &[(i64, i64, Settings)], due: i64) -> Result<()> {
        self.database.transaction(Kind::Visits, |db| {
            for (id, priority, settings) in changed {
                let text = (!settings.is_empty()).then(|| serde_json::to_string(settings).expect("numbers and words are JSON"));
                let priority = (*priority).clamp(0, PRIORITY_MAX);
                let sql = "UPDATE repositories SET priority = ?2, settings = ?3, next_due = LEAST(next_due, ?4),
                           ahead = GREATEST(?5, CASE WHEN ahead = 1 THEN 1 ELSE 0 END) WHERE id = ?1";
                let ahead = if priority > 0 { priority + 1 } else { 0 };
                db.execute(sql, &values![*id, priority, text, due, ahead])?;
            }
            Ok(())
        })
    }

    /// Somebody says that the repositories with these numbers have changed upstream: they are due, before those that are only
    /// overdue. Returns how many are visited at all.
    ///
    /// # Errors
    /// Of the database.
    pub fn hint(&mut self, ids: &[i64], now: i64) -> Result<u64> {
        let sql = "UPDATE repositories SET hinted_at = GREATEST(hinted_at, ?2), next_due = LEAST(next_due, ?2), ahead = GREATEST(ahead, 1)
                   WHERE id = ANY(?1) AND enabled = 1";
        let parameters = [Value::Integers(ids.to_vec()), now.into()];
        self.database.transaction(Kind::Visits, |db| db.execute(sql, &parameters))
    }

    /// Repositories with a priority, the highest first, or of which something is said alone.
    ///
    /// # Errors
    /// Of the database.
    pub fn with_settings(&self) -> Result<Vec<Repository>> {
        let sql = format!("SELECT {COLUMNS} FROM repositories WHERE priority > 0 OR settings IS NOT NULL ORDER BY priority DESC, name");
        self.database.query(&sql, &[], Repository::from_row)
    }
}
