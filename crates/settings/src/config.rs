//! The configuration file: one TOML file. Every key is optional and documented in `docs/weir.toml`.

use std::path::{Path, PathBuf};

use nix::unistd::User;
use serde::{Deserialize, Serialize};
use weir_catalog::AccessNames;
use weir_collect::LineFilter;
use weir_crawl::CrawlSource;
use weir_events::DoorGate;
use weir_ground::{FileError, check_pattern};
use weir_serve::{Access, AccessLogFormat, AccessRule, MapRule, Token, network as network_of};

use crate::collectors::{TableConfig, WorkerConfig};
use crate::config_errors::{Wrong, line_of, toml_error, without_empty_tables};
use crate::config_values::{IntervalSetting, MirrorRule, RefsConfig, Size, Span, shown_database};
use crate::environment::Environment;
use crate::error::{Error, Result, SettingError};
use crate::forges::ForgeConfig;
use crate::hooks::HooksConfig;
use crate::on_demand::OnDemandConfig;
use crate::streams::StreamConfig;
use crate::traces::TracesConfig;
use crate::webhooks::WebhookConfig;

/// The largest configuration file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The text of the file in a new pool.
pub const TEMPLATE: &str = include_str!("../../../docs/weir.toml");

/// The settings of a pool.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub catalog: CatalogConfig,
    pub mirror: MirrorConfig,
    pub transport: TransportConfig,
    pub limits: LimitsConfig,
    pub scratch: ScratchConfig,
    pub archive: ArchiveConfig,
    pub store: StoreConfig,
    pub events: EventsConfig,
    pub hooks: HooksConfig,
    pub serve: ServeConfig,
    pub traces: TracesConfig,
    pub access: AccessConfig,
    pub forge: Vec<ForgeConfig>,
    /// What the settings leave to the environment.
    #[serde(skip)]
    pub environment: Environment,
}

/// The table `[catalog]`: where the database is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CatalogConfig {
    /// The URL of the catalog. It is shown without its password.
    #[serde(serialize_with = "shown_database")]
    pub url: Option<String>,
}

/// The table `[mirror]`: how and when upstreams are visited.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorConfig {
    pub jobs: u16,
    pub jobs_per_host: u16,
    pub interval: IntervalSetting,
    pub interval_daily: Span,
    pub interval_min: Span,
    pub interval_max: Span,
    pub retry: Span,
    pub retry_max: Span,
    pub gone: Span,
    pub forbidden: Span,
    pub throttle_window: u32,
    pub throttle_leak: Span,
    pub throttle_pause: Span,
    pub refs: RefsConfig,
    pub rules: Vec<MirrorRule>,
    pub lfs: bool,
    pub lease: Span,
    pub metadata_interval: Span,
    pub threads: u16,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from) as u16;
        MirrorConfig {
            jobs: 8,
            jobs_per_host: 4,
            interval: IntervalSetting::Auto,
            interval_daily: Span::seconds(6 * 3600),
            interval_min: Span::seconds(600),
            interval_max: Span::seconds(30 * 86_400),
            gone: Span::seconds(31 * 86_400),
            forbidden: Span::seconds(7 * 86_400),
            throttle_window: 60,
            throttle_leak: Span::seconds(1),
            throttle_pause: Span::seconds(1800),
            retry: Span::seconds(300),
            retry_max: Span::seconds(86_400),
            refs: RefsConfig::default(),
            rules: Vec::new(),
            lfs: false,
            lease: Span::seconds(1800),
            metadata_interval: Span::seconds(86_400),
            threads: cores,
        }
    }
}

/// The table `[store]`: how much room archives may take.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    pub free_bytes_min: Size,
    pub bytes_max: Option<Size>,
    pub share_forks: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig { free_bytes_min: Size(256 << 20), bytes_max: None, share_forks: false }
    }
}

/// The table `[events]`: where events come in, and what is kept of what happened.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    pub listen: Vec<String>,
    pub udp: Vec<String>,
    pub tokens: Vec<String>,
    pub users: Option<Vec<String>>,
    pub add: Vec<String>,
    pub debounce: Span,
    pub keep: Span,
    pub spool_bytes_max: Size,
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    pub idle_timeout: Span,
    pub webhook: Vec<WebhookConfig>,
    pub table: Vec<TableConfig>,
    pub worker: Vec<WorkerConfig>,
    pub stream: Vec<StreamConfig>,
}

impl Default for EventsConfig {
    fn default() -> Self {
        EventsConfig {
            listen: Vec::new(),
            udp: Vec::new(),
            tokens: Vec::new(),
            users: None,
            add: Vec::new(),
            debounce: Span::seconds(1),
            keep: Span::seconds(7 * 86_400),
            spool_bytes_max: Size(1 << 30),
            connections_max: 16_384,
            connections_per_address_max: 1024,
            idle_timeout: Span::seconds(3600),
            webhook: Vec::new(),
            table: Vec::new(),
            worker: Vec::new(),
            stream: Vec::new(),
        }
    }
}

impl EventsConfig {
    /// Returns who may send lines. Tokens are those of `access`.
    ///
    /// # Errors
    /// If there is no such token or user. The error says which.
    pub fn gate(&self, access: &AccessConfig) -> std::result::Result<DoorGate, SettingError> {
        let all = access.known_tokens()?;
        let token = |name: &String| {
            let found = all.iter().find(|token| token.name == *name);
            let missing = || format!("tokens names '{name}', which is not among access.tokens");
            found.map(|token| (name.clone(), token.sha256)).ok_or_else(missing)
        };
        let tokens = self.tokens.iter().map(token).collect::<std::result::Result<_, _>>()?;
        let user = |name: &String| match name.parse() {
            Ok(uid) => Ok::<_, SettingError>(uid),
            Err(_) => match User::from_name(name) {
                Ok(Some(user)) => Ok(user.uid.as_raw()),
                _ => Err(format!("users names '{name}', which is no user of this machine").into()),
            },
        };
        let users = self.users.as_ref().map(|users| users.iter().map(user).collect());
        Ok(DoorGate { tokens, users: users.transpose()? })
    }

    /// Returns the filters of all tables and workers. A line that one of them accepts is collected.
    pub fn collected(&self) -> Vec<LineFilter> {
        let of_tables = self.table.iter().filter_map(|table| table.filter().ok());
        let of_workers = self.worker.iter().filter_map(|worker| worker.spec(Path::new("")).ok());
        of_tables.chain(of_workers.map(|spec| spec.filter)).collect()
    }
}

/// The table `[transport]`: how to reach upstreams.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportConfig {
    pub connect_timeout: Span,
    pub idle_timeout: Span,
    pub first_byte_timeout: Span,
    pub pack_start_timeout: Span,
    pub bytes_per_second_min: Size,
    pub protocol_version_max: u8,
    pub ca_file: Option<PathBuf>,
    pub ssh_command: Option<String>,
    pub netrc: Option<PathBuf>,
    pub credential_helper: bool,
}

impl Default for TransportConfig {
    fn default() -> Self {
        TransportConfig {
            connect_timeout: Span::seconds(30),
            idle_timeout: Span::seconds(120),
            first_byte_timeout: Span::seconds(600),
            pack_start_timeout: Span::seconds(3600),
            bytes_per_second_min: Size(1024),
            protocol_version_max: 2,
            ca_file: None,
            ssh_command: None,
            netrc: None,
            credential_helper: true,
        }
    }
}

/// The table `[limits]`: how much an upstream may send.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    pub pack_bytes_max: Size,
    pub objects_max: u32,
    pub object_bytes_max: Size,
    pub held_bytes_max: Size,
    pub inflated_bytes_max: Size,
    pub refs_bytes_max: Size,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let d = weir_repo::ingest::IngestLimits::default();
        LimitsConfig {
            pack_bytes_max: Size(d.pack_bytes_max),
            objects_max: d.objects_max,
            object_bytes_max: Size(d.object_bytes_max),
            held_bytes_max: Size(d.held_bytes_max),
            inflated_bytes_max: Size(d.inflated_bytes_max),
            refs_bytes_max: Size(weir_transport::TransportOptions::default().refs_bytes_max),
        }
    }
}

/// The table `[scratch]`: where packs lie while they are verified.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScratchConfig {
    pub folder: Option<PathBuf>,
    pub pack_bytes_max: Size,
    pub bytes_max: Size,
    pub delta_bytes_max: Size,
}

impl Default for ScratchConfig {
    fn default() -> Self {
        ScratchConfig {
            folder: None,
            pack_bytes_max: Size(1 << 30),
            bytes_max: Size(4 << 30),
            delta_bytes_max: Size(256 << 20),
        }
    }
}

/// The table `[archive]`: when archives are compacted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveConfig {
    pub packs_max: u32,
    pub unused_percent_max: u32,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        ArchiveConfig { packs_max: 50, unused_percent_max: 50 }
    }
}

/// The table `[serve]`: where and how repositories are served.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServeConfig {
    pub metrics: Vec<String>,
    pub git: Vec<String>,
    pub http: Vec<String>,
    pub https: Vec<String>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub files: bool,
    /// The file to which a line is written for each request.
    pub access_log: Option<PathBuf>,
    pub access_log_format: AccessLogFormat,
    pub init_timeout: Span,
    pub idle_timeout: Span,
    pub bytes_per_second_min: Size,
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    pub computed_max: usize,
    pub computed_per_address_max: usize,
    pub computed_per_repository_max: usize,
    pub queue_max: usize,
    pub queue_timeout: Span,
    pub kept_bytes_max: Size,
    pub steps_max: u64,
    pub drain_timeout: Span,
    pub push_hint: bool,
    /// Whether `REPO@STATE` is served.
    pub older_states: bool,
    /// Whether the API is served over HTTP.
    pub api: bool,
    /// Whether programs reach the API's read requests by the Model Context Protocol, at `/mcp`.
    pub mcp: bool,
    /// Whether the API runs queries in SQL.
    pub sql: bool,
    /// The time for a query, and the bytes of its tables.
    pub sql_timeout: Span,
    pub sql_bytes_max: Size,
    /// The origins of pages that may read the API's answers; `*` stands for all.
    pub cors: Vec<String>,
    pub trusted_proxies: Vec<String>,
    pub proxy_protocol: bool,
    /// Rules that map URLs to names of repositories. Without rules, the path of a URL is the name.
    pub map: Vec<MapConfig>,
    /// Repositories that are mirrored when a client asks for them.
    pub fetch_on_demand: Vec<OnDemandConfig>,
}

/// A rule that maps a URL to the name of a repository.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    #[serde(default)]
    pub host: String,
    pub path: String,
    pub to: String,
}

impl MapConfig {
    /// Returns the rule.
    ///
    /// # Errors
    /// If its patterns are wrong.
    pub fn rule(&self) -> std::result::Result<MapRule, SettingError> {
        MapRule::new(&self.host, &self.path, &self.to).map_err(SettingError::of)
    }
}

/// The table `[access]`: who may read which repositories.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    pub public: bool,
    pub hook: Option<PathBuf>,
    pub hook_timeout: Span,
    pub rules: Vec<RuleConfig>,
    pub tokens: Vec<TokenConfig>,
}

impl Default for AccessConfig {
    fn default() -> Self {
        AccessConfig {
            public: true,
            hook: None,
            hook_timeout: Span::seconds(10),
            rules: Vec::new(),
            tokens: Vec::new(),
        }
    }
}

/// A rule about who may read some repositories.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    pub repositories: Vec<String>,
    #[serde(default)]
    pub public: bool,
    #[serde(default)]
    pub tokens: Vec<String>,
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// A token of a client, known by its hash.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    pub name: String,
    pub sha256: String,
    /// The rights of its client.
    #[serde(default = "read_only")]
    pub scopes: Vec<TokenScope>,
}

/// A right of the client of a token.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Read what `access.rules` say.
    Read,
    /// Also manage the pool over the API: see all of its state, add, pause and remove repositories.
    Manage,
}

fn read_only() -> Vec<TokenScope> {
    vec![TokenScope::Read]
}

impl AccessConfig {
    /// Returns which names rules are about, but for those that let everybody read.
    pub fn names(&self) -> AccessNames {
        AccessNames(self.rules.iter().filter(|rule| !rule.public).map(|r| r.repositories.clone()).collect())
    }

    /// Returns the access rules in force.
    ///
    /// # Errors
    /// If a rule or a token is wrong.
    pub fn rules(&self) -> std::result::Result<Access, SettingError> {
        let tokens = self.known_tokens()?;
        let rule = |r: &RuleConfig| {
            r.repositories.iter().try_for_each(|pattern| check_pattern(pattern)).map_err(SettingError::of)?;
            if let Some(unknown) = r.tokens.iter().find(|name| !tokens.iter().any(|t| t.name == **name)) {
                return Err(format!(
                    "the rule for {:?} names a token '{unknown}', which is not among access.tokens",
                    r.repositories
                )
                .into());
            }
            let network = |text: &String| {
                network_of(text)
                    .ok_or_else(|| format!("'{text}' is neither an address nor a network such as 10.0.0.0/8"))
                    .map_err(SettingError::from)
            };
            let addresses =
                r.addresses.iter().map(network).collect::<std::result::Result<_, SettingError>>()?;
            Ok(AccessRule {
                repositories: r.repositories.clone(),
                public: r.public,
                tokens: r.tokens.clone(),
                addresses,
            })
        };
        let rules = self.rules.iter().map(rule).collect::<std::result::Result<_, SettingError>>()?;
        Ok(Access { public: self.public, rules, tokens })
    }

    /// Returns the tokens.
    fn known_tokens(&self) -> std::result::Result<Vec<Token>, SettingError> {
        let token = |t: &TokenConfig| {
            let nibble = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
            let bytes: Option<Vec<u8>> = t
                .sha256
                .as_bytes()
                .chunks(2)
                .map(|c| Some(nibble(*c.first()?)? << 4 | nibble(*c.get(1)?)?))
                .collect();
            let sha256 = bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| {
                format!(
                    "token '{}': sha256 must be 64 hexadecimal digits; printf %s TOKEN | sha256sum \
                    prints them",
                    t.name
                )
            })?;
            Ok(Token { name: t.name.clone(), sha256, manages: t.scopes.contains(&TokenScope::Manage) })
        };
        self.tokens.iter().map(token).collect()
    }
}

impl Default for ServeConfig {
    fn default() -> Self {
        let d = weir_serve::DaemonLimits::default();
        ServeConfig {
            metrics: Vec::new(),
            git: vec!["127.0.0.1:9418".to_owned()],
            http: Vec::new(),
            https: Vec::new(),
            tls_certificate: None,
            tls_key: None,
            files: false,
            access_log: None,
            access_log_format: AccessLogFormat::default(),
            init_timeout: Span(d.init_timeout),
            idle_timeout: Span(d.idle_timeout),
            bytes_per_second_min: Size(d.bytes_per_second_min),
            connections_max: d.connections_max,
            connections_per_address_max: d.connections_per_address_max,
            computed_max: d.computed_max,
            computed_per_address_max: d.computed_per_address_max,
            computed_per_repository_max: d.computed_per_repository_max,
            queue_max: d.queue_max,
            queue_timeout: Span(d.queue_timeout),
            kept_bytes_max: Size(d.kept_bytes_max),
            steps_max: weir_upload::UploadLimits::default().steps_max,
            drain_timeout: Span(d.drain_timeout),
            push_hint: false,
            older_states: false,
            api: true,
            mcp: true,
            sql: true,
            sql_timeout: Span::seconds(60),
            sql_bytes_max: Size(1 << 30),
            cors: Vec::new(),
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            map: Vec::new(),
            fetch_on_demand: Vec::new(),
        }
    }
}

/// Reads and checks the file at `path`. A missing file stands for an empty one.
///
/// # Errors
/// If the file cannot be read, or has a mistake: the error names the line.
pub fn load(path: &Path, environment: Environment) -> Result<Config> {
    let failed = FileError::on("read", path);
    let Some(text) = weir_repo::read_if_there(path, FILE_BYTES_MAX).map_err(failed)? else {
        return Ok(Config::of(environment));
    };
    let text = String::from_utf8(text)
        .map_err(|e| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, e.utf8_error())))?;
    let mut config = parse(&text, &path.display().to_string())?;
    config.environment = environment;
    config.forge.iter_mut().for_each(|forge| forge.environment = environment);
    if let Some(file) = &config.transport.ca_file {
        weir_transport::roots_in(file)
            .map_err(|why| Error::Wrong(format!("{}: transport.ca_file: {why}", path.display())))?;
    }
    Ok(config)
}

/// Parses and checks `text`. Errors name the line.
pub(crate) fn parse(text: &str, file: &str) -> Result<Config> {
    let is_wrong = toml::from_str::<Config>(text).is_err();
    let changed = is_wrong.then(|| without_empty_tables(text)).flatten();
    let text = changed.as_deref().unwrap_or(text);
    let mut config: Config =
        toml::from_str(text).map_err(|e| Error::Wrong(format!("{file}{}", toml_error(text, &e))))?;
    config.check().map_err(|Wrong { key, table, why }| {
        let line = line_of(text, key, table).map_or(String::new(), |n| format!(":{n}"));
        Error::Wrong(format!("{file}{line}: {key} {why}"))
    })?;
    for forge in &mut config.forge {
        forge.ca_file.clone_from(&config.transport.ca_file);
    }
    Ok(config)
}

impl Config {
    /// Returns the settings of an empty file.
    pub fn of(environment: Environment) -> Config {
        Config { environment, ..Config::default() }
    }

    /// Returns the forge for <https://github.com>, called `name` if that is given. If none is configured,
    /// returns the default one. Other forges of that type have other repositories.
    ///
    /// # Errors
    /// If there are several, or none of that name.
    pub fn github(&self, name: Option<&str>) -> std::result::Result<ForgeConfig, SettingError> {
        let is_meant = |f: &&ForgeConfig| f.is_github_com() && name.is_none_or(|name| f.name() == name);
        let mut found = self.forge.iter().filter(is_meant);
        match (found.next(), found.next(), name) {
            (Some(one), None, _) => Ok(one.clone()),
            (Some(_), Some(_), _) => {
                Err("weir.toml has several forges for GitHub; choose one by its name".into())
            }
            (None, _, None) => ForgeConfig::github_com(self.environment),
            (None, _, Some(name)) => {
                Err(format!("no [[forge]] for https://github.com is called '{name}' in weir.toml").into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_says_what_is_the_default() {
        let uncommented: String = TEMPLATE
            .lines()
            .map(|l| {
                l.strip_prefix("#").filter(|r| !r.starts_with([' ', '#'])).unwrap_or(l).to_owned() + "\n"
            })
            .collect();
        let mut from_template = parse(&uncommented, "template").unwrap();
        let mut default = Config::default();
        // These settings depend on the machine.
        (from_template.mirror.threads, default.mirror.threads) = (1, 1);
        for config in [&mut from_template, &mut default] {
            config.serve.computed_max = 1;
            config.serve.computed_per_address_max = 1;
            config.serve.computed_per_repository_max = 1;
            (config.catalog.url, config.store.bytes_max) = (None, None);
            (config.hooks.post_update, config.hooks.notify) = (Vec::new(), Vec::new());
            (config.serve.tls_certificate, config.serve.tls_key, config.access.hook) = (None, None, None);
            (config.serve.access_log, config.traces.endpoint) = (None, None);
        }
        (from_template.scratch.folder, from_template.transport.netrc, from_template.transport.ssh_command) =
            (None, None, None);
        from_template.transport.ca_file = None;
        assert_eq!(toml::to_string(&from_template).unwrap(), toml::to_string(&default).unwrap());
        parse(TEMPLATE, "template").unwrap();
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = load(&path, Environment::default()).unwrap_err().to_string();
        assert!(error.contains("is no file"), "{error}");
    }

    #[test]
    fn errors_name_the_line() {
        let fails = |text: &str| parse(text, "f").unwrap_err().to_string();
        assert!(fails("[mirror]\njobs = 8\nmirror_all = 1\n").starts_with("f:3:1: "));
        assert!(fails("[mirror]\n\njobs = 0\n").starts_with("f:3: mirror.jobs must be at least 1"));
        assert!(fails("[limits]\npack_bytes_max = \"many\"\n").starts_with("f:2:"));
        assert!(fails("[mirror\n").starts_with("f:1:"));
        let forge = "[[forge]]\ntype = \"gitlab\"\nurl = \"https://h\"\n";
        assert!(
            fails(&format!("{forge}\n[[ forge ]] # two\ntype = \"gitlab\"\nurl = \"nonsense\"\n"))
                .starts_with("f:5: forge is wrong")
        );
        let rule = "[[mirror.rules]]\nrepositories = [\"a\"]\nlfs = true\n";
        let error = fails(&format!("{rule}{}", rule.replace("\"a\"", "\"a//b\"")));
        assert!(
            error.starts_with("f:4: mirror.rules number 2: the pattern 'a//b' matches no valid"),
            "{error}"
        );
        let error = fails("[access]\nrules = [{ repositories = [\"\"] }]\n");
        assert!(error.starts_with("f:1: access is wrong: the pattern '' matches no valid"), "{error}");
    }
}
