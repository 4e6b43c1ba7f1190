//! Options that say something of a repository alone, or take it back.

use weir_catalog::PRIORITY_MAX;
use weir_mirror::RefsWanted;

/// What is said of a repository alone, or that nothing is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Setting<T> {
    Default,
    Own(T),
}

impl<T> Setting<T> {
    pub(crate) fn own(self) -> Option<T> {
        match self {
            Setting::Default => None,
            Setting::Own(value) => Some(value),
        }
    }
}

/// What parses an option, or its taking back.
pub(crate) fn or_default<T: Clone + Send + Sync + 'static>(
    parse: fn(&str) -> std::result::Result<T, String>,
) -> impl Fn(&str) -> std::result::Result<Setting<T>, String> + Clone + Send + Sync + 'static {
    move |text| if text == "default" { Ok(Setting::Default) } else { parse(text).map(Setting::Own) }
}

/// How far ahead of others one goes.
pub(crate) fn priority_argument(text: &str) -> std::result::Result<i64, String> {
    let number = text.parse().ok().filter(|n| (0..=PRIORITY_MAX).contains(n));
    number.ok_or_else(|| format!("either a number from 0 to {PRIORITY_MAX}, or default"))
}

/// Patterns of refs, between commas.
pub(crate) fn refs_argument(text: &str) -> std::result::Result<Vec<String>, String> {
    let patterns: Vec<String> = text.split(',').map(str::to_owned).collect();
    RefsWanted::parse(&patterns).map(|_| patterns)
}

/// Yes or no.
pub(crate) fn bool_argument(text: &str) -> std::result::Result<bool, String> {
    text.parse().map_err(|_| "either true, false or default".to_owned())
}
