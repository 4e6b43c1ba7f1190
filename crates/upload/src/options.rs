//! Options for serving a repository, and limits on the cost of a request.

use std::sync::Arc;

use weir_git::Oid;
use weir_repo::Repo;

use crate::archiver::TreeArchiver;
use crate::policy::Features;

/// The words, of git, with which a refusal of what is not here begins.
pub(crate) const NOT_OUR_REF: &str = "upload-pack: not our ref";

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
    /// Whether a client that wants what is lost hears which alternate is not there. For clients on this
    /// machine: it tells a path.
    pub tells_lost_folders: bool,
    /// A line that clients show their users when they fetch with protocol version 2.
    pub notice: Option<String>,
    /// Makes archives for `git archive --remote`, if that is served.
    pub archiver: Option<Arc<dyn TreeArchiver>>,
}

impl Default for UploadOptions {
    fn default() -> Self {
        UploadOptions {
            agent: concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned(),
            limits: UploadLimits::default(),
            features: Features::default(),
            tells_lost_folders: false,
            notice: None,
            archiver: None,
        }
    }
}

/// The repository and options of a session, as v0, v1 and v2 see them.
pub(crate) struct Context {
    pub(crate) repo: Arc<Repo>,
    pub(crate) options: Arc<UploadOptions>,
}

impl Context {
    /// Returns whether `oid` is here, or arriving.
    pub(crate) fn has(&self, oid: &Oid) -> bool {
        self.repo.contains(oid) || self.repo.arriving_pack().is_some_and(|pack| pack.brings(oid))
    }

    /// Returns why `oid`, which is wanted, cannot be had: in git's words, and what is known beyond them.
    pub(crate) fn refusal_of(&self, oid: &Oid) -> String {
        let mut text = format!("{NOT_OUR_REF} {oid}");
        let named = self.repo.refs().list().iter().find(|r| r.oid == *oid);
        if let Some(r) = named.filter(|_| !self.repo.contains(oid)) {
            let name = String::from_utf8_lossy(&r.name);
            text += &format!(": the object of '{}' is missing", name.escape_debug());
            if let [folder, ..] = self.repo.objects().lost_folders()
                && self.options.tells_lost_folders
            {
                text += &format!(", and the alternate '{}' is not there", folder.display());
            }
        }
        text
    }
}
