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
    pub fn new(pattern: Option<&str>) -> Result<LineFilter, String> {
        pattern.map(Regex::new).transpose().map(LineFilter).map_err(|e| e.to_string())
    }

    /// Returns whether `line` is wanted. A line that is not UTF-8 is, if all are.
    pub fn takes(&self, line: &[u8]) -> bool {
        let Some(pattern) = &self.0 else { return true };
        std::str::from_utf8(line).is_ok_and(|text| pattern.is_match(text))
    }

    /// Returns what the group `key` of the pattern holds.
    pub(crate) fn key<'l>(&self, line: &'l str) -> Option<&'l str> {
        self.0.as_ref()?.captures(line)?.name("key").map(|group| group.as_str())
    }
}
