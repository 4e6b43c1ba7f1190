//! The tables `[[events.webhook]]`: which forges send webhooks, and with which secrets.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_events::{WebhookForge, WebhookOptions};
use weir_forge::ForgeKind;

use crate::config_values::{Span, hidden};
use crate::error::{Error, Result, SettingError};
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
    /// Where the forge lists its deliveries.
    #[serde(default)]
    sweep: Vec<String>,
    /// The name of the forge in `[[forge]]`, whose API and tokens are used for that.
    sweep_forge: Option<String>,
    #[serde(default = "ten_minutes")]
    sweep_interval: Span,
}

fn ten_minutes() -> Span {
    Span::seconds(600)
}

impl WebhookConfig {
    /// Returns its name, which ends the path of its URL.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.forge.name())
    }

    /// Returns the places at the forge where its webhooks are: `repos/OWNER/NAME` and so on. weir asks for
    /// their deliveries.
    pub fn sweep(&self) -> &[String] {
        &self.sweep
    }

    /// Returns the name of the forge that is asked.
    pub fn sweep_forge(&self) -> &str {
        self.sweep_forge.as_deref().unwrap_or_default()
    }

    /// Returns the time between two sweeps.
    pub fn sweep_interval(&self) -> Duration {
        self.sweep_interval.0
    }

    /// Returns the kind of `[[forge]]` that lists deliveries.
    pub(crate) fn sweep_kind(&self) -> Option<ForgeKind> {
        match self.forge {
            WebhookForge::GitHub => Some(ForgeKind::Github),
            WebhookForge::GitLab => Some(ForgeKind::Gitlab),
            _ => None,
        }
    }

    fn check_sweep(&self) -> std::result::Result<(), SettingError> {
        let kinds: &[&str] = match self.forge {
            WebhookForge::GitHub => &["repos/", "orgs/", "enterprises/"],
            WebhookForge::GitLab => &["projects/", "groups/"],
            _ if self.sweep.is_empty() => return Ok(()),
            _ => return Err(format!("{} lists no deliveries: remove sweep", self.forge.name()).into()),
        };
        let is_place = |place: &str| {
            let name = kinds.iter().find_map(|kind| place.strip_prefix(kind));
            let is_path = |name: &str| {
                !name.is_empty()
                    && !name.split('/').any(|part| matches!(part, "" | "." | ".."))
                    && !name.bytes().any(|byte| byte <= b' ' || b"?#%&".contains(&byte))
            };
            name.is_some_and(is_path) || (place == "app" && self.forge == WebhookForge::GitHub)
        };
        match self.sweep.iter().find(|place| !is_place(place)) {
            Some(wrong) if self.forge == WebhookForge::GitHub => {
                Err(format!("sweep '{wrong}' is none of repos/OWNER/NAME, orgs/NAME and app").into())
            }
            Some(wrong) => Err(format!("sweep '{wrong}' is neither projects/PATH nor groups/PATH").into()),
            None if !self.sweep.is_empty() && self.sweep_forge.is_none() => {
                Err("sweep needs sweep_forge: the name of the [[forge]] whose tokens it uses".into())
            }
            None if self.sweep_interval.0.is_zero() => Err("sweep_interval must be at least 1 second".into()),
            None => Ok(()),
        }
    }

    /// Returns the files that hold its secrets.
    pub(crate) fn secret_files(&self) -> &[PathBuf] {
        &self.secret_files
    }

    /// Checks the settings. An error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), SettingError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.name().is_empty() || !self.name().bytes().all(is_plain) {
            return Err(
                format!("name '{}' ends a URL: letters, digits, '.', '_' and '-'", self.name()).into()
            );
        }
        if self.secrets.iter().any(|secret| secret.trim().is_empty()) {
            return Err("a secret is empty".into());
        }
        self.check_sweep()?;
        let has_secrets = !self.secrets.is_empty() || !self.secret_files.is_empty();
        match (self.unsigned, has_secrets) {
            (true, true) => Err("unsigned and secrets exclude each other".into()),
            (false, false) if !self.forge.has_public_key() => {
                Err("it needs secrets or secret_files: the secret that the forge signs with".into())
            }
            _ if self
                .url
                .as_ref()
                .is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")) =>
            {
                Err("url must start with https:// or http://".into())
            }
            _ => {
                self.with(self.secrets.clone()).check().map_err(|e| SettingError::of(format!("a secret {e}")))
            }
        }
    }

    /// Returns the webhook, with the secrets in files.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn options(&self) -> Result<WebhookOptions> {
        let mut secrets = self.secrets.clone();
        for file in &self.secret_files {
            let wrong = |why: String| Error::Webhook { name: self.name().to_owned(), why };
            let found = secrets_of(file).map_err(|e| wrong(e.to_string()))?;
            if found.is_empty() {
                return Err(wrong(format!("no secret is in '{}'", file.display())));
            }
            self.with(found.clone())
                .check()
                .map_err(|e| wrong(format!("a secret in '{}' {e}", file.display())))?;
            secrets.extend(found);
        }
        Ok(self.with(secrets))
    }

    fn with(&self, secrets: Vec<String>) -> WebhookOptions {
        let WebhookConfig { forge, unsigned, ref url, .. } = *self;
        WebhookOptions { name: self.name().to_owned(), forge, secrets, unsigned, site: url.clone() }
    }
}
