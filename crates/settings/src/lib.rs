//! The settings of a pool: one TOML file, read and checked.
//!
//! [`Config`] is the file, with a default for each key, which `docs/weir.toml` documents. Proxies,
//! certificates and ssh that the file does not name are those of an [`Environment`], which the caller passes
//! in: this crate reads no variable itself.

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
pub use forges::{ForgeConfig, ForgeKind};
pub use hooks::{EventSelection, HookCommandConfig, HookWebhookConfig, HooksConfig};
pub use on_demand::OnDemandConfig;
pub use streams::StreamConfig;
pub use traces::TracesConfig;
pub use webhooks::WebhookConfig;
