//! What a client asks for, and where that lies.

use std::net::SocketAddr;
use std::path::PathBuf;

use weir_upload::DaemonRequest;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Where from; `None` over a socket or a pipe of this machine.
    pub address: Option<SocketAddr>,
    /// The token shown, over HTTP: a bearer's, or the password of a name (the name itself, if it comes
    /// without one).
    pub token: Option<String>,
    /// The name of a token, of somebody whom another program has made sure of.
    pub known_as: Option<String>,
}

impl Client {
    /// Somebody at `address` who shows no token.
    pub fn at(address: Option<SocketAddr>) -> Client {
        Client { address, ..Client::default() }
    }
}

/// Where a repository lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In an archive.
    Archive(PathBuf),
    /// In an ordinary git directory.
    Directory(PathBuf),
}

/// The answer to a client whose turn did not come in time.
/// The message to a client after a panic. The log has the details.
pub(crate) const INTERNAL_ERROR: &str = "internal error (a bug in weir)";
pub(crate) const BUSY: &str = "weir: the server is busy; try again in a minute";

/// Why a client gets nothing, with what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing, for this client.
    NotFound(String),
    /// It is not served, to nobody.
    Off(String),
    /// Nothing is said to those who do not say who they are. Only HTTP has words for that.
    Unauthorized(String),
    /// Not now; later perhaps.
    Busy(String),
    /// The server failed.
    Failed(String),
}

impl Refusal {
    /// What the client is told.
    pub fn words(&self) -> &str {
        match self {
            Refusal::NotFound(words)
            | Refusal::Off(words)
            | Refusal::Unauthorized(words)
            | Refusal::Busy(words)
            | Refusal::Failed(words) => words,
        }
    }
}

/// Finds what a client asks for.
pub trait Locator: Send + Sync {
    /// What a request asks for.
    ///
    /// # Errors
    /// If there is no such thing for this client.
    fn find(&self, request: &DaemonRequest, client: &Client) -> Result<Found, Refusal>;

    /// Whether finding may take long (a name to be looked up, a program to be run): it then gets a thread of
    /// its own.
    fn may_block(&self) -> bool {
        false
    }

    /// Whether whatever is found is for everybody: then others may keep copies of it.
    fn is_open(&self) -> bool {
        true
    }
}
