//! The result of a look.

use std::collections::BTreeMap;

/// The result of a look.
#[derive(Clone, Debug, Default)]
pub struct LookOutcome {
    /// The number of new lines, by stream.
    pub added: BTreeMap<&'static str, u64>,
    /// Why it ended early.
    pub error: Option<String>,
    /// Whether there is more to fetch.
    pub is_cut: bool,
}

impl LookOutcome {
    /// Returns the result as a line about the repository `name`.
    pub fn line(&self, name: &str) -> String {
        let mut parts: Vec<String> = self
            .added
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(stream, n)| format!("+{n} {}", stream.replace('_', " ")))
            .collect();
        if parts.is_empty() && self.error.is_none() {
            parts.push("unchanged".to_owned());
        }
        parts.extend(self.is_cut.then(|| "more to come".to_owned()));
        parts.extend(self.error.iter().map(|error| format!("failed: {error}")));
        format!("metadata   {name}  {}", parts.join(", "))
    }
}
