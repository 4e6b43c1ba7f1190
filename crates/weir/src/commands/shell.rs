//! `shell`: serves the request of an ssh client from a pool, in place of git-shell.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use weir_arguments::Global;
use weir_browse::RemoteArchives;
use weir_pool::CatalogLocator;
use weir_serve::{Client, ShellLimits, ShellRequest, append_access_line, serve_shell};
use weir_terminal::warn_line;

use crate::error::Result;
use crate::pool::open_pool;
use crate::silence::{FATAL, give_up};

pub(crate) fn shell(global: &Global, command: Option<String>, known_as: Option<String>) -> Result<ExitCode> {
    let fatal = |words: &str| {
        warn_line!("fatal: {}", words.escape_default());
        Ok(ExitCode::from(FATAL))
    };
    let Some(command) = command.or_else(|| std::env::var("SSH_ORIGINAL_COMMAND").ok()) else {
        return fatal("no shell access here; clone repositories with git");
    };
    let asked = match ShellRequest::parse(&command, &std::env::var("GIT_PROTOCOL").unwrap_or_default()) {
        Ok(asked) => asked,
        Err(why) => return fatal(why),
    };
    let address = std::env::var("SSH_CONNECTION").ok().and_then(|connection| {
        let mut words = connection.split(' ');
        Some((words.next()?.parse::<std::net::IpAddr>().ok()?, words.next()?.parse::<u16>().ok()?).into())
    });
    let pool = open_pool(global)?;
    let began = Instant::now();
    let client = Client { address, known_as, token: None };
    let c = &pool.config.serve;
    let limits = ShellLimits { idle_timeout: c.idle_timeout.0, steps_max: c.steps_max };
    let locator = CatalogLocator::new(&pool)?;
    let answered = serve_shell(&locator, &asked, &client, &limits, Arc::new(RemoteArchives), give_up)?;
    if let Some(log) = &c.access_log {
        let line = answered.access_line(&asked, &client, began.elapsed());
        if let Err(e) = append_access_line(log, &line.encode(c.access_log_format)) {
            tracing::warn!("cannot write to the access log '{}': {e}", log.display());
        }
    }
    match answered.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => fatal(&why),
    }
}
