//! A repository that is open, and what is offered of it.

use std::sync::Arc;

use weir_repo::Repo;
use weir_upload::Features;

/// A repository that is open.
#[derive(Clone)]
pub struct Opened {
    /// It.
    pub repo: Arc<Repo>,
    /// What its own configuration offers, if it has one.
    pub features: Option<Features>,
    /// What is offered over HTTP alone.
    pub http: HttpFeatures,
}

/// What is offered over HTTP alone (git-config, `http.*`, as git-http-backend reads it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpFeatures {
    /// Files, which dumb clients take. They hold whatever the repository holds, reachable or not.
    pub files: bool,
    /// Smart HTTP.
    pub upload_pack: bool,
}
