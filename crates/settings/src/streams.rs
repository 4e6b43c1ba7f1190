//! The tables `[[events.stream]]`: programs that print events.

use serde::{Deserialize, Serialize};

use crate::error::SettingError;

/// The form of a stream's lines.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum StreamForge {
    /// Gerrit's `stream-events`.
    Gerrit,
}

/// A table `[[events.stream]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    forge: StreamForge,
    /// Its name.
    pub name: String,
    /// The program that prints events, and its arguments.
    pub command: Vec<String>,
    /// The URL below which the repositories are.
    pub url: String,
}

impl StreamConfig {
    /// Checks the settings. An error says what is wrong.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        if self.name.trim().is_empty() {
            return Err("name is empty".into());
        }
        if self.command.first().is_none_or(String::is_empty) {
            return Err("command is empty".into());
        }
        // A site need not have a path, unlike a repository.
        match weir_transport::Url::parse(&format!("{}/x", self.url.trim_end_matches('/'))) {
            Ok(url) if url.scheme != weir_transport::Scheme::Local => Ok(()),
            _ => Err(format!(
                "url '{}' is no URL of a server: that below which its repositories are",
                self.url
            )
            .into()),
        }
    }
}
