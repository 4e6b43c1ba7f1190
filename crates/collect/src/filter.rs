//! Which lines are wanted.

use regex_lite::Regex;

/// A filter of lines.
#[derive(Clone, Debug, Default)]
pub struct LineFilter(Option<Regex>);

impl LineFilter {
    /// Returns a filter that takes lines in which `pattern` is found; all lines, without one.
    ///
    /// # Errors
    /// If it is no regular expression.
    pub fn new(pattern: Option<&str>) -> Result<LineFilter, regex_lite::Error> {
        pattern.map(Regex::new).transpose().map(LineFilter)
    }

    /// Returns whether `line` is wanted. Bytes that are not UTF-8 are replaced for that.
    pub fn takes(&self, line: &[u8]) -> bool {
        let Some(pattern) = &self.0 else { return true };
        pattern.is_match(&String::from_utf8_lossy(line))
    }

    /// Returns what the group `key` of the pattern holds.
    pub(crate) fn key<'l>(&self, line: &'l str) -> Option<&'l str> {
        self.0.as_ref()?.captures(line)?.name("key").map(|group| group.as_str())
    }
}
