//! The names of attributes and members by which an archive describes a repository (`docs/archive-format.md`).

/// The member that names the base, as git does (gitrepository-layout, "objects/info/alternates").
pub(crate) const ALTERNATES: &str = "objects/info/alternates";
/// The attribute with the id of the base, and the number of the base's last commit when something was last
/// built on it.
pub(crate) const BASE_KEY: &str = "base";
/// The attribute with the id of an archive, which it keeps through updates and compactions. A new clone has
/// another.
pub(crate) const ID_KEY: &str = "id";
/// The attribute that says whether all chains of deltas are as short as git writes them. Archives of the
/// first version of weir lack it.
pub(crate) const DELTAS_KEY: &str = "deltas";
/// A value of it.
pub(crate) const SHORT_DELTAS: &str = "short";
/// The other value.
pub(crate) const LONG_DELTAS: &str = "long";
/// The attribute of an archive that is being rewritten and has only objects so far: refs and older states
/// come last.
pub(crate) const UNFINISHED_KEY: &str = "unfinished";
/// The attribute with the highest number of a lease under which something was written; [`weir_archive`] keeps
/// it.
pub(crate) const EPOCH_KEY: &str = "epoch";

/// The prefix of members that are files of git-lfs.
pub(crate) const LFS_OBJECTS: &str = "lfs/objects/";
/// The prefix of members that are streams of a forge's metadata.
pub(crate) const METADATA: &str = "metadata/";

/// Returns whether the member `name` is a file of git-lfs.
pub(crate) fn is_lfs_object(name: &str) -> bool {
    name.starts_with(LFS_OBJECTS)
}

/// Returns whether the member `name` is part of a stream of metadata.
pub(crate) fn is_metadata(name: &str) -> bool {
    name.starts_with(METADATA)
}
