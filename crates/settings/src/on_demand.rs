//! Repositories that are mirrored when a client asks for them.

use serde::{Deserialize, Serialize};
use weir_ground::{check_pattern, name_matches};

use crate::config_values::{Span, shown_url};
use crate::error::SettingError;

/// Repositories that are mirrored when a client asks for them (`[[serve.fetch_on_demand]]`).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OnDemandConfig {
    /// Patterns of their names.
    pub repositories: Vec<String>,
    /// Their upstreams: `{name}` stands for the name, `{path}` for the name without its first part.
    /// It is shown without its password.
    #[serde(default = "https_name", serialize_with = "shown_url")]
    pub url: String,
    /// The names of the tokens with which clients may ask for them; all who may read may ask, without.
    #[serde(default)]
    pub tokens: Vec<String>,
    /// How old a copy may be when a client begins to read it; any age is right, without.
    pub max_age: Option<Span>,
    /// How long a client waits.
    #[serde(default = "an_hour")]
    pub timeout: Span,
}

fn https_name() -> String {
    "https://{name}".to_owned()
}

fn an_hour() -> Span {
    Span::seconds(3600)
}

impl OnDemandConfig {
    /// Checks the rule; `tokens` are those that there are.
    ///
    /// # Errors
    /// If it is wrong. The error says why.
    pub fn check(&self, tokens: &[String]) -> Result<(), SettingError> {
        if self.repositories.is_empty() {
            return Err("'repositories' must name some".into());
        }
        self.repositories.iter().try_for_each(|pattern| check_pattern(pattern))?;
        if let Some(unknown) = self.tokens.iter().find(|name| !tokens.contains(name)) {
            return Err(format!("it names a token '{unknown}', which is not among access.tokens").into());
        }
        let names_host =
            |pattern: &String| !pattern.split('/').next().unwrap_or_default().contains(['*', '?']);
        let is_chosen = self.url.split_once("://").is_some_and(|(_, rest)| rest.starts_with("{name}"));
        if let Some(pattern) = self.repositories.iter().find(|pattern| is_chosen && !names_host(pattern)) {
            return Err(format!(
                "with '{pattern}' clients could choose any host: begin with the name of one"
            )
            .into());
        }
        if !self.url.contains("{name}") && !self.url.contains("{path}") {
            return Err(format!("the url '{}' needs {{name}} or {{path}}", self.url).into());
        }
        Ok(())
    }

    /// Returns the URL of the upstream of the repository called `name`, if the rule is about it.
    ///
    /// A client has chosen the name: it must consist of what is plain in a URL.
    pub fn url_of(&self, name: &str) -> Option<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        let path = name.split_once('/').map_or("", |(_, path)| path);
        let is_about = name.bytes().all(is_plain)
            && !path.is_empty()
            && self.repositories.iter().any(|pattern| name_matches(pattern, name));
        is_about.then(|| self.url.replace("{name}", name).replace("{path}", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> OnDemandConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_name_gives_a_url() {
        let rule =
            rule("repositories = ['github.com/team/*', 'here/*']\nurl = 'http://127.0.0.1:81/{path}.git'");
        assert_eq!(rule.url_of("github.com/team/a").as_deref(), Some("http://127.0.0.1:81/team/a.git"));
        for other in ["github.com/other/a", "here", "here/a%2fb", "here/a b", "here/a@b:80", "here/\u{e9}"] {
            assert_eq!(rule.url_of(other), None, "{other}");
        }
        let plain = self::rule("repositories = ['example.org']");
        assert_eq!(plain.url_of("example.org/a/b").as_deref(), Some("https://example.org/a/b"));
    }

    #[test]
    fn wrong_rules_are_named() {
        let tokens = ["ci".to_owned()];
        for (text, why) in [
            ("repositories = []", "must name some"),
            ("repositories = ['a//b']", "matches no valid"),
            ("repositories = ['a']\ntokens = ['robot']", "a token 'robot'"),
            ("repositories = ['a']\nurl = 'https://x/y'", "needs {name} or {path}"),
            ("repositories = ['a', '*/b']", "with '*/b' clients could choose any host"),
        ] {
            let error = rule(text).check(&tokens).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(rule("repositories = ['a/*']\ntokens = ['ci']").check(&tokens).is_ok());
    }
}
