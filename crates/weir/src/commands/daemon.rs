//! `daemon`: git-daemon's options with git-daemon's meaning, on ordinary directories and on archives.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_mirror::Stop;
use weir_serve::{Daemon, DaemonLimits, Door, Found, Locator, candidates};
use weir_upload::{DaemonRequest, Options, Service};

use super::mirror::stop_on_signal;
use super::upload_pack::presentation;
use crate::cli::{DaemonArgs, Global};
use crate::error::{Error, Result};

/// What says that a repository is for everybody.
const EXPORT_FILE: &str = "git-daemon-export-ok";
/// Where clients look for us.
const PORT: u16 = 9418;

/// Which directories clients may have, and under which names.
struct PathLocator {
    args: DaemonArgs,
    is_verbose: bool,
}

impl PathLocator {
    fn log(&self, text: impl FnOnce() -> String) {
        if self.is_verbose {
            log(&text());
        }
    }

    /// The path that a request means, as git-daemon works it out: nothing of what a client says can lead above it.
    fn path_of(&self, request: &DaemonRequest, peer: IpAddr) -> Option<PathBuf> {
        let asked = &request.path;
        if !asked.starts_with('/') || is_alias(asked) {
            self.log(|| format!("'{asked}': aliased"));
            return None;
        }
        let first = match (&self.args.interpolated_path, &self.args.base_path) {
            (Some(template), _) if request.host.is_some() => interpolate(template, request, peer, self.port()),
            (_, Some(base)) => format!("{}{asked}", base.display()),
            (_, None) => asked.clone(),
        };
        let relaxed = (self.args.base_path.is_some() && self.args.base_path_relaxed).then(|| asked.clone());
        let found = [Some(first), relaxed].into_iter().flatten().find_map(|path| self.enter(Path::new(&path)));
        if found.is_none() {
            self.log(|| format!("'{asked}' does not appear to be a git repository"));
        }
        let path = found?;
        let is_listed = |listed: &PathBuf| if self.args.strict_paths { path == *listed } else { path.starts_with(listed) };
        let is_free = self.args.directories.is_empty() && !self.args.strict_paths;
        (is_free || self.args.directories.iter().any(is_listed)).then_some(path)
    }

    fn enter(&self, path: &Path) -> Option<PathBuf> {
        let is_repository = |p: &PathBuf| (p.join("objects").is_dir() && p.join("HEAD").exists()) || is_archive(p) || p.is_file();
        candidates(path, self.args.strict_paths).find(is_repository).or_else(|| {
            let archive = PathBuf::from(format!("{}.tar", path.display()));
            (!self.args.strict_paths && is_archive(&archive)).then_some(archive)
        })
    }

    fn port(&self) -> u16 {
        self.args.port.unwrap_or(PORT)
    }

    fn refusal(&self, what: &str, path: &str) -> String {
        let what = if self.args.informative_errors && !self.args.no_informative_errors {
            what
        } else {
            "access denied or repository not exported"
        };
        format!("{what}: {path}")
    }
}

impl Locator for PathLocator {
    fn find(&self, request: &DaemonRequest, peer: SocketAddr) -> std::result::Result<Found, String> {
        let path = &request.path;
        self.log(|| format!("Connection from {}:{}", peer.ip(), peer.port()));
        if let Some(host) = &request.host {
            self.log(|| format!("Extended attribute \"host\": {host}"));
        }
        if !request.protocol.is_empty() {
            self.log(|| format!("Extended attribute \"protocol\": {}", request.protocol));
        }
        let service = match request.service {
            Service::UploadPack => "upload-pack",
            Service::ReceivePack => "receive-pack",
            Service::UploadArchive => "upload-archive",
        };
        self.log(|| format!("Request {service} for '{path}'"));
        if request.service != Service::UploadPack || self.args.disable.iter().any(|s| s == "upload-pack") {
            return Err(self.refusal("service not enabled", path));
        }
        let Some(found) = self.path_of(request, peer.ip()) else { return Err(self.refusal("no such repository", path)) };
        let is_exported = if is_archive(&found) { false } else { found.join(EXPORT_FILE).exists() };
        if !self.args.export_all && !is_exported {
            self.log(|| format!("'{path}': repository not exported."));
            return Err(self.refusal("repository not exported", path));
        }
        Ok(if is_archive(&found) { Found::Archive(found) } else { Found::Directory(found) })
    }
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "tar") && path.is_file()
}

/// Whether a path could mean something else than it says: empty parts, `.` and `..`.
fn is_alias(path: &str) -> bool {
    let mut parts = path.split('/').skip(1).peekable();
    let mut is_alias = false;
    while let Some(part) = parts.next() {
        is_alias |= matches!(part, "." | "..") || (part.is_empty() && parts.peek().is_some());
    }
    is_alias
}

/// A host name as part of a path: no slash, no dots that lead away.
fn safe_part(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '/' && !(c == '.' && (out.is_empty() || out.ends_with('.'))) {
            out.push(c.to_ascii_lowercase());
        }
    }
    out.trim_end_matches('.').to_owned()
}

/// `%H` host, `%CH` host by its address, `%IP` our address, `%P` port, `%D` path, `%%` a percent sign.
fn interpolate(template: &str, request: &DaemonRequest, peer: IpAddr, our_port: u16) -> String {
    let host_port = request.host.as_deref().unwrap_or_default();
    let (host, port) = match host_port.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && port.bytes().all(|c| c.is_ascii_digit()) => (host, port),
        _ => (host_port, ""),
    };
    let host = safe_part(host.trim_start_matches('[').trim_end_matches(']'));
    let address = || (host.as_str(), our_port).to_socket_addrs().ok().and_then(|mut found| found.next()).map_or(peer, |a| a.ip());
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let words: [(&str, &dyn Fn() -> String); 6] = [
            ("CH", &|| host.clone()),
            ("IP", &|| address().to_string()),
            ("H", &|| host.clone()),
            ("P", &|| if port.is_empty() { our_port.to_string() } else { port.to_owned() }),
            ("D", &|| request.path.clone()),
            ("%", &|| "%".to_owned()),
        ];
        rest = match words.iter().find_map(|(word, value)| Some((after.strip_prefix(word)?, value()))) {
            Some((after, value)) => {
                out.push_str(&value);
                after
            }
            None => {
                out.push('%');
                after
            }
        };
    }
    out.push_str(rest);
    out
}

/// A line as git-daemon writes them.
fn log(text: &str) {
    eprintln!("[{}] {}", std::process::id(), text.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>());
}

pub(crate) fn daemon(global: &Global, args: DaemonArgs) -> Result<()> {
    if let Some(base) = args.base_path.as_ref().filter(|base| !base.is_dir()) {
        return Err(Error::Message(format!("base-path '{}' does not exist or is not a directory", base.display())));
    }
    if args.strict_paths && args.directories.is_empty() {
        return Err(Error::Message("option --strict-paths requires '<directory>' arguments".to_owned()));
    }
    let mut stays_off = Vec::new();
    for service in args.enable.iter().chain(&args.disable) {
        match service.as_str() {
            "upload-pack" => {}
            "receive-pack" | "upload-archive" if args.disable.contains(service) => {}
            "receive-pack" | "upload-archive" => stays_off.push(service.clone()),
            _ => {
                return Err(Error::Message(format!(
                    "service '{service}' is unknown: there are upload-pack, receive-pack and upload-archive"
                )));
            }
        }
    }
    let mut addresses = Vec::new();
    for host in &args.listen {
        let found = (host.trim_start_matches('[').trim_end_matches(']'), args.port.unwrap_or(PORT)).to_socket_addrs();
        addresses.extend(found.map_err(|e| Error::Message(format!("cannot listen on '{host}': {e}")))?);
    }
    if addresses.is_empty() {
        addresses.push(SocketAddr::from(([0u16; 8], args.port.unwrap_or(PORT))));
    }
    let defaults = DaemonLimits::default();
    let seconds = |given: Option<u64>, default: Duration| match given {
        None => default,
        Some(0) => Duration::MAX,
        Some(seconds) => Duration::from_secs(seconds),
    };
    let limits = DaemonLimits {
        init_timeout: seconds(args.init_timeout, defaults.init_timeout),
        idle_timeout: seconds(args.timeout, defaults.idle_timeout),
        connections_max: match args.max_connections {
            None => defaults.connections_max,
            Some(0) => usize::MAX,
            Some(n) => n,
        },
        ..defaults
    };
    let pid_file = args.pid_file.clone();
    let locator = Arc::new(PathLocator { is_verbose: global.verbose > 0, args });
    let daemon = Arc::new(Daemon::new(locator, Options::default(), limits, presentation())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listeners = runtime.block_on(async {
        let listen = |a: &SocketAddr| Daemon::listen(*a).map_err(|e| Error::Message(format!("cannot listen on {a}: {e}")));
        addresses.iter().map(listen).collect::<Result<Vec<_>>>()
    })?;
    if let Some(path) = &pid_file {
        std::fs::write(path, format!("{}\n", std::process::id())).map_err(|source| Error::File {
            what: "write",
            path: path.clone(),
            source,
        })?;
    }
    // First of all: scripts wait for it.
    log("Ready to rumble");
    for service in stays_off {
        log(&format!("{service} stays off: weir only serves"));
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
    // As git-daemon: whoever asked it to end sees that it did so for that.
    // SAFETY: restoring the default of a signal and sending it to oneself touch no memory of ours.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::raise(libc::SIGTERM);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_upload::parse_daemon_request;

    #[test]
    fn hosts_and_paths_stay_where_they_are_put() {
        let request = parse_daemon_request(b"git-upload-pack /a b/c.git\0host=../..Ex/ample..Org.:7\0").unwrap();
        let peer = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(interpolate("/srv/%H/%P%D%%%x", &request, peer, 9418), "/srv/example.org/7/a b/c.git%%x");
        for (path, is) in
            [("/a", false), ("/a/", false), ("/a//b", true), ("/../a", true), ("/a/..", true), ("/a/./b", true), ("/..a", false)]
        {
            assert_eq!(is_alias(path), is, "{path}");
        }
    }
}
