//! What is said of one repository alone, and who goes ahead of others.

use serde::{Deserialize, Serialize};

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
