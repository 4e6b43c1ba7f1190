//! `daemon`: serves ordinary directories and archives with git-daemon's options, which mean the same as
//! there.

use std::io::{Read, stdin, stdout};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use weir_git::pktline::{self, Pkt};
use weir_ground::thread::spawn;
use weir_ground::{FileError, Stop};
use weir_process::stop_on_signal;
use weir_serve::{
    Address, Client, Daemon, DaemonLimits, Door, Hook, Listener, Locator, LogLine, MapRule, PathLocator,
    raise_descriptor_limit,
};
use weir_settings::MapConfig;
use weir_upload::{DaemonRequest, UNREADABLE, UploadOptions, UploadPack, Version, parse_daemon_request};

use crate::cli::{DaemonArgs, Global};
use crate::error::{Error, Result};
use crate::log_output::Log;
use crate::presentation::presentation;
use crate::stdio;

/// The port of git://.
const PORT: u16 = 9418;
/// The largest first line, in bytes.
const FIRST_LINE_BYTES_MAX: usize = 8 << 10;
/// How long a hook may run.
const HOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of a file of mapping rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapFile {
    #[serde(default)]
    map: Vec<MapConfig>,
}

fn read_rules(path: &Path) -> Result<Vec<MapRule>> {
    let text = std::fs::read_to_string(path).map_err(FileError::on("read", path))?;
    let fail = |why: String| Error::Config(format!("{}: {}", path.display(), why.trim().replace('\n', " ")));
    let file: MapFile = toml::from_str(&text).map_err(|e| fail(e.to_string()))?;
    file.map.iter().map(|m| m.rule().map_err(|e| fail(e.to_string()))).collect()
}

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

/// Switches to `user` and `group` permanently.
fn drop_privileges(user: Option<&str>, group: Option<&str>) -> Result<()> {
    use nix::unistd::{Group, User, initgroups, setgid, setuid};
    let fail = |what: &str, e: nix::Error| Error::Message(format!("cannot {what}: {e}"));
    let Some(name) = user else {
        return if group.is_some() {
            Err(Error::Message("--group supplied without --user".to_owned()))
        } else {
            Ok(())
        };
    };
    let unknown = |what: &str, name: &str| Error::Message(format!("{what} not found - {name}"));
    let user = User::from_name(name)
        .map_err(|e| fail("look up the user", e))?
        .ok_or_else(|| unknown("user", name))?;
    let gid = match group {
        None => user.gid,
        Some(name) => {
            Group::from_name(name)
                .map_err(|e| fail("look up the group", e))?
                .ok_or_else(|| unknown("group", name))?
                .gid
        }
    };
    let c_name = std::ffi::CString::new(user.name.clone()).map_err(Error::of)?;
    initgroups(&c_name, gid)
        .and_then(|()| setgid(gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|e| fail("drop privileges", e))
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
        rules: args.map.as_deref().map_or_else(|| Ok(Vec::new()), read_rules)?,
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
        return converse(&locator, &limits(&args));
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
    drop_privileges(args.user.as_deref(), args.group.as_deref())?;
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

/// Serves one conversation, on the connection that inetd has passed as standard input and output.
fn converse(locator: &PathLocator, limits: &DaemonLimits) -> Result<()> {
    let Some(request) = first_request(limits.init_timeout)? else { return Ok(()) };
    let refuse = |words: &str| -> Result<()> {
        let mut out = Vec::new();
        pktline::push(&mut out, format!("ERR {}", words.escape_default()).as_bytes());
        Ok(std::io::Write::write_all(&mut stdout(), &out)?)
    };
    let Some(request) = request else {
        return refuse("weir: not a git request; this is a read-only git server");
    };
    let found = match locator.find(&request, &Client::at(peer_of_stdin())) {
        Ok(found) => found,
        Err(refusal) => return refuse(refusal.words_without_token()),
    };
    let (repo, features) = match locator.presentation.open_found(&found) {
        Ok(opened) => opened,
        Err(e) => {
            tracing::error!("cannot open: {e}");
            return refuse(&format!("weir: {UNREADABLE}"));
        }
    };
    let options = UploadOptions { features, ..UploadOptions::default() };
    let mut machine = UploadPack::new(repo, Version::from_number(request.version), options);
    // `Duration::MAX` stands for no timeout.
    let idle_timeout = Some(limits.idle_timeout).filter(|timeout| *timeout < Duration::MAX);
    stdio::converse(&mut machine, idle_timeout)?;
    Ok(())
}

/// Reads the request that a conversation starts with. Returns `None` if none comes, and `Some(None)` if it is
/// not a git request.
fn first_request(timeout: Duration) -> Result<Option<Option<DaemonRequest>>> {
    let is_there = Arc::new(AtomicBool::new(false));
    if timeout < Duration::MAX {
        let is_there = is_there.clone();
        spawn("timeout", move || {
            std::thread::sleep(timeout);
            if !is_there.load(Ordering::Relaxed) {
                tracing::warn!("no request came in {} s", timeout.as_secs());
                std::process::exit(0);
            }
        })?;
    }
    let mut input = stdin().lock();
    let mut line = Vec::new();
    let request = loop {
        match pktline::decode(&line) {
            Ok(Some((Pkt::Line(first), _))) => break parse_daemon_request(first),
            Ok(None) if line.len() < FIRST_LINE_BYTES_MAX => {}
            _ => break None,
        }
        // Read no more than the line: the rest belongs to the conversation.
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        line.extend_from_slice(&byte);
    };
    is_there.store(true, Ordering::Relaxed);
    Ok(Some(request))
}

fn peer_of_stdin() -> Option<SocketAddr> {
    let socket = stdin().as_fd().try_clone_to_owned().ok()?;
    std::net::TcpStream::from(socket).peer_addr().ok()
}
