//! `clone`: makes an ordinary git repository, from a weir server with its index, or from an archive.

use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use weir_clone::{CloneOptions, CloneOutcome};
use weir_transport::{Scheme, Url};

use crate::cli::{CloneArgs, Global};
use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{path_of, transport_options};
use crate::pool_path::CONFIG_NAME;

pub(crate) fn clone(global: &Global, args: CloneArgs) -> Result<()> {
    let started = Instant::now();
    let url = Url::parse(&args.repository)?;
    // A clone of an archive connects to nothing.
    let is_archive = url.scheme == Scheme::Local && url.local_path().is_file();
    let config = match path_of(global) {
        Ok(pool) if !is_archive => config::load(&pool.path.join(CONFIG_NAME))?,
        _ => Config::default(),
    };
    let bar = progress_bar(global);
    let outcome = weir_clone::clone(&CloneOptions {
        url: &url,
        directory: args.directory.as_deref(),
        is_bare: args.bare,
        checks_out: !args.no_checkout,
        branch: args.branch.as_deref(),
        origin: &args.origin,
        verifies_all: args.verify,
        transport: &transport_options(&config),
        tell: &|transfer| {
            bar.set_length(transfer.total);
            bar.set_position(transfer.done);
            if transfer.done == transfer.total {
                bar.finish_and_clear();
            }
        },
    });
    let cloned = match outcome? {
        CloneOutcome::Done(cloned) => cloned,
        CloneOutcome::NotOffered => return hand_over(global, &args),
    };
    let took = started.elapsed().as_secs_f64();
    if global.json {
        output::json(&serde_json::json!({ "directory": cloned.directory, "objects": cloned.objects,
                "bytes": cloned.bytes, "seconds": took }))?;
    } else if !global.quiet {
        let (objects, bytes) = (cloned.objects, output::bytes(cloned.bytes));
        writeln!(
            output::stdout(),
            "cloned {url} into {}: {objects} objects, {bytes} in {took:.1} s",
            cloned.directory.display()
        )?;
    }
    Ok(())
}

/// Returns a bar that is shown once it has a length, if a user can see it.
fn progress_bar(global: &Global) -> ProgressBar {
    if !std::io::stderr().is_terminal() || global.quiet || global.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
        .expect("a valid template");
    ProgressBar::no_length().with_style(style)
}

/// Runs `git clone`, for a server that is not weir, or not over HTTP.
fn hand_over(global: &Global, args: &CloneArgs) -> Result<()> {
    if !global.quiet {
        warn_line!("{}: the server offers no whole clone; using git clone", args.repository);
    }
    let mut command = Command::new("git");
    command.arg("clone").args(["--origin", &args.origin]);
    command.args(args.bare.then_some("--bare")).args(args.no_checkout.then_some("--no-checkout"));
    command.args(global.quiet.then_some("--quiet"));
    if let Some(branch) = &args.branch {
        command.args(["--branch", branch]);
    }
    command.arg("--").arg(&args.repository).args(&args.directory);
    Err(Error::Message(format!("cannot run git: {}", command.exec())))
}
