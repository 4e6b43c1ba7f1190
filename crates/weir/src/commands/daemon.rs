//! `daemon`: serves ordinary directories and archives with git-daemon's options, which mean the same as
//! there.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use weir_arguments::{DaemonArgs, Global};
use weir_ground::{FileError, Stop};
use weir_process::{drop_privileges, stop_on_signal};
use weir_serve::{
    Address, Daemon, DaemonLimits, Door, Hook, Listener, LogLine, PathLocator, raise_descriptor_limit,
    serve_inetd,
};
use weir_settings::read_map_rules;
use weir_terminal::Log;
use weir_upload::UploadOptions;

use crate::error::{Error, Result};
use crate::presentation::presentation;
use crate::silence::give_up;

/// The port of git://.
const PORT: u16 = 9418;
/// How long a hook may run.
const HOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the requested services that stay off, whether upload-pack is on, and whether repositories may
/// override that.
fn services(args: &DaemonArgs) -> Result<(Vec<&str>, bool, bool)> {
    let mut stay_off = Vec::new();
    for service in
        args.enable.iter().chain(&args.disable).chain(&args.allow_override).chain(&args.forbid_override)
    {
        match service.as_str() {
            "upload-pack" => {}
            "receive-pack" | "upload-archive" => {
                if args.enable.contains(service) && !args.disable.contains(service) {
                    stay_off.push(service.as_str());
                }
            }
            _ => {
                return Err(Error::Message(format!(
                    "service '{service}' is unknown: there are upload-pack, receive-pack and upload-archive"
                )));
            }
        }
    }
    let has = |list: &[String]| list.iter().any(|s| s == "upload-pack");
    Ok((stay_off, !has(&args.disable), !has(&args.forbid_override)))
}

fn limits(args: &DaemonArgs) -> DaemonLimits {
    let defaults = DaemonLimits::default();
    let seconds = |given: Option<u64>, default: Duration| match given {
        None => default,
        Some(0) => Duration::MAX,
        Some(seconds) => Duration::from_secs(seconds),
    };
    DaemonLimits {
        init_timeout: seconds(args.init_timeout, defaults.init_timeout),
        idle_timeout: seconds(args.timeout, defaults.idle_timeout),
        connections_max: match args.max_connections {
            None => defaults.connections_max,
            Some(0) => usize::MAX,
            Some(n) => n,
        },
        ..defaults
    }
}

fn addresses(args: &DaemonArgs) -> Result<Vec<Address>> {
    let port = args.port.unwrap_or(PORT);
    let mut out = Vec::new();
    for host in &args.listen {
        match host.strip_prefix("unix:") {
            Some("") => return Err(Error::Message("the path of the socket is missing".to_owned())),
            Some(path) => {
                out.push(Address::Unix(path.into()));
                continue;
            }
            None => {}
        }
        let found = (host.trim_start_matches('[').trim_end_matches(']'), port).to_socket_addrs();
        out.extend(
            found.map_err(|e| Error::Message(format!("cannot listen on '{host}': {e}")))?.map(Address::Tcp),
        );
    }
    if out.is_empty() {
        out.push(Address::Tcp(SocketAddr::from(([0u16; 8], port))));
    }
    Ok(out)
}

/// Refuses options that exclude each other, with git-daemon's messages.
fn check_options(args: &DaemonArgs) -> Result<()> {
    if let Some(base) = args.base_path.as_ref().filter(|base| !base.is_dir()) {
        return Err(Error::Message(format!(
            "base-path '{}' does not exist or is not a directory",
            base.display()
        )));
    }
    if args.strict_paths && args.directories.is_empty() {
        return Err(Error::Message("option --strict-paths requires '<directory>' arguments".to_owned()));
    }
    let listens = args.port.is_some() || !args.listen.is_empty();
    if args.group.is_some() && args.user.is_none() {
        return Err(Error::Message("--group supplied without --user".to_owned()));
    }
    if args.inetd && (args.detach || args.user.is_some() || args.group.is_some() || listens) {
        return Err(Error::Message(
            "--detach, --user/--group, --listen and --port are incompatible with --inetd".to_owned(),
        ));
    }
    Ok(())
}

/// Returns the listening sockets: those that the parent process handed over, or else those that `args` name.
fn listeners(args: &DaemonArgs) -> Result<Vec<Listener>> {
    // SAFETY: the program calls this once, and nothing else in it owns one of these descriptors.
    let handed_over: Vec<Listener> = unsafe { Listener::handed_over(|name| std::env::var(name).ok())? }
        .into_iter()
        .map(|(_, listener)| listener)
        .collect();
    if !handed_over.is_empty() {
        return Ok(handed_over);
    }
    let listen =
        |a: Address| Listener::bind(&a).map_err(|e| Error::Message(format!("cannot listen on {a}: {e}")));
    addresses(args)?.into_iter().map(listen).collect::<Result<Vec<_>>>()
}

pub(crate) fn daemon(global: &Global, args: DaemonArgs) -> Result<()> {
    let log = log_destination(&args);
    check_options(&args)?;
    let (stay_off, is_on, may_override) = services(&args)?;
    let presentation = presentation().map_err(Error::Message)?;
    let locator = PathLocator {
        export_all: args.export_all,
        base_path: args.base_path.clone(),
        base_path_relaxed: args.base_path_relaxed,
        interpolated_path: args.interpolated_path.clone(),
        strict_paths: args.strict_paths,
        user_path: args.user_path.clone(),
        directories: args.directories.clone(),
        rules: args.map.as_deref().map_or_else(|| Ok(Vec::new()), read_map_rules)?,
        hook: args.access_hook.clone().map(|program| Hook { program, timeout: HOOK_TIMEOUT }),
        port: args.port.unwrap_or(PORT),
        is_on,
        may_override,
        informative_errors: args.informative_errors && !args.no_informative_errors,
        push_hint: args.push_hint.clone(),
        presentation: presentation.clone(),
        log: (global.verbose > 0).then(|| -> LogLine { Box::new(move |text| log.line(text)) }),
    };
    if args.inetd {
        return Ok(serve_inetd(&locator, &limits(&args), give_up)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listeners = runtime.block_on(async { listeners(&args) })?;
    if args.detach {
        // Before any thread starts: threads do not survive the fork.
        nix::unistd::daemon(false, false).map_err(|e| Error::Message(format!("cannot detach: {e}")))?;
    }
    if let Some(path) = &args.pid_file {
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.map_err(FileError::on("write", path))?;
    }
    if let Some(user) = &args.user {
        drop_privileges(user, args.group.as_deref()).map_err(Error::of)?;
    }
    raise_descriptor_limit();
    let daemon =
        Arc::new(Daemon::new(Arc::new(locator), UploadOptions::default(), limits(&args), presentation)?);
    // The first line of the log: scripts wait for it.
    log.line("Ready to rumble");
    for service in stay_off {
        log.line(&format!("{service} stays off: weir only serves"));
    }
    let asked_to_stop = stop_on_signal(&Stop::default())?;
    runtime.block_on(async {
        let serve = |listener| {
            let mut asked = asked_to_stop.clone();
            tokio::spawn(daemon.clone().run(listener, Door::Git, async move {
                let _ = asked.wait_for(|&asked| asked).await;
            }))
        };
        for task in listeners.into_iter().map(serve).collect::<Vec<_>>() {
            let _ = task.await;
        }
    });
    // As git-daemon does: end by the signal, so that the parent process sees why.
    // SAFETY: restoring the default of a signal and sending it to oneself touch no memory of ours.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::raise(libc::SIGTERM);
    }
    Ok(())
}

/// Returns where log lines go: to the system's log with `--inetd`, `--detach` or `--syslog`, else to standard
/// error.
pub(crate) fn log_destination(args: &DaemonArgs) -> Log {
    args.log_destination.unwrap_or(if args.inetd || args.detach || args.syslog {
        Log::Syslog
    } else {
        Log::Stderr
    })
}
