//! Repositories that get no name.

/// Why a repository that a forge lists gets no name here.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoName(pub String);
