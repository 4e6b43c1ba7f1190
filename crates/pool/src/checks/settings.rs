//! Checks what the settings name: programs and files, tables, workers and hooks.

use weir_settings::{is_for_everybody, secret_files, unusable};

use crate::checks::report::{CheckLevel, CheckRemedy, CheckReport, FindingText};
use crate::error::Result;
use crate::running::{CONFIG_NAME, Pool, hook_states};

/// If more events wait for a table or a worker, it hangs.
const WAITING_TOLD: i64 = 100_000;

/// Checks whether tables and workers take the events that are for them.
pub(crate) fn collectors(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "events";
    for counts in pool.catalog.received().collector_counts()? {
        let name = &counts.name;
        match counts.rejected {
            rejected if !counts.is_known => {
                let text = format!("'{name}' is not in weir.toml any more, and has rejected {rejected}");
                let text = FindingText::with(text, CheckRemedy::DropRejected(name.clone()));
                report.add_text(CheckLevel::Warning, CHECK, text)?;
            }
            0 => report.add(CheckLevel::Ok, CHECK, format!("'{name}' has rejected none"))?,
            rejected => {
                let text = format!("'{name}' has rejected {rejected}");
                let text = FindingText::with(text, CheckRemedy::SeeRejected(name.clone()));
                report.add_text(CheckLevel::Warning, CHECK, text)?;
            }
        }
        if counts.waiting > WAITING_TOLD {
            let text = format!(
                "{} wait for '{name}': does a process of the pool take events, and does its database answer?",
                counts.waiting
            );
            report.add(CheckLevel::Warning, CHECK, text)?;
        }
    }
    Ok(())
}

/// Checks whether hooks take the events that are for them.
pub(crate) fn hooks(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "hooks";
    for hook in hook_states(pool)? {
        let (name, waiting) = (&hook.name, hook.waiting);
        match &hook.failing {
            Some(failing) => {
                let text = format!("'{name}' fails, and {waiting} events wait: {}", failing.error);
                report.add(CheckLevel::Warning, CHECK, text)?;
            }
            None => report.add(CheckLevel::Ok, CHECK, format!("'{name}': {waiting} events wait"))?,
        }
    }
    Ok(())
}

/// Checks the programs and files that the configuration names, and who may read its secrets.
pub(crate) fn configuration(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "config";
    let unusable = unusable(&pool.config, &pool.store.path);
    for found in &unusable {
        report.add(CheckLevel::Error, CHECK, format!("{}: {}", found.key, found.why))?;
    }
    let path = pool.path.join(CONFIG_NAME);
    if unusable.is_empty() {
        report.add(CheckLevel::Ok, CHECK, format!("{}: all that it names exists", path.display()))?;
    }
    let config = &pool.config;
    if !config.events.webhook.is_empty() && config.serve.http.is_empty() && config.serve.https.is_empty() {
        let text = "webhooks come in by HTTP, and neither serve.http nor serve.https is set";
        report.add(CheckLevel::Warning, CHECK, text.to_owned())?;
    }
    for webhook in config.hooks.webhook.iter().filter(|webhook| webhook.is_unsigned()) {
        let text = format!("messages to the webhook '{}' are not signed: it has no secret", webhook.name);
        report.add(CheckLevel::Warning, CHECK, text)?;
    }
    let own = pool.readable_secrets();
    let named = secret_files(&pool.config).into_iter().filter(|path| is_for_everybody(path));
    for path in own.into_iter().chain(named) {
        let path = path.display();
        report.add(
            CheckLevel::Warning,
            CHECK,
            format!("'{path}' may hold secrets and is world-readable: run chmod o= '{path}'"),
        )?;
    }
    Ok(())
}
