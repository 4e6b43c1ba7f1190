//! The command line of weir: commands, flags and their values, with help, manual pages and completions.
//!
//! It is read into types. What a command does is in the program.
//!
//! ```
//! use clap::FromArgMatches;
//! use weir_arguments::{Cli, Command, command};
//!
//! let matches = command().try_get_matches_from(["weir", "mirror", "--jobs", "8"])?;
//! let cli = Cli::from_arg_matches(&matches)?;
//! assert!(matches!(cli.command, Command::Mirror(args) if args.jobs.is_some()));
//! # Ok::<(), clap::Error>(())
//! ```
#![allow(missing_docs, reason = "clap prints a doc comment of a struct in place of what its command is for")]

mod args;
mod clone;
mod command_groups;
mod command_line;
mod daemon;
mod events;
mod hooks;
mod lists;
mod manual;
mod mine;
mod mount;
mod setting;
mod workspace;

pub use args::{
    AddArgs, ConfigCommand, CrawlArgs, DumpFormat, ErrorsArgs, ExportFormat, ImportArgs, LsArgs,
    MetadataCommand, MetadataUpdateArgs, MirrorArgs, PurgeArgs, RepoList, RepoSelection, ServeArgs, SetArgs,
};
pub use clone::CloneArgs;
pub use command_groups::{command, explained};
pub use command_line::{Cli, Command, Global};
pub use daemon::{DaemonArgs, UploadPackArgs};
pub use events::{
    EventsBenchArgs, EventsCommand, EventsLsArgs, EventsServeArgs, RejectedArgs, ReplayArgs, SweepArgs,
};
pub use hooks::HooksCommand;
pub use manual::{completions, write_manual};
pub use mine::{DiffMerges, MineArgs, MineFormat, MineWhat, QueryArgs};
pub use mount::MountArgs;
pub use setting::Setting;
pub use workspace::WorkspaceCommand;
