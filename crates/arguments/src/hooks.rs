//! Subcommands of `weir hooks`.

use clap::Subcommand;

#[derive(Subcommand)]
pub enum HooksCommand {
    /// List hooks: how many events wait for each, and which fail
    Ls,
    /// Try a webhook again now that takes no events
    Retry {
        /// The name of the webhook in weir.toml
        name: String,
    },
    /// Send a webhook or a command an event of the kind 'test', once
    ///
    /// Exits with status 1 if it does not take the event.
    Test {
        /// The name of the webhook or command in weir.toml
        name: String,
    },
}
