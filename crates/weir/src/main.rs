//! weir: mirrors git repositories into one-file archives and serves them.
//!
//! This is the only crate that decides what is printed, and that reads variables of the environment, but for
//! `WEIR_POOL`, which clap reads, and for what service managers say (`process`). Each subcommand is a module
//! in `commands`. The libraries below do its work: `arguments` reads the command line, `terminal` knows how
//! things are shown.

mod client;
mod commands;
mod crawling;
mod environment;
mod error;
mod listing;
mod mined_sources;
mod own_processes;
mod pool;
mod pool_path;
mod presentation;
mod remedies;
mod service_state;
mod silence;
mod workspace_records;
mod workspace_status;

use std::process::ExitCode;

use clap::FromArgMatches;
use weir_arguments::{Cli, Command, Global};
use weir_serve::REQUEST_LOG;
use weir_terminal::{Log, LogWriter, colors, output};

use crate::commands::log_destination;
use crate::error::Error;
use crate::remedies::Remediable;

/// Returns the command line. Called by the name of one of git's programs, weir acts as that program.
fn arguments() -> Vec<std::ffi::OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let name =
        words.first().and_then(|w| std::path::Path::new(w).file_name()?.to_str()?.strip_prefix("git-"));
    if let Some(command) = name.filter(|name| matches!(*name, "daemon" | "http-backend" | "upload-pack")) {
        words.insert(1, command.into());
    }
    words
}

/// Lets threads share the memory that the allocator keeps. By default, glibc has eight arenas for each
/// processor, and each keeps what its largest work took: a server of long lists of refs held an unused GiB.
fn share_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        // SAFETY: a number is set; no other thread runs yet.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(processors).unwrap_or(libc::c_int::MAX))
        };
    }
}

/// Decides where there are colours. Returns whether standard error has.
fn chosen_colors(global: &Global) -> bool {
    let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
    colors::choose(global.color, global.json, no_color.as_deref(), term.as_deref())
}

fn main() -> ExitCode {
    share_arenas();
    let matches = weir_arguments::command()
        .try_get_matches_from(arguments())
        .unwrap_or_else(|e| weir_arguments::explained(e).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let color = chosen_colors(&cli.global);
    let level = match (cli.global.quiet, cli.global.verbose) {
        (true, _) => "error".to_owned(),
        // Clients decide how many requests there are. Like git daemon, weir logs them only if asked to.
        (_, 0) => {
            format!("warn,weir=info,weir_pool=info,weir_serve=info,weir_terminal=info,{REQUEST_LOG}=warn")
        }
        (_, 1) => "info,weir=debug,weir_pool=debug,weir_serve=debug,weir_mirror=debug,weir_terminal=debug"
            .to_owned(),
        _ => "debug".to_owned(),
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| level.into());
    let log = match &cli.command {
        Command::Daemon(args) => log_destination(args),
        // Standard error leads to the client's terminal, or to the web server's log.
        _ => Log::Stderr,
    };
    let is_coloured = color && log == Log::Stderr;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || LogWriter { log, is_coloured })
        .with_ansi(is_coloured)
        .log_internal_errors(false);
    match cli.global.json {
        true => subscriber.json().flatten_event(true).with_current_span(false).init(),
        false => subscriber.with_target(false).init(),
    }
    output::warn_in_json(cli.global.json);
    match commands::run(cli) {
        Ok(code) => code,
        // The reader went away (`weir ls | head`): that is not an error.
        Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            output::error(&e.with_remedy(), color);
            ExitCode::from(e.exit_code())
        }
    }
}
