//! How commands talk to the server of one repository.

use std::path::PathBuf;

use weir_arguments::Global;
use weir_pool::{CONFIG_NAME, transport_options};
use weir_settings::Config;
use weir_transport::{Scheme, TransportOptions, Url};

use crate::environment::environment;
use crate::error::Result;
use crate::pool::path_of;

/// Returns how to talk to the server of `repository`: as the pool's configuration says, if there is one, and
/// with git's certificates.
pub(crate) fn client_transport(global: &Global, repository: &str) -> Result<TransportOptions> {
    let mut config = match path_of(global) {
        Ok(pool) => weir_settings::load(&pool.path.join(CONFIG_NAME), environment())?,
        _ => Config::of(environment()),
    };
    let has_certificate = Url::parse(repository).is_ok_and(|url| url.scheme == Scheme::Http { tls: true });
    // As in git, the variable wins.
    let is_named = std::env::var_os("GIT_SSL_CAINFO").is_some_and(|file| !file.is_empty());
    if has_certificate && config.transport.ca_file.is_none() && !is_named {
        let file = git_config(&["--get-urlmatch", "http.sslCAInfo", repository]);
        config.transport.ca_file = file.map(|file| PathBuf::from(file.trim_end_matches('\n')));
    }
    Ok(transport_options(&config))
}

/// Returns what `git config` prints with these arguments, or `None` if it prints nothing.
pub(crate) fn git_config(args: &[&str]) -> Option<String> {
    let output = weir_workspace::git_command().arg("config").args(args).output().ok()?;
    String::from_utf8(output.stdout).ok().filter(|printed| !printed.is_empty())
}
