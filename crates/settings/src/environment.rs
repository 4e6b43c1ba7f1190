//! How to reach upstreams and forges according to the environment, which is read as curl and git read it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use weir_transport::{ExtraHeader, Proxies, RootCerts, SshCommand, roots_in, system_roots};

/// The part of a process's environment that settings fall back on. The default is an empty one.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Returns the value of a variable.
    pub variable: fn(&str) -> Option<OsString>,
    /// Returns the headers that git's configuration adds to requests.
    pub extra_headers: fn() -> Vec<ExtraHeader>,
}

impl Default for Environment {
    fn default() -> Environment {
        Environment { variable: |_| None, extra_headers: Vec::new }
    }
}

impl Environment {
    /// Returns the value of a variable that is set to something.
    pub fn non_empty(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// Returns the proxies, as curl finds them. `HTTP_PROXY` in capitals does not count: a web server sets it
    /// for a CGI program from a header of the client.
    pub fn proxies(&self) -> Proxies {
        let named = |names: &[&str]| names.iter().find_map(|name| self.non_empty(name)?.into_string().ok());
        Proxies {
            http: named(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            https: named(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            none_for: named(&["no_proxy", "NO_PROXY"]),
        }
    }

    /// Returns the trusted certificate authorities: those in `ca_file`, else those that git's environment
    /// names, else those of the system. If a named file cannot be read, none are trusted.
    pub fn roots(&self, ca_file: Option<&Path>) -> RootCerts {
        let named = |name: &str| self.non_empty(name).map(PathBuf::from);
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
    pub fn ssh_command(&self, configured: Option<&str>) -> SshCommand {
        let line = configured
            .map(str::to_owned)
            .or_else(|| self.non_empty("GIT_SSH_COMMAND").map(|line| line.to_string_lossy().into_owned()));
        match (line, self.non_empty("GIT_SSH")) {
            (Some(line), _) => SshCommand::line(&line),
            (None, Some(program)) => SshCommand::program(program),
            (None, None) => SshCommand::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_those_of_curl() {
        let variable = |name: &str| match name {
            "HTTP_PROXY" => Some("http://evil".into()),
            "all_proxy" => Some(OsString::new()),
            "ALL_PROXY" => Some("http://all".into()),
            "https_proxy" => Some("http://tls".into()),
            _ => None,
        };
        let environment = Environment { variable, ..Environment::default() };
        let of = |url: &str| Some(url.to_owned());
        let expected = Proxies { http: of("http://all"), https: of("http://tls"), none_for: None };
        assert_eq!(environment.proxies(), expected);
        assert_eq!(environment.ssh_command(None), SshCommand::default());
    }
}
