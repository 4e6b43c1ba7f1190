//! The settings that decide which rows there are, as they are stored with the tables.

use serde::{Deserialize, Serialize};
use weir_mine::{Detect, MergeMode, MineOptions, RenameOptions};

/// The version of what is stored.
const VERSION: u32 = 1;

/// The choice of rows. Tables keep the settings that they were begun with.
#[derive(Clone, Copy, Debug, Default)]
pub struct MineSettings {
    /// The choice of rows, and how they are made.
    pub options: MineOptions,
    /// Whether states of the refs are mined.
    pub has_refs: bool,
}

/// Settings as they are stored: as JSON, or, by the first versions of weir, as flags of `weir mine`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum StoredSettings {
    Typed(SettingsFile),
    Flags(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingsFile {
    version: u32,
    commits: bool,
    refs: bool,
    /// How files that commits change are mined, if they are.
    changes: Option<ChangeSettings>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ChangeSettings {
    lines: bool,
    merges: StoredMerges,
    max: Option<u64>,
    renames: Option<RenameSettings>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredMerges {
    Off,
    FirstParent,
    Separate,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RenameSettings {
    copies: bool,
    similarity: u8,
    limit: u32,
    last_line: bool,
}

impl StoredMerges {
    fn name(self) -> &'static str {
        match self {
            StoredMerges::Off => "off",
            StoredMerges::FirstParent => "first-parent",
            StoredMerges::Separate => "separate",
        }
    }
}

impl From<&MineSettings> for StoredSettings {
    fn from(settings: &MineSettings) -> StoredSettings {
        let MineSettings { options, has_refs } = settings;
        let RenameOptions { detect, similarity, limit, counts_last_line } = options.renames;
        let renames = RenameSettings {
            copies: detect == Detect::Copies,
            similarity,
            limit,
            last_line: counts_last_line,
        };
        let changes = ChangeSettings {
            lines: options.has_lines,
            merges: match options.merges {
                MergeMode::Off => StoredMerges::Off,
                MergeMode::FirstParent => StoredMerges::FirstParent,
                MergeMode::Separate => StoredMerges::Separate,
            },
            max: options.changes_max,
            renames: (detect != Detect::Nothing).then_some(renames),
        };
        StoredSettings::Typed(SettingsFile {
            version: VERSION,
            commits: options.has_revisions,
            refs: *has_refs,
            changes: options.has_changes.then_some(changes),
        })
    }
}

impl StoredSettings {
    /// Returns the settings in the text `text` of a database.
    pub(crate) fn parse(text: &str) -> StoredSettings {
        // Flags are no JSON.
        serde_json::from_str(text).unwrap_or_else(|_| StoredSettings::Flags(text.to_owned()))
    }

    /// Returns the text for a database.
    pub(crate) fn to_text(&self) -> String {
        match self {
            StoredSettings::Typed(file) => serde_json::to_string(file).expect("maps with texts as keys"),
            StoredSettings::Flags(flags) => flags.clone(),
        }
    }

    /// Returns whether these are the settings `wanted`.
    pub(crate) fn are(&self, wanted: &MineSettings) -> bool {
        let wanted = StoredSettings::from(wanted);
        match self {
            StoredSettings::Typed(_) => *self == wanted,
            StoredSettings::Flags(flags) => *flags == wanted.flags(),
        }
    }

    /// Returns the settings as flags. Datasets that an older weir made have them in this form.
    pub(crate) fn flags(&self) -> String {
        let file = match self {
            StoredSettings::Flags(flags) => return flags.clone(),
            StoredSettings::Typed(file) => file,
        };
        let has_lines = |wanted| file.changes.as_ref().is_some_and(|changes| changes.lines == wanted);
        let what = [
            ("commits", file.commits),
            ("numstat", has_lines(true)),
            ("changes", has_lines(false)),
            ("refs", file.refs),
        ];
        let what: Vec<&str> =
            what.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
        let mut text = format!("--what {}", what.join(","));
        let Some(changes) = &file.changes else { return text };
        text += &format!(" --diff-merges {}", changes.merges.name());
        if let Some(max) = changes.max {
            text += &format!(" --max-changes {max}");
        }
        let Some(renames) = &changes.renames else { return text + " --no-renames" };
        if renames.copies {
            text += " --find-copies";
        }
        text += &format!(" --find-renames={} -l {}", renames.similarity, renames.limit);
        text + if renames.last_line { "" } else { " --old-similarity" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_stored_as_json_and_flags_are_still_read() {
        let all = MineSettings {
            options: MineOptions {
                has_revisions: true,
                has_changes: true,
                has_lines: true,
                ..MineOptions::default()
            },
            has_refs: true,
        };
        let flags = "--what commits,numstat,refs --diff-merges first-parent --find-renames=50 -l 1000";
        let json = r#"{"version":1,"commits":true,"refs":true,"changes":{"lines":true,"#.to_owned()
            + r#""merges":"first-parent","max":null,"renames":{"copies":false,"similarity":50,"#
            + r#""limit":1000,"last_line":true}}}"#;
        assert_eq!(StoredSettings::from(&all).to_text(), json);
        for text in [flags, &json] {
            let stored = StoredSettings::parse(text);
            assert!(stored.are(&all), "{text}");
            assert_eq!(stored.flags(), flags);
            assert!(!stored.are(&MineSettings { has_refs: false, ..all }), "{text}");
        }
        let renames =
            RenameOptions { detect: Detect::Copies, counts_last_line: false, ..all.options.renames };
        let options = MineOptions {
            has_revisions: false,
            has_lines: false,
            changes_max: Some(7),
            merges: MergeMode::Off,
            renames,
            ..all.options
        };
        let other = MineSettings { options, has_refs: false };
        let flags = "--what changes --diff-merges off --max-changes 7 --find-copies --find-renames=50 \
            -l 1000 --old-similarity";
        assert_eq!(StoredSettings::from(&other).flags(), flags);
        let renames = RenameOptions { detect: Detect::Nothing, ..renames };
        let other = MineSettings { options: MineOptions { renames, ..options }, has_refs: false };
        assert!(StoredSettings::from(&other).flags().ends_with(" --max-changes 7 --no-renames"));
        let none = MineSettings { has_refs: true, ..MineSettings::default() };
        assert_eq!(StoredSettings::from(&none).flags(), "--what refs");
    }
}
