//! Parses options that set or reset a setting of a single repository.

use weir_catalog::PRIORITY_MAX;
use weir_mirror::RefsWanted;
use weir_settings::SettingError;

/// A setting of a single repository, or the default in its place.
#[derive(Clone, Copy, Debug)]
pub enum Setting<T> {
    Default,
    Own(T),
}

impl<T> Setting<T> {
    pub fn own(self) -> Option<T> {
        match self {
            Setting::Default => None,
            Setting::Own(value) => Some(value),
        }
    }
}

/// Returns a parser of an option's value, which also takes `default`.
pub fn or_default<T: Clone + Send + Sync + 'static>(
    parse: fn(&str) -> std::result::Result<T, SettingError>,
) -> impl Fn(&str) -> std::result::Result<Setting<T>, SettingError> + Clone + Send + Sync + 'static {
    move |text| if text == "default" { Ok(Setting::Default) } else { parse(text).map(Setting::Own) }
}

/// Parses a priority: how far ahead of others a repository goes.
pub fn priority_argument(text: &str) -> std::result::Result<i64, SettingError> {
    let number = text.parse().ok().filter(|n| (0..=PRIORITY_MAX).contains(n));
    number.ok_or_else(|| format!("either a number from 0 to {PRIORITY_MAX}, or default").into())
}

/// Parses patterns of refs, separated by commas.
pub fn refs_argument(text: &str) -> std::result::Result<Vec<String>, SettingError> {
    let patterns: Vec<String> = text.split(',').map(str::to_owned).collect();
    RefsWanted::parse(&patterns).map(|_| patterns).map_err(SettingError::of)
}

/// Parses true or false.
pub fn bool_argument(text: &str) -> std::result::Result<bool, SettingError> {
    text.parse().map_err(|_| "either true, false or default".into())
}
