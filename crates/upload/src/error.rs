//! The reason why a request is refused.

use weir_git::pktline::PktError;

/// The reason why a request is refused. The client is told; the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Malformed framing.
    #[error(transparent)]
    Pkt(#[from] PktError),
    /// Anything the protocol does not allow, or this server does not do.
    #[error("{0}")]
    Refused(String),
}

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError::Refused(why.into()))
}
