//! Colours of what people read, if they are wanted.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the help of every command would get a paragraph for each word")]
pub enum ColorChoice {
    // On a terminal that has them, unless the environment says otherwise.
    Auto,
    Always,
    Never,
}

/// The style of a state that is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// The style of a state that may need attention.
pub const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// The style of a failure.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Headings and labels.
pub const HEADING: Style = Style::new().bold();

/// Whether standard output has colours.
static ON_STDOUT: AtomicBool = AtomicBool::new(false);

/// Decides which streams have colours, with the variables `NO_COLOR` and `TERM` of the environment. Returns
/// whether standard error has.
pub fn choose(choice: ColorChoice, is_json: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    let allows = |is_terminal: bool| match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_terminal && is_allowed(no_color, term),
    };
    ON_STDOUT.store(!is_json && allows(std::io::stdout().is_terminal()), Ordering::Relaxed);
    !is_json && allows(std::io::stderr().is_terminal())
}

/// Returns whether standard output has colours.
pub fn is_on_stdout() -> bool {
    ON_STDOUT.load(Ordering::Relaxed)
}

/// Returns whether the environment allows colours (no-color.org, and terminals that know none).
fn is_allowed(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_is_as_the_environment_says() {
        let allowed = |no_color: Option<&str>, term: Option<&str>| {
            is_allowed(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert!(allowed(None, Some("xterm")) && allowed(Some(""), None));
        assert!(!allowed(Some("1"), Some("xterm")) && !allowed(None, Some("dumb")));
    }
}
