//! The tables `[[events.webhook]]`: which forges send webhooks, and with which secrets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_events::{WebhookForge, WebhookOptions};
use weir_ground::check_name;

use crate::config_values::hidden;
use crate::error::Result;
use crate::forges::secrets_of;

/// A table `[[events.webhook]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    forge: WebhookForge,
    name: Option<String>,
    /// Replaced by `***` where the configuration is shown.
    #[serde(default, serialize_with = "hidden")]
    secrets: Vec<String>,
    #[serde(default)]
    secret_files: Vec<PathBuf>,
    #[serde(default)]
    unsigned: bool,
    url: Option<String>,
}

impl WebhookConfig {
    /// Returns its name, which ends the path of its URL.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.forge.name())
    }

    /// Returns the files that hold its secrets.
    pub(crate) fn secret_files(&self) -> &[PathBuf] {
        &self.secret_files
    }

    /// Checks the settings. An error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        check_name(self.name()).map_err(|e| format!("{e}; set 'name'"))?;
        if self.name().contains('/') {
            return Err(format!("name '{}' has a slash", self.name()));
        }
        if self.secrets.iter().any(|secret| secret.trim().is_empty()) {
            return Err("a secret is empty".to_owned());
        }
        let has_secrets = !self.secrets.is_empty() || !self.secret_files.is_empty();
        match (self.unsigned, has_secrets) {
            (true, true) => Err("unsigned and secrets exclude each other".to_owned()),
            (false, false) if !self.forge.has_public_key() => {
                Err("it needs secrets or secret_files: the secret that the forge signs with".to_owned())
            }
            _ if self.url.as_ref().is_some_and(|url| !url.contains("://")) => {
                Err("url must start with https:// or http://".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the webhook, with the secrets in files.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn options(&self) -> Result<WebhookOptions> {
        let mut secrets = self.secrets.clone();
        for file in &self.secret_files {
            secrets.extend(secrets_of(file)?);
        }
        let WebhookConfig { forge, unsigned, ref url, .. } = *self;
        Ok(WebhookOptions { name: self.name().to_owned(), forge, secrets, unsigned, site: url.clone() })
    }
}
