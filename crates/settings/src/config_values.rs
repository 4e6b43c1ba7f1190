//! Values of the configuration file: sizes, times, patterns of refs, and settings for some repositories.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use weir_catalog::{Interval, Settings};
use weir_ground::{check_pattern, without_password};
use weir_mirror::{RefsWanted, SettingsRule};

use crate::error::SettingError;

/// A number of bytes: `4096`, `"64 MiB"`, `"1GB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(
    /// The number.
    pub u64,
);

/// A time: `"30s"`, `"5m"`, `"1h"`, `"2d"`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(
    /// The time.
    pub Duration,
);

impl Span {
    /// Returns a time of `n` seconds.
    pub const fn seconds(n: u64) -> Span {
        Span(Duration::from_secs(n))
    }
}

/// The time between visits: one for all repositories, or chosen by how often an upstream changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalSetting {
    /// Chosen by how often an upstream changes.
    Auto,
    /// One for all.
    Every(Span),
}

impl IntervalSetting {
    /// Returns the interval in seconds, if it is one for all.
    pub fn fixed_s(self) -> Option<u64> {
        match self {
            IntervalSetting::Auto => None,
            IntervalSetting::Every(span) => Some(span.0.as_secs()),
        }
    }

    /// Returns the interval as the settings of a repository hold it.
    pub fn own(self) -> Interval {
        self.fixed_s().map_or(Interval::Auto, |seconds| Interval::Seconds(seconds.max(1)))
    }
}

/// Parses an interval on a command line.
///
/// # Errors
/// If it is none. The error says what is.
pub fn interval_argument(text: &str) -> Result<IntervalSetting, SettingError> {
    match parse_span(text) {
        _ if text == "auto" => Ok(IntervalSetting::Auto),
        Some(1..=INTERVAL_MAX_S) => span_argument(text).map(|time| IntervalSetting::Every(Span(time))),
        Some(_) => Err("an interval must be between a second and ten years".into()),
        None => Err("either auto, default, or a time such as 5m, 1h or 7d".into()),
    }
}

/// Ten years.
const INTERVAL_MAX_S: u64 = 315_360_000;

impl<'de> Deserialize<'de> for IntervalSetting {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let parse = |text: &str| if text == "auto" { Some(u64::MAX) } else { parse_span(text) };
        let quantity = Quantity { expecting: "\"auto\", or a time such as \"5m\" or \"1h\"", parse };
        let seconds = d.deserialize_any(quantity)?;
        Ok(if seconds == u64::MAX {
            IntervalSetting::Auto
        } else {
            IntervalSetting::Every(Span(Duration::from_secs(seconds)))
        })
    }
}

impl Serialize for IntervalSetting {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            IntervalSetting::Auto => s.serialize_str("auto"),
            IntervalSetting::Every(span) => span.serialize(s),
        }
    }
}

fn number_and_unit(text: &str) -> Option<(u64, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim().to_ascii_lowercase()))
}

fn parse_size(text: &str) -> Option<u64> {
    let (n, unit) = number_and_unit(text)?;
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    n.checked_mul(factor)
}

fn parse_span(text: &str) -> Option<u64> {
    let (n, unit) = number_and_unit(text)?;
    let factor: u64 = match unit.as_str() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    n.checked_mul(factor)
}

/// Parses a size on a command line, written as in the file.
///
/// # Errors
/// If it is none. The error says what is.
pub fn size_argument(text: &str) -> std::result::Result<u64, SettingError> {
    parse_size(text).ok_or(SettingError::from("not a size such as 512 MiB or 4 GiB"))
}

/// Parses a time on a command line, written as in the file.
///
/// # Errors
/// If it is none. The error says what is.
pub fn span_argument(text: &str) -> std::result::Result<Duration, SettingError> {
    parse_span(text)
        .map(Duration::from_secs)
        .ok_or(SettingError::from("not a time such as 30s, 5m, 1h or 2d"))
}

struct Quantity {
    expecting: &'static str,
    parse: fn(&str) -> Option<u64>,
}

impl Visitor<'_> for Quantity {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> std::result::Result<u64, E> {
        u64::try_from(n).map_err(|_| E::invalid_value(de::Unexpected::Signed(n), &self))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<u64, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        d.deserialize_any(Quantity {
            expecting: "a number of bytes such as 4096 or \"64 MiB\"",
            parse: parse_size,
        })
        .map(Size)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let quantity =
            Quantity { expecting: "a time such as \"30s\", \"5m\", \"1h\" or \"2d\"", parse: parse_span };
        d.deserialize_any(quantity).map(|n| Span(Duration::from_secs(n)))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{}s", self.0.as_secs()))
    }
}

/// Patterns of refs: one, or a list.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct RefsConfig(Vec<String>);

impl RefsConfig {
    /// Returns whether these are the patterns that hold if none are set.
    pub fn is_default(&self) -> bool {
        *self == RefsConfig::default()
    }

    /// Returns the refs that the patterns match.
    pub fn wanted(&self) -> RefsWanted {
        RefsWanted::parse(&self.0).expect("looked at when it was read")
    }

    /// Returns the patterns as the settings of a repository hold them.
    pub fn patterns(&self) -> Vec<String> {
        self.0.clone()
    }
}

impl Default for RefsConfig {
    fn default() -> Self {
        RefsConfig(vec!["all".to_owned()])
    }
}

impl<'de> Deserialize<'de> for RefsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            One(String),
            Several(Vec<String>),
        }
        let patterns = match Text::deserialize(deserializer)? {
            Text::One(pattern) => vec![pattern],
            Text::Several(patterns) => patterns,
        };
        RefsWanted::parse(&patterns).map_err(serde::de::Error::custom)?;
        Ok(RefsConfig(patterns))
    }
}

/// Writes a URL without its password.
pub(crate) fn shown_database<S: Serializer>(
    url: &Option<String>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    url.as_deref().map(weir_sql::redacted).serialize(serializer)
}

/// Writes a URL without its password.
pub(crate) fn shown_url<S: Serializer>(url: &str, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    without_password(url).serialize(serializer)
}

/// Writes `***` in place of each secret.
pub(crate) fn hidden<S: Serializer>(
    secrets: &[String],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(secrets.iter().map(|_| "***"))
}

/// Settings for some repositories.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorRule {
    /// Patterns of their names.
    pub repositories: Vec<String>,
    /// The time between visits.
    pub interval: Option<IntervalSetting>,
    /// The refs that are mirrored.
    pub refs: Option<RefsConfig>,
    /// Whether files of Git LFS are mirrored.
    pub lfs: Option<bool>,
}

impl MirrorRule {
    /// Checks that the rule names repositories and sets something. An error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), SettingError> {
        if self.repositories.is_empty() {
            return Err("it needs at least one pattern of names in 'repositories'".into());
        }
        self.repositories.iter().try_for_each(|pattern| check_pattern(pattern))?;
        let MirrorRule { repositories: _, interval, refs, lfs } = self;
        if interval.is_none() && refs.is_none() && lfs.is_none() {
            return Err("it sets none of 'interval', 'refs' and 'lfs'".into());
        }
        Ok(())
    }

    /// Returns the rule as the mirror loop takes it.
    pub fn rule(&self) -> SettingsRule {
        let settings = Settings {
            interval: self.interval.map(IntervalSetting::own),
            refs: self.refs.as_ref().map(RefsConfig::patterns),
            lfs: self.lfs,
            metadata: None,
        };
        SettingsRule { repositories: self.repositories.clone(), settings }
    }
}
