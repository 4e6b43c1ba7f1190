//! Finds the repository that a client asks for.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use hyper::StatusCode;
use weir_repo::{NamedState, Repo};
use weir_upload::DaemonRequest;

/// The client that sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its address; `None` over a Unix socket or a pipe.
    pub address: Option<SocketAddr>,
    /// The token that it presents over HTTP: a bearer token, or the password of basic authentication (the
    /// user name, if the password is empty).
    pub token: Option<String>,
    /// The name of its token, if another program has authenticated the client.
    pub known_as: Option<String>,
}

impl Client {
    /// Returns a client at `address` that presents no token.
    pub fn at(address: Option<SocketAddr>) -> Client {
        Client { address, ..Client::default() }
    }
}

/// Where a repository lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// In an archive.
    Archive(PathBuf),
    /// In an archive, in an older state.
    OlderState(PathBuf, NamedState),
    /// In an ordinary git directory.
    Directory(PathBuf),
}

impl Found {
    /// Returns the path of the archive or the directory.
    pub fn path(&self) -> &Path {
        match self {
            Found::Archive(path) | Found::OlderState(path, _) | Found::Directory(path) => path,
        }
    }
}

/// The message to a client after a panic. The log has the details.
pub(crate) const INTERNAL_ERROR: &str = "internal error (a bug in weir)";
/// The message to a client whose turn did not come in time.
pub(crate) const BUSY: &str = "weir: the server is busy; try again in a minute";

/// The message to a client that would have to authenticate, and cannot.
const NO_TOKEN: &str =
    "no such repository, or one that needs a token, which only HTTP can carry: use its http(s):// URL";

/// Why a request is refused, with the message to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// For this client, there is no such repository.
    NotFound(String),
    /// It is not served to any client.
    Off(String),
    /// The client must authenticate first. Only HTTP has a way to say so.
    Unauthorized(String),
    /// No answer can be made of what it asks for.
    Wrong(String),
    /// Not now; perhaps later.
    Busy(String),
    /// The server failed.
    Failed(String),
}

impl Refusal {
    /// Returns the message to a client that could not send a token: over git://, ssh or a pipe.
    pub fn words_without_token(&self) -> &str {
        match self {
            Refusal::Unauthorized(_) => NO_TOKEN,
            other => other.words(),
        }
    }

    /// Returns the status of HTTP.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Off(_) => StatusCode::FORBIDDEN,
            Refusal::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Refusal::Wrong(_) => StatusCode::BAD_REQUEST,
            Refusal::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the message to a client over HTTP.
    pub fn words(&self) -> &str {
        match self {
            Refusal::NotFound(words)
            | Refusal::Off(words)
            | Refusal::Unauthorized(words)
            | Refusal::Wrong(words)
            | Refusal::Busy(words)
            | Refusal::Failed(words) => words,
        }
    }
}

/// Why a client may have to wait for a visit to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedFor {
    /// It begins to read.
    Begin,
    /// It begins to read, and takes what is arriving.
    Arriving,
    /// It reads on, and so does not wait for news.
    First,
    /// The copy lacks what it wants.
    Missing,
}

/// The end of a visit to an upstream, for which clients wait. If the visit has failed and there is an older
/// copy, it results in the reason.
pub type AwaitedVisit = Pin<Box<dyn Future<Output = Result<Option<String>, Refusal>> + Send>>;

/// Finds the repositories that clients ask for.
pub trait Locator: Send + Sync {
    /// Finds what a request asks for.
    ///
    /// # Errors
    /// If this client does not get it.
    fn find(&self, request: &DaemonRequest, client: &Client) -> Result<Found, Refusal>;

    /// Returns the visit to the upstream for which a client must wait; `None` if it need not wait.
    ///
    /// # Errors
    /// If this client does not get what `request` asks for.
    fn awaited(
        &self,
        request: &DaemonRequest,
        client: &Client,
        why: AwaitedFor,
    ) -> Result<Option<AwaitedVisit>, Refusal> {
        let _ = (request, client, why);
        Ok(None)
    }

    /// Returns whether any repository is arriving: only then is one looked for.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// Returns the repository that a request asks for, if it is arriving.
    ///
    /// # Errors
    /// If this client does not get it.
    fn arriving(&self, request: &DaemonRequest, client: &Client) -> Result<Option<Arc<Repo>>, Refusal> {
        let _ = (request, client);
        Ok(None)
    }

    /// Returns the name of `client`, if it has authenticated.
    fn user(&self, client: &Client) -> Option<String> {
        let _ = client;
        None
    }

    /// Returns whether finding may take long (to look up a name, or to run a program): it then runs on a
    /// thread of its own.
    fn may_block(&self) -> bool {
        false
    }

    /// Returns whether everything that it finds is public: then shared caches may keep copies.
    fn is_open(&self) -> bool {
        true
    }
}
