//! Options of connections to upstreams.

use std::fmt::Display;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::tls::RootCerts;

use crate::credentials::{CredentialSource, GitCredentialHelper, Netrc};
use crate::extra_headers::ExtraHeader;
use crate::proxy::Proxies;
use crate::server_memory::Met;
use crate::ssh_command::SshCommand;
use crate::tls::system_roots;

/// The two directions of a local connection.
pub type LocalStream = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// Why a repository on this machine's disk is not served.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct LocalServerError {
    text: String,
    /// Whether this process is the cause, as one that has no descriptors left.
    pub(crate) is_of_this_process: bool,
}

impl LocalServerError {
    /// Returns the error that another one causes.
    pub fn of(cause: impl Display) -> LocalServerError {
        LocalServerError { text: cause.to_string(), is_of_this_process: false }
    }

    /// Returns the error that another one causes, which says nothing about the repository.
    pub fn of_this_process(cause: impl Display) -> LocalServerError {
        LocalServerError { text: cause.to_string(), is_of_this_process: true }
    }
}

/// Serves repositories on this machine's disk, in place of a git process.
pub trait LocalServer: Send + Sync {
    /// Connects to the repository at `path`, asking for protocol `version` 2.
    ///
    /// # Errors
    /// If there is none.
    fn connect(&self, path: &Path) -> std::result::Result<LocalStream, LocalServerError>;
}

/// Options of connections to upstreams.
#[derive(Clone)]
pub struct TransportOptions {
    /// The time limit for connecting.
    pub connect_timeout: Duration,
    /// The time without a byte after which an upstream is taken to hang: in its greeting, and in a pack or
    /// another answer that has begun.
    pub idle_timeout: Duration,
    /// The time without a byte before an answer begins. While an upstream makes a pack, each keepalive or
    /// message of progress ends such a time.
    pub first_byte_timeout: Duration,
    /// The time in which a pack must begin, whatever comes before it.
    pub pack_start_timeout: Duration,
    /// The bytes per second below which an upstream that has begun to send is too slow; 0 for no limit.
    pub bytes_per_second_min: u64,
    /// The command that starts ssh.
    pub ssh_command: SshCommand,
    /// The `User-Agent` and agent capability.
    pub agent: String,
    /// A netrc file with HTTP passwords.
    pub netrc: Option<Netrc>,
    /// Another source of passwords, asked after netrc.
    pub credential_source: Option<Arc<dyn CredentialSource>>,
    /// git's credential helpers, if they may be used.
    pub credential_helper: Option<GitCredentialHelper>,
    /// The server of local paths.
    pub local: Option<Arc<dyn LocalServer>>,
    /// The highest protocol version to request: 0, 1 or 2.
    pub version_max: u8,
    /// The trusted certificate authorities.
    pub roots: RootCerts,
    /// The proxies for HTTP.
    pub proxies: Proxies,
    /// Headers that git's configuration adds to HTTP requests.
    pub extra_headers: Vec<ExtraHeader>,
    /// The bytes of memory that an upstream's list of refs may take.
    pub refs_bytes_max: u64,
    /// The capabilities that git:// servers had at the last visit.
    pub met: Met,
}

impl Default for TransportOptions {
    fn default() -> Self {
        TransportOptions {
            connect_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            first_byte_timeout: Duration::from_secs(600),
            pack_start_timeout: Duration::from_secs(3600),
            bytes_per_second_min: 0,
            ssh_command: SshCommand::default(),
            agent: concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned(),
            netrc: None,
            credential_source: None,
            credential_helper: None,
            local: None,
            version_max: 2,
            roots: system_roots(),
            proxies: Proxies::default(),
            extra_headers: Vec::new(),
            refs_bytes_max: 256 << 20,
            met: Met::default(),
        }
    }
}
