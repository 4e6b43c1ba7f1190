//! The table `[hooks]`: the programs and servers to which weir sends the events of a pool.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_catalog::EventKind;
use weir_events::WebhookSigner;
use weir_ground::{name_matches, without_password};
use weir_transport::{HttpPost, Url};

use crate::config_values::{Span, hidden, shown_url};
use crate::environment::Environment;
use crate::error::{Error, Result, SettingError};
use crate::forges::secrets_of;

/// The most workers of a command or a webhook.
const COUNT_MAX: u16 = 64;

/// The table `[hooks]`: the programs and servers to which weir sends events.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HooksConfig {
    /// A program that keeps running, and to which weir sends each update.
    pub post_update: Vec<String>,
    /// A program to which weir sends failures.
    pub notify: Vec<String>,
    /// How many of `post_update` run.
    pub workers: u16,
    /// How long a program may take for an answer.
    pub timeout: Span,
    /// Programs that weir runs once for each event.
    pub command: Vec<HookCommandConfig>,
    /// Servers to which weir posts events.
    pub webhook: Vec<HookWebhookConfig>,
}

impl Default for HooksConfig {
    fn default() -> Self {
        HooksConfig {
            post_update: Vec::new(),
            notify: Vec::new(),
            workers: 2,
            timeout: Span::seconds(600),
            command: Vec::new(),
            webhook: Vec::new(),
        }
    }
}

/// Which events a command or a webhook is told of.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct EventSelection {
    /// The names of the kinds of events.
    #[serde(default = "updates")]
    pub events: Vec<String>,
    /// Patterns of the names of repositories; all, without. Events that concern no repository count always.
    #[serde(default)]
    pub repositories: Vec<String>,
}

fn updates() -> Vec<String> {
    vec!["update".to_owned()]
}

fn one() -> u16 {
    1
}

fn ten_minutes() -> Span {
    Span::seconds(600)
}

fn half_a_minute() -> Span {
    Span::seconds(30)
}

impl EventSelection {
    /// Returns whether events about the repository `name` are selected.
    pub fn has(&self, name: Option<&str>) -> bool {
        let is_named = |name| self.repositories.iter().any(|pattern| name_matches(pattern, name));
        self.repositories.is_empty() || name.is_none_or(is_named)
    }

    fn check(&self) -> std::result::Result<(), SettingError> {
        if self.events.is_empty() {
            return Err("events is empty: name kinds of events, such as \"update\"".into());
        }
        match self.events.iter().find(|kind| !EventKind::NAMES.contains(&kind.as_str())) {
            Some(unknown) => {
                Err(format!("'{unknown}' is no kind of event: {}", EventKind::NAMES.join(", ")).into())
            }
            None => Ok(()),
        }
    }
}

/// A table `[[hooks.command]]`: a program that is run for each event.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookCommandConfig {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    #[serde(default = "updates")]
    events: Vec<String>,
    #[serde(default)]
    repositories: Vec<String>,
    /// How many run at once.
    #[serde(default = "one")]
    pub count: u16,
    /// How long one may run.
    #[serde(default = "ten_minutes")]
    pub timeout: Span,
}

/// A table `[[hooks.webhook]]`: a server to which events are posted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookWebhookConfig {
    /// Its name.
    pub name: String,
    /// Where to post.
    #[serde(serialize_with = "shown_url")]
    pub url: String,
    /// Replaced by `***` where the configuration is shown.
    #[serde(default, serialize_with = "hidden")]
    secrets: Vec<String>,
    #[serde(default)]
    secret_files: Vec<PathBuf>,
    #[serde(default = "updates")]
    events: Vec<String>,
    #[serde(default)]
    repositories: Vec<String>,
    /// How many requests are under way at once.
    #[serde(default = "one")]
    pub count: u16,
    /// How long to wait for an answer.
    #[serde(default = "half_a_minute")]
    pub timeout: Span,
}

/// Checks the settings that commands and webhooks have in common. An error says which is wrong.
fn check_common(
    name: &str,
    count: u16,
    timeout: Duration,
    selection: &EventSelection,
) -> std::result::Result<(), SettingError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err(format!("name '{name}': letters, digits, '.', '_' and '-'").into());
    }
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(format!("count must be between 1 and {COUNT_MAX}").into());
    }
    if timeout.is_zero() {
        return Err("timeout must be at least 1 second".into());
    }
    selection.check()
}

impl HookCommandConfig {
    /// Returns which events it is told of.
    pub fn selection(&self) -> EventSelection {
        EventSelection { events: self.events.clone(), repositories: self.repositories.clone() }
    }

    /// Checks the settings. An error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), SettingError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err("command is empty".into());
        }
        check_common(&self.name, self.count, self.timeout.0, &self.selection())
    }
}

impl HookWebhookConfig {
    /// Returns which events it is told of.
    pub fn selection(&self) -> EventSelection {
        EventSelection { events: self.events.clone(), repositories: self.repositories.clone() }
    }

    /// Checks the settings. An error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), SettingError> {
        let is_http = self.url.starts_with("https://") || self.url.starts_with("http://");
        match Url::parse(&self.url) {
            Ok(url) if is_http && !url.host.is_empty() => {}
            _ => {
                let url = without_password(&self.url);
                return Err(format!("url '{url}' must start with https:// or http://").into());
            }
        }
        if self.secrets.iter().any(|secret| secret.trim().is_empty()) {
            return Err("a secret is empty".into());
        }
        WebhookSigner::new(&self.secrets).map_err(|e| SettingError::of(format!("a secret {e}")))?;
        check_common(&self.name, self.count, self.timeout.0, &self.selection())
    }

    /// Returns whether its messages are not signed.
    pub fn is_unsigned(&self) -> bool {
        self.secrets.is_empty() && self.secret_files.is_empty()
    }

    /// Returns the files that hold its secrets.
    pub(crate) fn secret_files(&self) -> &[PathBuf] {
        &self.secret_files
    }

    /// Returns a signer of its messages.
    ///
    /// # Errors
    /// If a file with secrets cannot be read.
    pub fn signer(&self) -> Result<WebhookSigner> {
        let mut secrets = self.secrets.clone();
        let wrong = |why: String| Error::Hook { name: self.name.clone(), why };
        for file in &self.secret_files {
            let found = secrets_of(file).map_err(|e| wrong(e.to_string()))?;
            if found.is_empty() {
                return Err(wrong(format!("no secret is in '{}'", file.display())));
            }
            secrets.extend(found);
        }
        WebhookSigner::new(&secrets).map_err(|e| wrong(format!("a secret {e}")))
    }

    /// Returns the client that posts to it, over the proxies of `environment`. `ca_file` is
    /// `transport.ca_file`.
    ///
    /// # Errors
    /// If the text of a proxy is no URL of one.
    pub fn client(&self, environment: &Environment, ca_file: Option<&Path>) -> Result<HttpPost> {
        let roots = environment.roots(ca_file);
        let agent = format!("weir/{}", env!("CARGO_PKG_VERSION"));
        Ok(HttpPost::new(&self.url, &agent, self.timeout.0, &environment.proxies(), roots)?)
    }
}
