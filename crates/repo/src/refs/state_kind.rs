//! How a state of the refs came to be, as attributes say.

use weir_archive::Archive;

/// The attribute that says that the refs are part of what the upstream had, part of what it had before: the
/// rest follows.
pub(crate) const PARTIAL_KEY: &str = "partial";
/// The attribute that says that refs are as somebody wanted to have them again, and not as the upstream has
/// them.
pub(crate) const RESTORED_KEY: &str = "restored";

/// How a state of the refs came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateKind {
    /// The upstream had it.
    #[default]
    Mirrored,
    /// Part of it is as the upstream has it, part as it had it before: the rest follows with the next commit,
    /// and this is no state that ever was.
    Partial,
    /// Somebody has had an older one again.
    Restored,
}

impl StateKind {
    /// What an archive says of the last one.
    pub fn of(archive: &Archive) -> StateKind {
        match (archive.attribute(PARTIAL_KEY), archive.attribute(RESTORED_KEY)) {
            (Some(_), _) => StateKind::Partial,
            (None, Some(_)) => StateKind::Restored,
            (None, None) => StateKind::Mirrored,
        }
    }
}
