//! The settings of a pool: one TOML file, read and checked.
//!
//! [`Config`] is the file, with a default for each key, which `docs/weir.toml` documents. Proxies,
//! certificates and ssh that the file does not name are those of an [`Environment`], which the caller passes
//! in: this crate reads no variable itself.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("weir.toml");
//! use weir_settings::{Environment, load};
//!
//! std::fs::write(&path, "[serve]\nqueue_max = 7\n")?;
//! assert_eq!(load(&path, Environment::default())?.serve.queue_max, 7);
//!
//! std::fs::write(&path, "[serve]\nqueue = 7\n")?;
//! assert!(load(&path, Environment::default()).is_err(), "a key that weir does not know");
//! # Ok(())
//! # }
//! ```

mod catalog_url;
mod collectors;
#[expect(missing_docs, reason = "docs/weir.toml documents each key")]
mod config;
mod config_checks;
mod config_errors;
mod config_files;
mod config_values;
mod environment;
mod error;
mod forge_credentials;
mod forges;
mod hooks;
mod map_file;
mod on_demand;
mod streams;
mod traces;
mod webhooks;

pub use catalog_url::{has_password, set_catalog_url, template};
pub use collectors::{TableCollector, TableConfig, WorkerConfig};
pub use config::{
    AccessConfig, ArchiveConfig, CatalogConfig, Config, EventsConfig, LimitsConfig, MapConfig, MirrorConfig,
    RuleConfig, ScratchConfig, ServeConfig, StoreConfig, TEMPLATE, TokenConfig, TransportConfig, load,
};
pub use config_files::{Unusable, is_for_everybody, secret_files, unusable};
pub use config_values::{
    IntervalSetting, MirrorRule, RefsConfig, Size, Span, interval_argument, size_argument, span_argument,
};
pub use environment::Environment;
pub use error::{Error, Result, SettingError};
pub use forge_credentials::ForgeCredentials;
pub use forges::ForgeConfig;
pub use hooks::{EventSelection, HookCommandConfig, HookWebhookConfig, HooksConfig};
pub use map_file::read_map_rules;
pub use on_demand::OnDemandConfig;
pub use streams::StreamConfig;
pub use traces::TracesConfig;
pub use webhooks::WebhookConfig;
