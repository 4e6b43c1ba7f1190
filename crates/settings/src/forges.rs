//! Forges as the configuration describes them (`[[forge]]`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_crawl::{CrawlSource, ListingFilter, ListingScope, NoName, WantedRepositories};
use weir_forge::{
    Api, ApiOptions, Connect, Forge, ForgeAbilities, ForgeKind, ForgePlace, GitHub, GitHubApp, Listed,
    MetadataKind,
};
use weir_ground::{FileError, OtherError, Stop, check_name, check_pattern, without_password};
use weir_transport::http_client;

use crate::config_values::{RefsConfig, Size, Span, hidden, shown_url};
use crate::environment::Environment;
use crate::error::{Error, Result, SettingError};

/// Which repositories a forge lists, and which of them are mirrored.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ForgeConfig {
    #[serde(rename = "type")]
    /// What it is.
    pub kind: ForgeKind,
    /// The URL of the web site or of the manifest; for a folder, its path. It is shown without its password.
    #[serde(serialize_with = "shown_url")]
    pub url: String,
    name: Option<String>,
    /// The base of the paths in a manifest, if it is not the host of the manifest's URL.
    site: Option<String>,
    /// Further hosts that clone URLs may lead to.
    #[serde(default)]
    clone_from: Vec<String>,
    #[serde(default)]
    owners: Vec<String>,
    /// Search terms of GitHub's repository search, instead of owners.
    #[serde(default)]
    search: Vec<String>,
    #[serde(default)]
    wikis: bool,
    #[serde(default)]
    /// Whether people, organisations and memberships are listed.
    pub accounts: bool,
    /// Which kinds of metadata are mirrored.
    #[serde(default)]
    metadata: Vec<MetadataKind>,
    /// Which refs of its repositories are mirrored.
    pub refs: Option<RefsConfig>,
    /// The value of `transport.ca_file`.
    #[serde(skip)]
    pub(crate) ca_file: Option<PathBuf>,
    /// The value of [`crate::Config::environment`].
    #[serde(skip)]
    pub(crate) environment: Environment,
    /// Replaced by `***` where the configuration is shown.
    #[serde(default, serialize_with = "hidden")]
    tokens: Vec<String>,
    #[serde(default)]
    token_files: Vec<PathBuf>,
    /// A GitHub App: its client id or number, its private key, and its installations (all, if none are
    /// given).
    app: Option<String>,
    app_key_file: Option<PathBuf>,
    #[serde(default)]
    app_installations: Vec<u64>,
    /// Whether clones from its host may use its tokens.
    #[serde(default = "yes")]
    clone_with_tokens: bool,
    #[serde(default)]
    languages: Vec<String>,
    #[serde(default = "yes")]
    forks: bool,
    #[serde(default = "yes")]
    archived: bool,
    #[serde(default = "yes")]
    private: bool,
    #[serde(default)]
    stars_min: u64,
    size_max: Option<Size>,
    active_since: Option<String>,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
    #[serde(default)]
    /// The most repositories to add; 0 for all.
    pub limit: u64,
    #[serde(default = "a_day")]
    /// The time between listings.
    pub interval: Span,
    #[serde(default = "four")]
    tries: u32,
    #[serde(default = "two_seconds")]
    retry: Span,
}

fn yes() -> bool {
    true
}

fn four() -> u32 {
    4
}

fn two_seconds() -> Span {
    Span(Duration::from_secs(2))
}

fn a_day() -> Span {
    Span(Duration::from_secs(86_400))
}

impl ForgeConfig {
    /// Returns whether it is https://github.com.
    pub(crate) fn is_github_com(&self) -> bool {
        self.kind == ForgeKind::Github && host_of(&self.url) == "github.com"
    }

    /// Returns https://github.com as an empty configuration has it.
    pub(crate) fn github_com(environment: Environment) -> std::result::Result<ForgeConfig, SettingError> {
        let text = "type = 'github'\nurl = 'https://github.com'";
        let default: ForgeConfig = toml::from_str(text).map_err(SettingError::of)?;
        Ok(ForgeConfig { environment, ..default })
    }

    /// Returns whether a repository belongs to one of the configured owners, or no owners are configured.
    pub fn is_of_owners(&self, listed: &Listed) -> bool {
        let owner = listed.full_name.split('/').next().unwrap_or_default();
        self.owners.is_empty() || self.owners.iter().any(|o| o.eq_ignore_ascii_case(owner))
    }

    /// Returns the URL without its password.
    fn shown_url(&self) -> String {
        without_password(&self.url)
    }

    /// Checks the settings. An error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), SettingError> {
        if self.name.is_none() && self.shown_url() != self.url {
            return Err("url has a password, which names of repositories would show: set 'name'".into());
        }
        check_name(&self.name()).map_err(|e| SettingError::of(format!("{e}; set 'name'")))?;
        self.include.iter().chain(&self.exclude).try_for_each(|pattern| check_pattern(pattern))?;
        let ForgeAbilities { has_search, has_accounts, has_wikis, has_metadata, is_folder, .. } =
            self.kind.abilities();
        if !has_search && (!self.search.is_empty() || self.app.is_some()) {
            return Err("search and app are for GitHub only".into());
        }
        if !self.search.is_empty() && !self.owners.is_empty() {
            return Err(
                "owners and search exclude each other; in a search, 'user:NAME' selects an owner".into()
            );
        }
        if self.search.iter().any(|question| question.contains("created:")) {
            return Err("'created:' in a search is reserved: weir splits searches by creation date".into());
        }
        if self.app.is_some() != self.app_key_file.is_some() {
            return Err("app and app_key_file must be set together".into());
        }
        if self.accounts && !has_accounts {
            return Err("accounts is for GitHub and Gitea only".into());
        }
        if self.wikis && !has_wikis {
            return Err("wikis is for GitHub, GitLab and Gitea only".into());
        }
        if let Some(since) = self.active_since.as_ref().filter(|since| !is_date(since)) {
            return Err(format!("active_since '{since}' is no date: YYYY-MM-DD").into());
        }
        if !self.metadata.is_empty() && !has_metadata {
            return Err("metadata is for GitHub, GitLab and Gitea only".into());
        }
        match is_folder {
            true if !Path::new(&self.url).is_absolute() => {
                Err(format!("url '{}' must be an absolute path", self.shown_url()).into())
            }
            true => Ok(()),
            false if self.url.starts_with("https://") || self.url.starts_with("http://") => Ok(()),
            false => Err(format!("url '{}' must start with https:// or http://", self.shown_url()).into()),
        }
    }

    /// Returns whether the forge has issues, pull requests and releases that weir can read.
    pub fn has_metadata(&self) -> bool {
        self.kind.abilities().has_metadata
    }

    /// Returns whether metadata is mirrored of all repositories without a setting of their own, and which
    /// kinds.
    pub fn metadata(&self) -> (bool, Vec<MetadataKind>) {
        let all = vec![MetadataKind::Issues, MetadataKind::Pulls, MetadataKind::Releases];
        if self.metadata.is_empty() { (false, all) } else { (true, self.metadata.clone()) }
    }

    /// Returns the user name that a clone sends with a token; `None` if clones send no token.
    pub fn clone_user(&self) -> Option<&'static str> {
        self.clone_with_tokens.then_some(())?;
        self.kind.abilities().clone_user
    }

    /// Checks that a clone URL from the forge leads to an allowed host. It must not name a file of this
    /// machine, nor another host, for which there may be a password.
    fn check_clone_url(&self, clone_url: &str) -> std::result::Result<(), SettingError> {
        if self.kind.abilities().is_folder {
            return Ok(());
        }
        let allowed: Vec<&str> = std::iter::once(&self.url)
            .chain(&self.site)
            .chain(&self.clone_from)
            .map(|url| host_of(url))
            .collect();
        let is_network = ["https://", "http://", "git://"].iter().any(|scheme| clone_url.starts_with(scheme));
        let host = host_of(clone_url);
        if is_network && !host.contains('@') && allowed.contains(&host) {
            return Ok(());
        }
        Err(format!(
            "its clone URL '{clone_url}' leads elsewhere; if that is right, add the host to clone_from"
        )
        .into())
    }

    /// Returns its tokens, including those in files.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn tokens(&self) -> Result<Vec<String>> {
        let mut tokens = self.tokens.clone();
        for file in &self.token_files {
            tokens.extend(secrets_of(file)?);
        }
        Ok(tokens)
    }

    /// Returns how to connect to its API: with the proxies and certificates used for upstreams.
    pub(crate) fn connect(&self) -> Result<Connect> {
        let proxy = self.environment.proxies().of_http(self.url.starts_with("https://"))?;
        let roots = self.environment.roots(self.ca_file.as_deref());
        Ok(Box::new(move |config| http_client(config, proxy.clone(), roots.clone())))
    }

    /// Returns its App, with the URL of its API.
    ///
    /// # Errors
    /// If its key cannot be read.
    pub fn app(&self) -> Result<Option<(GitHubApp, String)>> {
        let (Some(app), Some(file)) = (&self.app, &self.app_key_file) else { return Ok(None) };
        let pem = std::fs::read(file).map_err(FileError::on("read", file))?;
        let app = GitHubApp::new(app, &pem, self.app_installations.clone());
        let app = app.map_err(|source| Error::App { file: file.clone(), source })?;
        Ok(Some((app, GitHub::rest(&self.url))))
    }

    /// Returns whether it has neither tokens nor an App.
    pub(crate) fn is_without_credentials(&self) -> bool {
        self.tokens.is_empty() && self.token_files.is_empty() && self.app.is_none()
    }

    /// Returns the files that hold its tokens and keys.
    pub fn secret_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.token_files.iter().chain(&self.app_key_file)
    }

    /// Opens the forge with one try for each request, and without waiting for rate limits.
    ///
    /// # Errors
    /// If a file with tokens or keys cannot be read, or a proxy is wrong.
    pub fn open_once(&self) -> Result<Box<dyn Forge>> {
        self.open_with(1, Box::new(|time: Duration| time.is_zero()))
    }

    fn open_with(&self, tries: u32, wait: Box<dyn FnMut(Duration) -> bool + Send>) -> Result<Box<dyn Forge>> {
        let abilities = self.kind.abilities();
        let api = Api::new(ApiOptions {
            tokens: self.tokens()?,
            app: self.app()?,
            scheme: abilities.token_scheme,
            agent: format!("weir/{}", env!("CARGO_PKG_VERSION")),
            tries,
            retry: self.retry.0,
            connect: self.connect()?,
            wait,
            ..ApiOptions::default()
        });
        let scheme = self.url.split("://").next().unwrap_or("https");
        let host = format!("{scheme}://{}", host_of(&self.url));
        // The base of the paths of repositories.
        let base = if abilities.serves_below_url { &self.url } else { &host };
        let (owners, search) = (self.owners.clone(), self.search.clone());
        let site = self.site.as_ref().unwrap_or(base);
        Ok(self.kind.open(ForgePlace { url: &self.url, site, owners, search }, api))
    }
}

impl CrawlSource for ForgeConfig {
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| match self.kind.abilities().is_folder {
            true => {
                Path::new(&self.url).file_name().map_or("folder".into(), |n| n.to_string_lossy().into_owned())
            }
            // Repositories of this host get the same prefix when they are added by URL.
            false => host_of(&self.url).replace(':', "_"),
        })
    }

    fn scope(&self) -> ListingScope {
        ListingScope::new(self.kind.name(), &self.shown_url(), &self.owners, &self.search)
    }

    fn name_of(&self, listed: &Listed) -> std::result::Result<Option<String>, NoName> {
        let matches = |pattern: &String| weir_ground::name_matches(pattern, &listed.full_name);
        if (!self.include.is_empty() && !self.include.iter().any(matches)) || self.exclude.iter().any(matches)
        {
            return Ok(None);
        }
        let name = format!("{}/{}", self.name(), listed.full_name);
        if name.split('/').any(|part| part == ".git") {
            return Err(NoName(format!("'{name}' is not a valid name")));
        }
        check_name(&name).map_err(|e| NoName(e.to_string()))?;
        self.check_clone_url(&listed.clone_url).map_err(|e| NoName(e.to_string()))?;
        Ok(Some(name))
    }

    fn wanted(&self) -> WantedRepositories {
        let filter = ListingFilter {
            languages: self.languages.clone(),
            skip_forks: !self.forks,
            skip_archived: !self.archived,
            skip_private: !self.private,
            stars_min: self.stars_min,
            kibibytes_max: self.size_max.map(|size| size.0 / 1024),
            active_since: self.active_since.clone(),
        };
        WantedRepositories {
            filter,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            wikis: self.wikis,
            prefix: self.name(),
            site: self.site.clone(),
            clone_from: self.clone_from.clone(),
        }
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn interval_s(&self) -> i64 {
        self.interval.0.as_secs() as i64
    }

    fn lists_accounts(&self) -> bool {
        self.accounts
    }

    fn open(&self, stop: &Stop) -> std::result::Result<Box<dyn Forge>, OtherError> {
        let stop = stop.clone();
        let wait = move |time: Duration| stop.sleep(time);
        Ok(self.open_with(self.tries, Box::new(wait))?)
    }
}

/// Returns the secrets in a file: one a line, without empty lines and comments.
pub(crate) fn secrets_of(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(FileError::on("read", file))?;
    // Some editors begin a file with a mark.
    let lines = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// Returns whether `text` begins with a date as forges write it (RFC 3339).
fn is_date(text: &str) -> bool {
    let is_digits = |text: &str, len| text.len() == len && text.bytes().all(|c| c.is_ascii_digit());
    let day = text.split('T').next().unwrap_or(text);
    let parts: Vec<&str> = day.split('-').collect();
    matches!(parts[..], [year, month, day] if is_digits(year, 4) && is_digits(month, 2) && is_digits(day, 2))
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}
