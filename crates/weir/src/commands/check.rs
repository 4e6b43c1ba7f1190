//! `check`: finds what is wrong here, or soon will be, before a visit or a client meets it.

mod hosts;
mod machine;
mod report;
mod store;

use std::path::Path;
use std::process::ExitCode;

use report::{Level, Report};
use weir_pool::{CATALOG_NAME, CONFIG_NAME, Pool, hook_states};
use weir_settings::{is_for_everybody, secret_files, unusable};

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::pool::{open_pool, path_of};

/// If more events wait for a table or a worker, it hangs.
const WAITING_TOLD: i64 = 100_000;

pub(crate) fn check(global: &Global, offline: bool, max_count: usize) -> Result<ExitCode> {
    let mut report = Report::new(global, max_count);
    let path = path_of(global)?.path;
    machine::owner(&path, &mut report)?;
    let pool = match open_pool(global) {
        Ok(pool) => pool,
        // There is nothing to check.
        Err(e @ Error::NoPool(_)) => return Err(e),
        Err(e) => {
            report.add(Level::Error, "pool", unopened(&e, &path))?;
            return report.end();
        }
    };
    configuration(&pool, &mut report)?;
    machine::space(&pool, &mut report)?;
    machine::clock(&pool, &mut report)?;
    machine::limits(&pool, &mut report)?;
    store::catalog(&pool, &mut report)?;
    store::archives(&pool, &mut report)?;
    collectors(&pool, &mut report)?;
    hooks(&pool, &mut report)?;
    if !offline {
        hosts::hosts(&pool, &mut report)?;
        hosts::forges(&pool, &mut report)?;
    }
    report.end()
}

/// Returns why the pool at `path` cannot be opened, and what to do.
fn unopened(e: &Error, path: &Path) -> String {
    match e {
        Error::Catalog(weir_catalog::Error::Sqlite(_)) => {
            let catalog = path.join(CATALOG_NAME);
            format!(
                "{e} ('{0}'): if it is damaged, restore a backup; or move '{0}', '{0}-wal' and '{0}-shm' \
                away and rebuild it from the store with 'weir init' and 'weir adopt'",
                catalog.display()
            )
        }
        e => e.to_string(),
    }
}

/// Checks whether tables and workers take the events that are for them.
fn collectors(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    const CHECK: &str = "events";
    for counts in pool.catalog.collector_counts()? {
        let name = &counts.name;
        match counts.rejected {
            rejected if !counts.is_known => report.add(
                Level::Warning,
                CHECK,
                format!(
                    "'{name}' is not in weir.toml any more, and has rejected {rejected}: drop them with \
                    'weir events rejected --of {name} --drop'"
                ),
            )?,
            0 => report.add(Level::Ok, CHECK, format!("'{name}' has rejected none"))?,
            rejected => report.add(
                Level::Warning,
                CHECK,
                format!("'{name}' has rejected {rejected}: see 'weir events rejected --of {name}'"),
            )?,
        }
        if counts.waiting > WAITING_TOLD {
            let text = format!(
                "{} wait for '{name}': does a process of the pool take events, and does its database answer?",
                counts.waiting
            );
            report.add(Level::Warning, CHECK, text)?;
        }
    }
    Ok(())
}

/// Checks whether hooks take the events that are for them.
fn hooks(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    const CHECK: &str = "hooks";
    for hook in hook_states(pool)? {
        let (name, waiting) = (&hook.name, hook.waiting);
        match &hook.failing {
            Some(failing) => {
                let text = format!("'{name}' fails, and {waiting} events wait: {}", failing.error);
                report.add(Level::Warning, CHECK, text)?;
            }
            None => report.add(Level::Ok, CHECK, format!("'{name}': {waiting} events wait"))?,
        }
    }
    Ok(())
}

/// Checks the programs and files that the configuration names, and who may read its secrets.
fn configuration(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    const CHECK: &str = "config";
    let unusable = unusable(&pool.config, &pool.store.path);
    for found in &unusable {
        report.add(Level::Error, CHECK, format!("{}: {}", found.key, found.why))?;
    }
    let path = pool.path.join(CONFIG_NAME);
    if !path.exists() {
        report.add(
            Level::Warning,
            CHECK,
            format!("'{}' does not exist: using the defaults", path.display()),
        )?;
    } else if unusable.is_empty() {
        report.add(Level::Ok, CHECK, format!("{}: all that it names exists", path.display()))?;
    }
    let config = &pool.config;
    if !config.events.webhook.is_empty() && config.serve.http.is_empty() && config.serve.https.is_empty() {
        let text = "webhooks come in by HTTP, and neither serve.http nor serve.https is set";
        report.add(Level::Warning, CHECK, text.to_owned())?;
    }
    for webhook in config.hooks.webhook.iter().filter(|webhook| webhook.is_unsigned()) {
        let text = format!("messages to the webhook '{}' are not signed: it has no secret", webhook.name);
        report.add(Level::Warning, CHECK, text)?;
    }
    let own = pool.readable_secrets();
    let named = secret_files(&pool.config).into_iter().filter(|path| is_for_everybody(path));
    for path in own.into_iter().chain(named) {
        let path = path.display();
        report.add(
            Level::Warning,
            CHECK,
            format!("'{path}' may hold secrets and is world-readable: run chmod o= '{path}'"),
        )?;
    }
    Ok(())
}
