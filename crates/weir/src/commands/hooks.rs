//! `hooks`: lists the hooks of weir.toml, and tries them.

use std::io::Write;
use std::process::ExitCode;

use weir_arguments::{Global, HooksCommand};
use weir_catalog::clock::now;
use weir_ground::Stop;
use weir_pool::{HookState, Pool, hook_states, test_hook};
use weir_process::stop_on_signal;
use weir_terminal::{hook_lines::state_of, output};

use crate::error::{Error, Result};

pub(crate) fn hooks(pool: &Pool, global: &Global, command: &HooksCommand) -> Result<ExitCode> {
    match command {
        HooksCommand::Ls => ls(pool, global)?,
        HooksCommand::Retry { name } => {
            if pool.config.hooks.command.iter().any(|command| command.name == *name) {
                let text = format!("'{name}' is a command: only webhooks wait before they are tried again");
                return Err(Error::Message(text));
            }
            if !pool.config.hooks.webhook.iter().any(|webhook| webhook.name == *name) {
                return Err(Error::Message(format!("no [[hooks.webhook]] in weir.toml is called '{name}'")));
            }
            let is_failing = pool.catalog.events().retry_hook(&format!("webhook {name}"), now())?;
            if !is_failing && !global.quiet {
                writeln!(output::stdout(), "the webhook '{name}' does not fail")?;
            }
        }
        HooksCommand::Test { name } => {
            let stop = Stop::default();
            stop_on_signal(&stop)?;
            let tested = test_hook(pool, name, &stop)?;
            match global.json {
                true => output::json(&tested)?,
                false => writeln!(output::stdout(), "{name}: {}", tested.said)?,
            }
            return Ok(ExitCode::from(u8::from(!tested.is_taken)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ls(pool: &Pool, global: &Global) -> Result<()> {
    let states = hook_states(pool)?;
    if global.json {
        return Ok(output::json(&states)?);
    }
    let mut rows = vec![["NAME", "KIND", "WAITING", "STATE", "TARGET"].map(str::to_owned).to_vec()];
    rows.extend(states.iter().map(|hook| {
        let HookState { name, kind, target, waiting, .. } = hook;
        let state = state_of(hook, now()).unwrap_or_else(|| "ok".to_owned());
        vec![name.clone(), (*kind).to_owned(), waiting.to_string(), state, target.clone()]
    }));
    Ok(output::table(&rows, &[2])?)
}
