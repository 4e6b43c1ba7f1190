//! A repository that is open, and what is offered of it.

use std::sync::Arc;

use weir_repo::Repo;
use weir_upload::Features;

/// A repository that is open.
#[derive(Clone)]
pub struct Opened {
    /// The repository.
    pub repo: Arc<Repo>,
    /// Features that its own git configuration turns on or off, if it has one.
    pub features: Option<Features>,
    /// Features of HTTP.
    pub http: HttpFeatures,
}

/// Features that only HTTP has (git-config, `http.*`, as git-http-backend reads it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpFeatures {
    /// Whether the files that dumb clients fetch are served. They hold all objects, reachable or not.
    pub files: bool,
    /// Whether smart HTTP is served.
    pub upload_pack: bool,
}
