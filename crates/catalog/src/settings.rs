//! What is said of one repository alone, and who goes ahead of others.

use serde::{Deserialize, Deserializer, Serialize};

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
    /// Patterns of the refs that are mirrored.
    #[serde(skip_serializing_if = "Option::is_none", alias = "heads_and_tags_only", deserialize_with = "patterns_of_refs")]
    pub refs: Option<Vec<String>>,
    /// Whether the files that Git LFS keeps beside it are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfs: Option<bool>,
    /// Whether what its forge says around it is mirrored: issues, pull requests, releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<bool>,
}

/// Patterns; or what older catalogs have in their place: whether only HEAD, branches and tags are mirrored.
fn patterns_of_refs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        HeadsAndTagsOnly(bool),
        Patterns(Vec<String>),
    }
    Ok(Option::<Stored>::deserialize(deserializer)?.map(|stored| match stored {
        Stored::HeadsAndTagsOnly(only) => vec![if only { "heads-and-tags" } else { "all" }.to_owned()],
        Stored::Patterns(patterns) => patterns,
    }))
}

impl Settings {
    pub(crate) fn from_json(text: Option<&str>) -> Settings {
        // Only this crate writes them. Should somebody else have: what holds for all is not wrong.
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// What is said here, and where nothing is what `other` says.
    #[must_use]
    pub fn or(self, other: &Settings) -> Settings {
        Settings {
            interval_s: self.interval_s.or(other.interval_s),
            refs: self.refs.or_else(|| other.refs.clone()),
            lfs: self.lfs.or(other.lfs),
            metadata: self.metadata.or(other.metadata),
        }
    }

    /// Whether it says anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn what_older_catalogs_say_of_refs_is_understood() {
        let old = Settings::from_json(Some(r#"{"heads_and_tags_only":true,"lfs":false}"#));
        assert_eq!((old.refs.as_deref(), old.lfs), (Some(&["heads-and-tags".to_owned()][..]), Some(false)));
        assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"refs":["heads-and-tags"],"lfs":false}"#);
    }
}
