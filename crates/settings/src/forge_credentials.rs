//! Tokens of forges as credentials of clones.

use std::time::Duration;

use weir_crawl::CrawlSource;
use weir_forge::{Api, ApiOptions, AppTokens};
use weir_transport::{CredentialSource, Credentials, Url};

use crate::error::Result;
use crate::forges::ForgeConfig;

/// The credentials of one forge.
struct OfForge {
    config: ForgeConfig,
    user: &'static str,
    app: Option<AppTokens>,
}

/// The credentials of all configured forges. Each is sent to the host of its forge, and nowhere else.
pub struct ForgeCredentials(Vec<OfForge>);

impl ForgeCredentials {
    /// Returns the credentials of `forges`.
    pub fn of(forges: &[ForgeConfig]) -> ForgeCredentials {
        let of_forge = |config: &ForgeConfig| {
            let app = app_of(config).unwrap_or_else(|e| {
                tracing::warn!("{}: cloning without its GitHub App: {e}", config.name());
                None
            });
            Some(OfForge { user: config.clone_user()?, app, config: config.clone() })
        };
        ForgeCredentials(forges.iter().filter_map(of_forge).collect())
    }
}

/// Returns the tokens of a forge's App, if it has one.
fn app_of(config: &ForgeConfig) -> Result<Option<AppTokens>> {
    let Some(app) = config.app()? else { return Ok(None) };
    Ok(Some(AppTokens::new(Api::new(ApiOptions {
        app: Some(app),
        agent: format!("weir/{}", env!("CARGO_PKG_VERSION")),
        tries: 1,
        timeout: Duration::from_secs(20),
        connect: config.connect()?,
        ..Default::default()
    }))))
}

impl CredentialSource for ForgeCredentials {
    fn find(&self, url: &Url) -> Vec<Credentials> {
        let mut found = Vec::new();
        let owner = url.path.trim_start_matches('/').split('/').next().unwrap_or_default();
        for OfForge { config, user, app } in
            self.0.iter().filter(|forge| is_below(&url.http_base(), &forge.config.url))
        {
            let credentials = |password: String| Credentials { user: (*user).to_owned(), password };
            match app.as_ref().map_or(Ok(None), |app| app.token_for(owner)) {
                Ok(token) => found.extend(token.map(credentials)),
                Err(e) => {
                    tracing::warn!("{}: cannot get a token of its GitHub App for {owner}: {e}", config.name())
                }
            }
            match config.tokens() {
                Ok(tokens) => found.extend(tokens.into_iter().map(credentials)),
                Err(e) => tracing::warn!("{}: {e}", config.name()),
            }
        }
        found
    }
}

/// Returns whether `url` lies below `base`.
fn is_below(url: &str, base: &str) -> bool {
    let base = base.trim_end_matches('/');
    let is_start = url.get(..base.len()).is_some_and(|start| start.eq_ignore_ascii_case(base));
    is_start && url[base.len()..].starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn whose_tokens() {
        assert!(
            is_below("https://github.com/a/b.git", "https://github.com/")
                && is_below("https://GitHub.com/a", "https://github.com")
        );
        for other in [
            "http://github.com/a",
            "https://github.com.evil.org/a",
            "https://github.com",
            "https://github.com:444/a",
            "https://g",
        ] {
            assert!(!is_below(other, "https://github.com"), "{other}");
        }
    }
}
