//! Options for serving a repository, and limits on the cost of a request.

use std::sync::Arc;

use weir_repo::Repo;

use crate::policy::Features;

/// Limits on the cost of one request.
#[derive(Clone, Copy, Debug)]
pub struct UploadLimits {
    /// The bytes of one request.
    pub request_bytes_max: usize,
    /// The lines of one request, such as wants, haves and ref prefixes.
    pub lines_max: usize,
    /// The commits and trees examined for one answer.
    pub steps_max: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        // A clone of half a million refs sends as many lines of 50 bytes.
        UploadLimits { request_bytes_max: 32 << 20, lines_max: 600_000, steps_max: 200_000_000 }
    }
}

/// Options for serving.
#[derive(Clone, Debug)]
pub struct UploadOptions {
    /// The agent capability.
    pub agent: String,
    /// The limits on one request.
    pub limits: UploadLimits,
    /// Features that are offered to clients.
    pub features: Features,
}

impl Default for UploadOptions {
    fn default() -> Self {
        UploadOptions {
            agent: concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned(),
            limits: UploadLimits::default(),
            features: Features::default(),
        }
    }
}

/// The repository and options of a session, as v0, v1 and v2 see them.
pub(crate) struct Context {
    pub(crate) repo: Arc<Repo>,
    pub(crate) options: Arc<UploadOptions>,
}
