//! The errors of upstreams, classed by what they mean for the copy.

use std::io;

use weir_git::pktline::PktError;
use weir_ground::FailureClass;

use crate::proxy::ProxyError;

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Connecting failed.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Host and port.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {host} is not trusted: {why}")]
    Certificate {
        /// Host and port.
        host: String,
        /// The reason.
        why: String,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// The upstream was slower than a limit allows.
    #[error("{}", .limit.exceeded(*.max))]
    Slow {
        /// The limit.
        limit: TimeLimit,
        /// Its value: bytes a second for [`TimeLimit::Rate`], otherwise seconds.
        max: u64,
    },
    /// The upstream ended the connection in the middle of something.
    #[error("the upstream hung up {0}")]
    HungUp(&'static str),
    /// The upstream refused, in its own words.
    #[error("the upstream says: {0}")]
    Remote(String),
    /// The HTTP status is not a success.
    #[error("HTTP status {status}{}", .detail.as_deref().map(|d| format!(": {d}")).unwrap_or_default())]
    Http {
        /// The status code.
        status: u16,
        /// The beginning of the body.
        detail: Option<String>,
    },
    /// The HTTP server refuses for now and says when to come again.
    #[error("HTTP status {status}: the server asks to try again in {wait_s} s")]
    Later {
        /// The status code: 429 or 503.
        status: u16,
        /// The seconds to wait.
        wait_s: u64,
    },
    /// The list of refs would take more memory than [`crate::TransportOptions::refs_bytes_max`].
    #[error("its list of refs would take more than {0} bytes: raise 'limits.refs_bytes_max'")]
    TooManyRefs(u64),
    /// The upstream broke the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// ssh failed.
    #[error("ssh failed: {0}")]
    Ssh(String),
    /// Something on this machine is missing or failed.
    #[error("{0}")]
    Local(String),
}

/// A limit on how slow an upstream may be; each is an option of [`crate::TransportOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// The silence in a greeting, a file, or what has begun: `idle_timeout`.
    Idle,
    /// The silence before an answer begins: `first_byte_timeout`.
    FirstByte,
    /// The time before a pack begins: `pack_start_timeout`.
    PackStart,
    /// The least throughput: `bytes_per_second_min`.
    Rate,
}

impl TimeLimit {
    /// Returns the name of the option of [`crate::TransportOptions`].
    pub fn option(self) -> &'static str {
        match self {
            TimeLimit::Idle => "idle_timeout",
            TimeLimit::FirstByte => "first_byte_timeout",
            TimeLimit::PackStart => "pack_start_timeout",
            TimeLimit::Rate => "bytes_per_second_min",
        }
    }

    /// Returns what an upstream did that exceeded the limit `max`.
    fn exceeded(self, max: u64) -> String {
        match self {
            TimeLimit::Idle => format!("the upstream sent nothing for {max} s"),
            TimeLimit::FirstByte => format!("the upstream did not answer for {max} s"),
            TimeLimit::PackStart => format!("the upstream did not begin to send the pack within {max} s"),
            TimeLimit::Rate => format!("the upstream sends less than {max} bytes a second"),
        }
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the limit that the upstream was too slow for, if that is the error.
    pub fn time_limit(&self) -> Option<TimeLimit> {
        match self {
            Error::Slow { limit, .. } => Some(*limit),
            _ => None,
        }
    }

    /// Returns the class of the failure.
    pub fn class(&self) -> FailureClass {
        match self {
            Error::Connect { .. } | Error::Io(_) | Error::HungUp(_) => FailureClass::Network,
            Error::Slow { .. } => FailureClass::Slow,
            Error::Certificate { .. } => FailureClass::Certificate,
            Error::Remote(text) => class_of_words(text).unwrap_or(FailureClass::Server),
            Error::Ssh(text) => class_of_words(text).unwrap_or(FailureClass::Network),
            Error::Http { status, .. } => match status {
                401 | 403 => FailureClass::Forbidden,
                // Our proxy wants other credentials of ours: that is none of the upstream's business.
                407 => FailureClass::Network,
                404 | 410 | 451 => FailureClass::Gone,
                408 | 429 => FailureClass::Network,
                500..=599 => FailureClass::Server,
                _ => FailureClass::Protocol,
            },
            Error::Later { status: 503, .. } => FailureClass::Server,
            Error::Later { .. } => FailureClass::Network,
            Error::TooManyRefs(_) => FailureClass::Limit,
            Error::Protocol(_) => FailureClass::Protocol,
            Error::Local(_) => FailureClass::Local,
        }
    }
}

/// Classifies error messages, where a protocol has no codes: those of git-daemon, the forges and ssh.
fn class_of_words(text: &str) -> Option<FailureClass> {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&[
        "not exported",
        "permission denied",
        "access denied",
        "unauthorized",
        "forbidden",
        "authentication",
        // gitolite, which also says this of missing repositories.
        "denied by fallthru",
        "host key verification failed",
        "no matching host key",
    ]) {
        // git-daemon without --informative-errors names both causes; a copy is kept in either case.
        return Some(if says(&["or repository not exported"]) {
            FailureClass::Gone
        } else {
            FailureClass::Forbidden
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
        return Some(FailureClass::Gone);
    }
    None
}

impl From<ProxyError> for Error {
    fn from(e: ProxyError) -> Error {
        Error::Local(e.to_string())
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        if let Some(pkt) = e.get_ref().and_then(|inner| inner.downcast_ref::<PktError>()) {
            return Error::Protocol(pkt.to_string());
        }
        match e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            // An error of this crate that was passed through `Read`.
            Some(Error::Slow { limit, max }) => Error::Slow { limit: *limit, max: *max },
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
