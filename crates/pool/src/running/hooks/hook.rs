//! The hooks that the settings name.

use weir_catalog::EventReader;
use weir_settings::Config;

/// A hook of the settings.
#[derive(Clone, Debug)]
pub(super) enum ConfiguredHook {
    /// The program of `hooks.post_update`.
    Program,
    /// A table `[[hooks.command]]`, by its place.
    Command(usize),
    /// A table `[[hooks.webhook]]`, by its place.
    Webhook(usize),
}

impl ConfiguredHook {
    /// Returns all hooks of the settings.
    pub(super) fn all(config: &Config) -> Vec<ConfiguredHook> {
        let program = (!config.hooks.post_update.is_empty()).then_some(ConfiguredHook::Program);
        let commands = (0..config.hooks.command.len()).map(ConfiguredHook::Command);
        program
            .into_iter()
            .chain(commands)
            .chain((0..config.hooks.webhook.len()).map(ConfiguredHook::Webhook))
            .collect()
    }

    /// Returns the readers of the log that are its workers.
    pub(super) fn readers(&self, config: &Config) -> Vec<EventReader> {
        let hooks = &config.hooks;
        let updates = || vec!["update".to_owned()];
        let (name, parts, kinds) = match self {
            ConfiguredHook::Program => ("hooks".to_owned(), hooks.workers, updates()),
            ConfiguredHook::Command(n) => {
                let command = &hooks.command[*n];
                (format!("command {}", command.name), command.count, command.selection().events)
            }
            ConfiguredHook::Webhook(n) => {
                let webhook = &hooks.webhook[*n];
                (format!("webhook {}", webhook.name), webhook.count, webhook.selection().events)
            }
        };
        let parts = usize::from(parts);
        (0..parts).map(|part| EventReader { name: name.clone(), part, parts, kinds: kinds.clone() }).collect()
    }
}
