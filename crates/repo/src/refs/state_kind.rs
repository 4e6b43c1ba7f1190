//! How a state of the refs came to be, as recorded in attributes.

use weir_archive::Archive;

/// The attribute that marks incomplete refs: some are as the upstream has them now, the others as it had them
/// before. The rest follows.
pub(crate) const PARTIAL_KEY: &str = "partial";
/// The attribute that marks refs restored by a user: they are not as the upstream has them.
pub(crate) const RESTORED_KEY: &str = "restored";

/// How a state of the refs came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateKind {
    /// The upstream had this state.
    #[default]
    Mirrored,
    /// Some refs are as the upstream has them, the others as it had them before. The rest follows with the
    /// next commit. This state never existed at the upstream.
    Partial,
    /// A user has restored an older state.
    Restored,
}

impl StateKind {
    /// Returns the kind of the last state in `archive`.
    pub fn of(archive: &Archive) -> StateKind {
        match (archive.attribute(PARTIAL_KEY), archive.attribute(RESTORED_KEY)) {
            (Some(_), _) => StateKind::Partial,
            (None, Some(_)) => StateKind::Restored,
            (None, None) => StateKind::Mirrored,
        }
    }
}
