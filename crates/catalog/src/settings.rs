//! The settings of single repositories, and which of them go ahead of others.

use serde::{Deserialize, Deserializer, Serialize};

/// The highest priority.
pub const PRIORITY_MAX: i64 = 3;

/// The highest value of the column `ahead`, which says who goes before those that are only due. It is a
/// column because the database knows how many rows have which value. For a condition that it can only guess
/// at, it uses the wrong index.
pub(crate) const AHEAD_MAX: i64 = PRIORITY_MAX + 1;

/// When a repository is visited again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Interval {
    /// This many seconds after the last visit, however often it changes.
    Seconds(u64),
    /// Depending on how often it changes.
    #[serde(with = "auto")]
    Auto,
}

/// Reads and writes the word for [`Interval::Auto`].
mod auto {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    const WORD: &str = "auto";

    pub(super) fn serialize<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(WORD)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
        let word = String::deserialize(deserializer)?;
        if word == WORD { Ok(()) } else { Err(D::Error::custom("neither a number of seconds nor 'auto'")) }
    }
}

/// The settings of one repository; `None` where the settings for all apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// When it is visited.
    #[serde(skip_serializing_if = "Option::is_none", rename = "interval_s")]
    pub interval: Option<Interval>,
    /// Patterns of the refs that are mirrored.
    #[serde(
        skip_serializing_if = "Option::is_none",
        alias = "heads_and_tags_only",
        deserialize_with = "patterns_of_refs"
    )]
    pub refs: Option<Vec<String>>,
    /// Whether the files that Git LFS keeps beside it are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfs: Option<bool>,
    /// Whether what its forge says around it is mirrored: issues, pull requests, releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<bool>,
}

/// Reads patterns, or what older catalogs have in their place: whether only HEAD, branches and tags are
/// mirrored.
fn patterns_of_refs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StoredPatterns {
        HeadsAndTagsOnly(bool),
        Patterns(Vec<String>),
    }
    Ok(Option::<StoredPatterns>::deserialize(deserializer)?.map(|stored| match stored {
        StoredPatterns::HeadsAndTagsOnly(only) => {
            vec![if only { "heads-and-tags" } else { "all" }.to_owned()]
        }
        StoredPatterns::Patterns(patterns) => patterns,
    }))
}

impl Settings {
    pub(crate) fn from_json(text: Option<&str>) -> Settings {
        // Only this crate writes them. If another program did, the settings for all apply.
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns these settings, completed with those of `other`.
    #[must_use]
    pub fn or(self, other: &Settings) -> Settings {
        Settings {
            interval: self.interval.or(other.interval),
            refs: self.refs.or_else(|| other.refs.clone()),
            lfs: self.lfs.or(other.lfs),
            metadata: self.metadata.or(other.metadata),
        }
    }

    /// Returns whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Interval, Settings};

    #[test]
    fn what_older_catalogs_say_of_refs_is_understood() {
        let old = Settings::from_json(Some(r#"{"heads_and_tags_only":true,"lfs":false}"#));
        assert_eq!((old.refs.as_deref(), old.lfs), (Some(&["heads-and-tags".to_owned()][..]), Some(false)));
        assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"refs":["heads-and-tags"],"lfs":false}"#);
    }

    #[test]
    fn intervals_are_seconds_or_a_word() {
        for (text, interval) in
            [(r#"{"interval_s":60}"#, Interval::Seconds(60)), (r#"{"interval_s":"auto"}"#, Interval::Auto)]
        {
            let settings = Settings::from_json(Some(text));
            assert_eq!(
                (settings.interval, serde_json::to_string(&settings).unwrap().as_str()),
                (Some(interval), text)
            );
        }
        assert_eq!(Settings::from_json(Some(r#"{"interval_s":"often"}"#)), Settings::default());
    }
}
