//! Checks of settings: what each may be, and what it may not be beside another.

use std::path::Path;

use weir_crawl::CrawlSource;
use weir_serve::{ListenAddress, TrustedProxies};

use crate::config::Config;
use crate::config_errors::Wrong;
use crate::error::SettingError;
use crate::forges::ForgeConfig;
use crate::webhooks::WebhookConfig;

/// The least that the spool of events may hold.
const SPOOL_BYTES_MIN: u64 = 16 << 20;

impl Config {
    /// Checks all settings.
    pub(crate) fn check(&self) -> std::result::Result<(), Wrong> {
        let at_least_one = [
            ("mirror.jobs", u64::from(self.mirror.jobs)),
            ("mirror.jobs_per_host", self.mirror.jobs_per_host.into()),
            ("mirror.threads", self.mirror.threads.into()),
            ("mirror.interval", self.mirror.interval.fixed_s().unwrap_or(1)),
            ("mirror.interval_daily", self.mirror.interval_daily.0.as_secs()),
            ("mirror.interval_max", self.mirror.interval_max.0.as_secs()),
            ("mirror.retry", self.mirror.retry.0.as_secs()),
            ("transport.connect_timeout", self.transport.connect_timeout.0.as_secs()),
            ("transport.idle_timeout", self.transport.idle_timeout.0.as_secs()),
            ("transport.first_byte_timeout", self.transport.first_byte_timeout.0.as_secs()),
            ("transport.pack_start_timeout", self.transport.pack_start_timeout.0.as_secs()),
            ("events.keep", self.events.keep.0.as_secs()),
            ("events.connections_max", self.events.connections_max as u64),
            ("events.connections_per_address_max", self.events.connections_per_address_max as u64),
            ("hooks.workers", self.hooks.workers.into()),
            ("hooks.timeout", self.hooks.timeout.0.as_secs()),
            ("archive.packs_max", self.archive.packs_max.into()),
            ("serve.init_timeout", self.serve.init_timeout.0.as_secs()),
            ("serve.idle_timeout", self.serve.idle_timeout.0.as_secs()),
            ("serve.connections_max", self.serve.connections_max as u64),
            ("serve.connections_per_address_max", self.serve.connections_per_address_max as u64),
            ("serve.computed_max", self.serve.computed_max as u64),
            ("serve.computed_per_address_max", self.serve.computed_per_address_max as u64),
            ("serve.computed_per_repository_max", self.serve.computed_per_repository_max as u64),
            ("access.hook_timeout", self.access.hook_timeout.0.as_secs()),
        ];
        if let Some((key, _)) = at_least_one.into_iter().find(|(_, value)| *value == 0) {
            return Err((key, "must be at least 1".to_owned()).into());
        }
        if self.mirror.interval_min.0 > self.mirror.interval_max.0 {
            return Err(("mirror.interval_min", "is more than mirror.interval_max".to_owned()).into());
        }
        if self.transport.protocol_version_max > 2 {
            return Err(("transport.protocol_version_max", "must be 0, 1 or 2".to_owned()).into());
        }
        if self.scratch.folder.as_ref().is_some_and(|f| !f.is_dir()) {
            return Err(("scratch.folder", "is not a folder".to_owned()).into());
        }
        if let Some(fault) = self.traces.fault() {
            return Err(fault.into());
        }
        self.check_serve()?;
        self.check_tables()?;
        Ok(())
    }

    fn check_serve(&self) -> std::result::Result<(), Wrong> {
        let metrics = ("serve.metrics", &self.serve.metrics);
        for (key, list) in [
            metrics,
            ("serve.git", &self.serve.git),
            ("serve.http", &self.serve.http),
            ("serve.https", &self.serve.https),
            ("events.listen", &self.events.listen),
            ("events.udp", &self.events.udp),
        ] {
            for address in list {
                address.parse::<ListenAddress>().map_err(|e| (key, format!("is wrong: {e}")))?;
            }
        }
        if !self.serve.https.is_empty()
            && (self.serve.tls_certificate.is_none() || self.serve.tls_key.is_none())
        {
            return Err(("serve.https", "needs serve.tls_certificate and serve.tls_key".to_owned()).into());
        }
        if let Some(wrong) = self.events.add.iter().find(|pattern| pattern.contains("://")) {
            let text = format!("'{wrong}' is a URL: a pattern is one of names, such as github.com/our-team");
            return Err(("events.add", text).into());
        }
        if let Some(wrong) = self.events.add.iter().find(|pattern| pattern.ends_with(".git")) {
            return Err(("events.add", format!("'{wrong}': names do not end with .git")).into());
        }
        self.access.rules().map_err(|e| ("access", format!("is wrong: {e}")))?;
        self.events.gate(&self.access).map_err(|e| ("events", format!("is wrong: {e}")))?;
        if let Some(address) = self.events.udp.iter().find(|address| address.starts_with("unix:")) {
            return Err(("events.udp", format!("is wrong: '{address}' is no address of UDP")).into());
        }
        if self.events.spool_bytes_max.0 < SPOOL_BYTES_MIN {
            return Err(("events.spool_bytes_max", "must be at least 16 MiB".to_owned()).into());
        }
        let proxies = TrustedProxies::new(&self.serve.trusted_proxies, self.serve.proxy_protocol);
        proxies.map_err(|e| ("serve.trusted_proxies", format!("is wrong: {e}")))?;
        if self.serve.proxy_protocol && self.serve.trusted_proxies.is_empty() {
            return Err((
                "serve.proxy_protocol",
                "needs serve.trusted_proxies: the proxies that send the header".to_owned(),
            )
                .into());
        }
        Ok(())
    }

    /// Checks the settings that may occur any number of times: rules, maps, forges.
    fn check_tables(&self) -> std::result::Result<(), Wrong> {
        for (n, rule) in self.mirror.rules.iter().enumerate() {
            rule.check().map_err(|e| Wrong {
                key: "mirror.rules",
                table: n,
                why: format!("number {}: {e}", n + 1),
            })?;
        }
        let wrong = |key, table| move |e| Wrong { key, table, why: format!("is wrong: {e}") };
        for (n, map) in self.serve.map.iter().enumerate() {
            map.rule().map_err(wrong("serve.map", n))?;
        }
        let tokens: Vec<String> = self.access.tokens.iter().map(|token| token.name.clone()).collect();
        for (n, rule) in self.serve.fetch_on_demand.iter().enumerate() {
            rule.check(&tokens).map_err(wrong("serve.fetch_on_demand", n))?;
        }
        for (n, forge) in self.forge.iter().enumerate() {
            forge.check().map_err(wrong("forge", n))?;
        }
        for (n, webhook) in self.events.webhook.iter().enumerate() {
            webhook.check().map_err(wrong("events.webhook", n))?;
            self.check_sweep(webhook).map_err(wrong("events.webhook", n))?;
        }
        for (n, table) in self.events.table.iter().enumerate() {
            table.open(Path::new(""), "").map_err(wrong("events.table", n))?;
        }
        for (n, worker) in self.events.worker.iter().enumerate() {
            worker.spec(Path::new("")).map_err(wrong("events.worker", n))?;
        }
        for (n, command) in self.hooks.command.iter().enumerate() {
            command.check().map_err(wrong("hooks.command", n))?;
        }
        for (n, webhook) in self.hooks.webhook.iter().enumerate() {
            webhook.check().map_err(wrong("hooks.webhook", n))?;
        }
        let commands = self.hooks.command.iter().map(|command| command.name.clone());
        let names = commands.chain(self.hooks.webhook.iter().map(|webhook| webhook.name.clone()));
        differ("hooks.webhook", "and hooks.command have", names)?;
        for (n, stream) in self.events.stream.iter().enumerate() {
            stream.check().map_err(wrong("events.stream", n))?;
        }
        differ("events.stream", "has", self.events.stream.iter().map(|stream| stream.name.clone()))?;
        // The names of both stand beside each other in the list of what was rejected.
        let tables = self.events.table.iter().map(|table| table.name.clone());
        let names = tables.chain(self.events.worker.iter().map(|worker| worker.name.clone()));
        differ("events.table", "and events.worker have", names)?;
        differ("forge", "has", self.forge.iter().map(ForgeConfig::name))?;
        differ("events.webhook", "has", self.events.webhook.iter().map(|webhook| webhook.name().to_owned()))
    }
}

impl Config {
    /// Checks that the forge is there which lists the deliveries of `webhook`.
    fn check_sweep(&self, webhook: &WebhookConfig) -> std::result::Result<(), SettingError> {
        if webhook.sweep().is_empty() {
            return Ok(());
        }
        let name = webhook.sweep_forge();
        match self.forge.iter().find(|forge| forge.name() == name) {
            None => Err(format!("sweep_forge '{name}': no [[forge]] has this name").into()),
            Some(forge) if Some(forge.kind) != webhook.sweep_kind() => {
                Err(format!("sweep_forge '{name}' is of another type").into())
            }
            Some(forge) if forge.is_without_credentials() => Err(format!(
                "sweep_forge '{name}' needs tokens or an app: only who owns a webhook may list its deliveries"
            )
            .into()),
            Some(_) => Ok(()),
        }
    }
}

/// Checks that no two tables with the key `key` have the same name. `have` is the verb of the error, behind
/// further keys.
fn differ(
    key: &'static str,
    have: &str,
    names: impl Iterator<Item = String>,
) -> std::result::Result<(), Wrong> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err((key, format!("{have} two entries named '{}': rename one", twice[0])).into()),
        None => Ok(()),
    }
}
