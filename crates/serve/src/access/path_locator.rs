//! Finds repositories by their path on disk, like git-daemon and git-http-backend.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use weir_repo::named_by_file;
use weir_upload::{DaemonRequest, Service};

use crate::access::hook::Hook;
use crate::access::locate::{Client, Found, Locator, Refusal};
use crate::access::mapping::{MapRule, map};
use crate::access::presentation::{Presentation, candidates};

/// The file that marks a repository as public.
const EXPORT_FILE: &str = "git-daemon-export-ok";
/// The message without `--informative-errors`.
const DENIED: &str = "access denied or repository not exported";

/// Takes lines about requests.
pub type LogLine = Box<dyn Fn(&str) + Send + Sync>;

/// The directories that clients may read, and their names. The options are git-daemon's (git-daemon(1)).
#[derive(Default)]
pub struct PathLocator {
    /// Whether repositories without `git-daemon-export-ok` are served, and archives.
    pub export_all: bool,
    /// The folder that paths begin at.
    pub base_path: Option<PathBuf>,
    /// Whether a path that leads nowhere below [`PathLocator::base_path`] is tried without it.
    pub base_path_relaxed: bool,
    /// The template of paths for clients that send a host.
    pub interpolated_path: Option<String>,
    /// Whether a path must be one of [`PathLocator::directories`] to the letter.
    pub strict_paths: bool,
    /// The folder below a user's home that `~user` means; `None` if `~user` means nothing.
    pub user_path: Option<String>,
    /// The folders that clients may read; all, if there are none.
    pub directories: Vec<PathBuf>,
    /// Rules that make a path below the base path of a host and a path.
    pub rules: Vec<MapRule>,
    /// Decides about each request.
    pub hook: Option<Hook>,
    /// The port of this server.
    pub port: u16,
    /// Whether `upload-pack` is on.
    pub is_on: bool,
    /// Whether repositories may turn the service on or off themselves.
    pub may_override: bool,
    /// Whether clients learn why they are refused.
    pub informative_errors: bool,
    /// The text for those who push: a template, as [`PathLocator::interpolated_path`] is one.
    pub push_hint: Option<String>,
    /// How repositories are presented. Their configuration, read with it, says whether the service is on.
    pub presentation: Presentation,
    /// Takes lines about requests.
    pub log: Option<LogLine>,
}

impl PathLocator {
    fn log(&self, text: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            log(&text());
        }
    }

    /// Returns the path that a request means, as git-daemon computes it. Nothing in the request can lead
    /// above the base path.
    fn path_of(&self, request: &DaemonRequest, peer: Option<IpAddr>) -> Option<PathBuf> {
        let asked = &request.path;
        if let (Some(below), Some(rest)) = (&self.user_path, asked.strip_prefix('~')) {
            return self.listed(self.enter(&home_path(rest, below)?)?);
        }
        if !asked.starts_with('/') || is_alias(asked) {
            self.log(|| format!("'{asked}': aliased"));
            return None;
        }
        let base = || self.base_path.as_deref().map_or(String::new(), |base| base.display().to_string());
        let first = if !self.rules.is_empty() {
            match map(&self.rules, request.host.as_deref(), asked)? {
                // Always below the base path: the client may have supplied the first slash.
                Ok(name) => format!("{}/{}", base(), name.trim_start_matches('/')),
                Err(why) => {
                    self.log(|| format!("'{asked}': {why}"));
                    return None;
                }
            }
        } else {
            match &self.interpolated_path {
                Some(template) if request.host.is_some() => interpolate(template, request, peer, self.port),
                _ => format!("{}{asked}", base()),
            }
        };
        let relaxed = (self.base_path.is_some() && self.base_path_relaxed).then(|| asked.clone());
        let found =
            [Some(first), relaxed].into_iter().flatten().find_map(|path| self.enter(Path::new(&path)));
        if found.is_none() {
            self.log(|| format!("'{asked}' does not appear to be a git repository"));
        }
        self.listed(found?)
    }

    fn listed(&self, path: PathBuf) -> Option<PathBuf> {
        let is_listed =
            |listed: &PathBuf| if self.strict_paths { path == *listed } else { path.starts_with(listed) };
        let is_free = self.directories.is_empty() && !self.strict_paths;
        (is_free || self.directories.iter().any(is_listed)).then_some(path)
    }

    fn enter(&self, path: &Path) -> Option<PathBuf> {
        let is_repository = |p: &PathBuf| {
            (p.join("objects").is_dir() && p.join("HEAD").exists())
                || is_archive(p)
                || named_by_file(p).is_some()
        };
        candidates(path, self.strict_paths).find(is_repository).or_else(|| {
            let archive = PathBuf::from(format!("{}.tar", path.display()));
            (!self.strict_paths && is_archive(&archive)).then_some(archive)
        })
    }

    fn words(&self, what: &str, path: &str) -> String {
        format!("{}: {path}", if self.informative_errors { what } else { DENIED })
    }

    fn not_found(&self, what: &str, path: &str) -> Refusal {
        Refusal::NotFound(self.words(what, path))
    }
}

impl Locator for PathLocator {
    fn find(&self, request: &DaemonRequest, client: &Client) -> std::result::Result<Found, Refusal> {
        let path = &request.path;
        let peer = client.address.map(|a| a.ip());
        if let Some(address) = client.address {
            self.log(|| format!("Connection from {}:{}", address.ip(), address.port()));
        }
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
        let is_off = || {
            let hint = self.push_hint.as_ref().filter(|_| request.service == Service::ReceivePack);
            let hint = hint.map_or(String::new(), |hint| {
                format!("; push to {}", interpolate(hint, request, peer, self.port))
            });
            Refusal::Off(self.words("service not enabled", path) + &hint)
        };
        if request.service != Service::UploadPack || (!self.is_on && !self.may_override) {
            return Err(is_off());
        }
        let Some(found) = self.path_of(request, peer) else {
            return Err(self.not_found("no such repository", path));
        };
        let is_archive = is_archive(&found);
        if !self.export_all && (is_archive || !found.join(EXPORT_FILE).exists()) {
            self.log(|| format!("'{path}': repository not exported."));
            return Err(self.not_found("repository not exported", path));
        }
        let says = || self.presentation.config_of(&found)?.truth("daemon.uploadpack");
        let said = if self.may_override && !is_archive { says() } else { Ok(None) };
        let is_on = said.unwrap_or_else(|e| {
            self.log(|| format!("'{path}': {e}"));
            Some(false)
        });
        if !is_on.unwrap_or(self.is_on) {
            self.log(|| format!("'{path}': service not enabled."));
            return Err(is_off());
        }
        if let Some(hook) = &self.hook {
            hook.ask(request, path, client).map_err(|denial| {
                self.log(|| format!("'{path}': the access hook denies: {denial}"));
                self.not_found(if denial.said.is_empty() { DENIED } else { &denial.said }, path)
            })?;
        }
        Ok(if is_archive { Found::Archive(found) } else { Found::Directory(found) })
    }

    fn may_block(&self) -> bool {
        // These run programs, or look up names.
        self.hook.is_some()
            || self.user_path.is_some()
            || self.interpolated_path.as_ref().is_some_and(|t| t.contains("%IP") || t.contains("%CH"))
    }
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "tar") && path.is_file()
}

/// Returns the path that `user/rest` means, in the folder `below` of that user's home.
fn home_path(text: &str, below: &str) -> Option<PathBuf> {
    let (user, rest) = text.split_once('/').unwrap_or((text, ""));
    let home = nix::unistd::User::from_name(user).ok()??.dir;
    let path = format!("{}/{}/{rest}", home.display(), below.trim_matches('/'));
    let path = path.replace("//", "/");
    (!is_alias(&path)).then(|| PathBuf::from(path))
}

/// Returns whether a path could mean another one: it has empty parts, `.` or `..`.
fn is_alias(path: &str) -> bool {
    let mut parts = path.split('/').skip(1).peekable();
    let mut is_alias = false;
    while let Some(part) = parts.next() {
        is_alias |= matches!(part, "." | "..") || (part.is_empty() && parts.peek().is_some());
    }
    is_alias
}

/// Returns a host name as part of a path: without slashes, and without dots that lead elsewhere.
fn safe_part(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '/' && !(c == '.' && (out.is_empty() || out.ends_with('.'))) {
            out.push(c.to_ascii_lowercase());
        }
    }
    out.trim_end_matches('.').to_owned()
}

/// Expands a template: `%H` host, `%CH` canonical name of the host, `%IP` address of this server, `%P` port,
/// `%D` path, `%%` a percent sign.
fn interpolate(template: &str, request: &DaemonRequest, peer: Option<IpAddr>, our_port: u16) -> String {
    let host_port = request.host.as_deref().unwrap_or_default();
    let (host, port) = match host_port.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && port.bytes().all(|c| c.is_ascii_digit()) => {
            (host, port)
        }
        _ => (host_port, ""),
    };
    let host = safe_part(host.trim_start_matches('[').trim_end_matches(']'));
    let address = || {
        let found = (host.as_str(), our_port)
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next())
            .map(|a| a.ip());
        found.or(peer).map_or(String::new(), |ip| ip.to_string())
    };
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let words: [(&str, &dyn Fn() -> String); 6] = [
            ("CH", &|| canonical_name(&host).map_or_else(|| host.clone(), |name| safe_part(&name))),
            ("IP", &address),
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

/// Returns the canonical name of `host` (getaddrinfo with `AI_CANONNAME`).
fn canonical_name(host: &str) -> Option<String> {
    let name = std::ffi::CString::new(host).ok()?;
    // SAFETY: the name is a C string, the hints are zero but for a flag, and what is found is read before it
    // is freed.
    unsafe {
        let mut hints: libc::addrinfo = std::mem::zeroed();
        hints.ai_flags = libc::AI_CANONNAME;
        let mut found: *mut libc::addrinfo = std::ptr::null_mut();
        if libc::getaddrinfo(name.as_ptr(), std::ptr::null(), &raw const hints, &raw mut found) != 0 {
            return None;
        }
        let canonical = (*found).ai_canonname;
        let text = (!canonical.is_null())
            .then(|| std::ffi::CStr::from_ptr(canonical).to_string_lossy().into_owned());
        libc::freeaddrinfo(found);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_upload::parse_daemon_request;

    #[test]
    fn hosts_and_paths_stay_where_they_are_put() {
        let request =
            parse_daemon_request(b"git-upload-pack /a b/c.git\0host=../..Ex/ample..Org.:7\0").unwrap();
        let peer = Some(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(interpolate("/srv/%H/%P%D%%%x", &request, peer, 9418), "/srv/example.org/7/a b/c.git%%x");
        for (path, is) in [
            ("/a", false),
            ("/a/", false),
            ("/a//b", true),
            ("/../a", true),
            ("/a/..", true),
            ("/a/./b", true),
            ("/..a", false),
        ] {
            assert_eq!(is_alias(path), is, "{path}");
        }
    }

    #[test]
    fn homes() {
        let home = |text: &str| home_path(text, "public_git").map(|p| p.display().to_string());
        let me = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap();
        assert_eq!(
            home(&format!("{}/x.git", me.name)),
            Some(format!("{}/public_git/x.git", me.dir.display()))
        );
        assert_eq!(home(&format!("{}/../x", me.name)), None);
        assert_eq!(home("no such user/x"), None);
    }
}
