//! How to reach upstreams and forges according to the environment, which is read as curl and git read it.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_git::LOCAL_ENVIRONMENT;
use weir_repo::{ConfigScope, GitConfig};
use weir_transport::{ExtraHeader, ExtraValue, Proxies, RootCerts, SshCommand, roots_in, system_roots};

use crate::presentation::presentation;

/// Returns the proxies, as curl finds them. `HTTP_PROXY` in capitals does not count: a web server sets it for
/// a CGI program from a header of the client.
pub(crate) fn proxies() -> Proxies {
    let named = |names: &[&str]| {
        names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    };
    Proxies {
        http: named(&["http_proxy", "all_proxy", "ALL_PROXY"]),
        https: named(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
        none_for: named(&["no_proxy", "NO_PROXY"]),
    }
}

/// Returns a command of git that works on the repository it is told, not on one that the environment names:
/// weir may run in a hook.
pub(crate) fn git_command() -> Command {
    let mut git = Command::new("git");
    for name in LOCAL_ENVIRONMENT {
        git.env_remove(name);
    }
    git
}

/// Returns the trusted certificate authorities: those in `ca_file`, else those that git's environment names,
/// else those of the system. If a named file cannot be read, none are trusted.
pub(crate) fn roots(ca_file: Option<&Path>) -> RootCerts {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match ca_file.map(Path::to_owned).or_else(|| named("GIT_SSL_CAINFO")) {
        Some(file) => roots_in(&file).unwrap_or_else(|why| {
            tracing::error!("no https server is believed: {why}");
            RootCerts::new_with_certs(&[])
        }),
        None if named("SSL_CERT_FILE").or_else(|| named("SSL_CERT_DIR")).is_some() => {
            RootCerts::PlatformVerifier
        }
        None => system_roots(),
    }
}

/// Returns how to start ssh: as configured, or else as git would start it.
pub(crate) fn ssh_command(configured: Option<&str>) -> SshCommand {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let line = configured
        .map(str::to_owned)
        .or_else(|| named("GIT_SSH_COMMAND").map(|line| line.to_string_lossy().into_owned()));
    match (line, named("GIT_SSH")) {
        (Some(line), _) => SshCommand::line(&line),
        (None, Some(program)) => SshCommand::program(program),
        (None, None) => SshCommand::default(),
    }
}

/// Returns the headers that git's configuration adds to requests: `http.extraHeader`, `http.cookieFile`. None
/// if the configuration cannot be read.
pub(crate) fn extra_headers() -> Vec<ExtraHeader> {
    let read = || -> Result<Vec<ExtraHeader>, String> {
        let how = presentation()?;
        let mut config = GitConfig::default();
        for file in &how.files_before {
            let scope = ConfigScope { git_dir: None, home: &how.home };
            config.read(file, scope).map_err(|e| e.to_string())?;
        }
        config.append(&how.environment);
        let setting = |scope: Option<&str>, value| ExtraHeader { scope: scope.map(str::to_owned), value };
        let headers = config.values_of("http", "extraheader").into_iter();
        let headers = headers.map(|(scope, line)| setting(scope, ExtraValue::Header(line.to_owned())));
        let files = config.values_of("http", "cookiefile").into_iter().map(|(scope, path)| {
            let path =
                path.strip_prefix("~/").map_or_else(|| PathBuf::from(path), |path| how.home.join(path));
            setting(scope, ExtraValue::CookieFile(path))
        });
        Ok(headers.chain(files).collect())
    };
    read().unwrap_or_else(|why| {
        tracing::warn!("http.extraHeader and http.cookieFile of git's configuration do not count: {why}");
        Vec::new()
    })
}
