//! Why an event cannot be taken.

/// Why the line of an event, or the delivery of a webhook, cannot be understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// A line is no text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// A line is no JSON of an event.
    #[error("it is not the expected JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// A delivery is none of the forge's.
    #[error("the body is not the expected JSON: {0}")]
    Body(#[source] serde_json::Error),
    /// A line has no name.
    #[error("it names no repository")]
    NoRepository,
    /// A line of JSON has no name.
    #[error("it has none of the keys name, url, clone_url and repository")]
    NoKey,
    /// A delivery has no repository, which Azure DevOps leaves out if it is told to.
    #[error("it names no repository: choose 'All' for the resource details to send")]
    NoResource,
    /// A delivery of an event that is about a repository has no URL of one.
    #[error("the '{0}' event names no repository")]
    EventWithoutRepository(String),
    /// The URL and the ref of a delivery do not fit into the line that weir keeps.
    #[error("the URL and ref of the '{0}' event are too long")]
    TooLong(String),
    /// A delivery lacks a header.
    #[error("the header {0} is missing: is this webhook of another forge?")]
    NoHeader(&'static str),
    /// A delivery names repositories by their paths alone.
    #[error("it does not say where the instance is: set url in [[events.webhook]]")]
    NoSite,
    /// An event of Gerrit lacks a part.
    #[error("the event '{event}' has no {part}")]
    NoPart {
        /// Its type.
        event: String,
        /// The key of the part.
        part: &'static str,
    },
}

/// Why a text cannot be the secret of a webhook. The words go on after a name of the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It has to be in base64.
    #[error("is not in base64")]
    NotBase64,
    /// It has to be a public key.
    #[error("is no public key of Ed25519: 32 bytes in base64")]
    NoPublicKey,
}

/// A webhook with a secret that cannot be one.
#[derive(Debug, thiserror::Error)]
#[error("a secret of the webhook '{webhook}' {why}")]
pub struct WrongSecret {
    /// The name of the webhook.
    pub webhook: String,
    /// The reason.
    #[source]
    pub why: SecretError,
}
