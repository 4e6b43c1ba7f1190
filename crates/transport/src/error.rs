//! What can go wrong with an upstream, by what it means for the copy.

use std::io;

use weir_git::pktline::PktError;

/// A class of errors: it decides when the next visit is, and what the user is told to do
/// (`docs/user-guide.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The network or the server's host: keep the copy, try again later.
    Network,
    /// The server is there and fails (5xx, "internal error"): keep the copy, try again later.
    Server,
    /// The server's certificate is not believed.
    Certificate,
    /// There is no such repository (any more).
    Gone,
    /// It is there and not for us.
    Forbidden,
    /// What the server sent breaks the protocol, or a limit.
    Protocol,
    /// Something on this machine: a disk, a missing program.
    Local,
}

impl ErrorClass {
    /// Its name in catalogs and on screens.
    pub fn name(self) -> &'static str {
        match self {
            ErrorClass::Network => "network",
            ErrorClass::Server => "server",
            ErrorClass::Certificate => "certificate",
            ErrorClass::Gone => "gone",
            ErrorClass::Forbidden => "forbidden",
            ErrorClass::Protocol => "protocol",
            ErrorClass::Local => "local",
        }
    }
}

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Connecting failed.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Host and port.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The server's certificate is not believed.
    #[error("the certificate of {host} is not believed: {why}")]
    Certificate {
        /// Host and port.
        host: String,
        /// Why.
        why: String,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// Nothing came for too long.
    #[error("the upstream sent nothing for {0} s")]
    IdleTimeout(u64),
    /// Too little came for too long.
    #[error("the upstream sends less than {0} bytes a second")]
    TooSlow(u64),
    /// The upstream ended the connection in the middle of something.
    #[error("the upstream hung up {0}")]
    HungUp(&'static str),
    /// The upstream said no, in its own words.
    #[error("the upstream says: {0}")]
    Remote(String),
    /// HTTP said no.
    #[error("HTTP status {status}{}", .detail.as_deref().map(|d| format!(": {d}")).unwrap_or_default())]
    Http {
        /// The status code.
        status: u16,
        /// What the body says, shortened.
        detail: Option<String>,
    },
    /// HTTP said that it is too much now, and when to come again.
    #[error("HTTP status {status}: the server asks to come again in {wait_s} s")]
    Later {
        /// The status code: 429 or 503.
        status: u16,
        /// Seconds to wait.
        wait_s: u64,
    },
    /// Breaks the protocol.
    #[error("not as the protocol says: {0}")]
    Protocol(String),
    /// ssh said no.
    #[error("ssh failed: {0}")]
    Ssh(String),
    /// Something here is missing or failed.
    #[error("{0}")]
    Local(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What it means.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Connect { .. }
            | Error::Io(_)
            | Error::IdleTimeout(_)
            | Error::TooSlow(_)
            | Error::HungUp(_) => ErrorClass::Network,
            Error::Certificate { .. } => ErrorClass::Certificate,
            Error::Remote(text) => class_of_words(text).unwrap_or(ErrorClass::Server),
            Error::Ssh(text) => class_of_words(text).unwrap_or(ErrorClass::Network),
            Error::Http { status, .. } => match status {
                401 | 403 | 407 => ErrorClass::Forbidden,
                404 | 410 | 451 => ErrorClass::Gone,
                408 | 429 => ErrorClass::Network,
                500..=599 => ErrorClass::Server,
                _ => ErrorClass::Protocol,
            },
            Error::Later { status: 503, .. } => ErrorClass::Server,
            Error::Later { .. } => ErrorClass::Network,
            Error::Protocol(_) => ErrorClass::Protocol,
            Error::Local(_) => ErrorClass::Local,
        }
    }
}

/// Servers say in words what other protocols have codes for; these are those of git-daemon, the forges and
/// ssh.
fn class_of_words(text: &str) -> Option<ErrorClass> {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&[
        "not exported",
        "permission denied",
        "access denied",
        "unauthorized",
        "forbidden",
        "authentication",
        // gitolite, which says the same of what is not there.
        "denied by fallthru",
        "host key verification failed",
        "no matching host key",
    ]) {
        // git-daemon without --informative-errors says both at once; a copy is kept in either case.
        return Some(if says(&["or repository not exported"]) {
            ErrorClass::Gone
        } else {
            ErrorClass::Forbidden
        });
    }
    if says(&[
        "not found",
        "no such repository",
        "does not exist",
        "not a git repository",
        "does not appear to be a git repository",
        // soft-serve
        "invalid repo",
    ]) {
        return Some(ErrorClass::Gone);
    }
    None
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        if let Some(pkt) = e.get_ref().and_then(|inner| inner.downcast_ref::<PktError>()) {
            return Error::Protocol(pkt.to_string());
        }
        match e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            // One of ours that travelled through `Read`.
            Some(Error::IdleTimeout(s)) => Error::IdleTimeout(*s),
            Some(Error::TooSlow(n)) => Error::TooSlow(*n),
            Some(Error::HungUp(when)) => Error::HungUp(when),
            Some(Error::Remote(text)) => Error::Remote(text.clone()),
            Some(Error::Protocol(text)) => Error::Protocol(text.clone()),
            Some(Error::Ssh(text)) => Error::Ssh(text.clone()),
            Some(Error::Local(text)) => Error::Local(text.clone()),
            Some(Error::Later { status, wait_s }) => Error::Later { status: *status, wait_s: *wait_s },
            Some(Error::Http { status, detail }) => Error::Http { status: *status, detail: detail.clone() },
            _ if e.kind() == io::ErrorKind::UnexpectedEof => Error::HungUp("in the middle of a message"),
            _ => Error::Io(e),
        }
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::other(e)
    }
}
