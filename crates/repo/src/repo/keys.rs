//! Names under which an archive of a repository says what it is: attributes and members
//! (`docs/archive-format.md`).

/// The member that names the base, as git does (gitrepository-layout, "objects/info/alternates").
pub(crate) const ALTERNATES: &str = "objects/info/alternates";
/// The attribute that says which archive that must be, and its number of commits when something was last
/// built on it.
pub(crate) const BASE_KEY: &str = "base";
/// The attribute an archive is known by, through updates and compactions. A new clone has another.
pub(crate) const ID_KEY: &str = "id";
/// The attribute that says that an archive which is being written anew has objects only, so far: refs and
/// older states come last.
pub(crate) const UNFINISHED_KEY: &str = "unfinished";
/// The attribute that holds the highest number of a lease under which something was written; kept by
/// [`weir_archive`].
pub(crate) const EPOCH_KEY: &str = "epoch";

/// What the names of members begin with that are files of git-lfs's.
pub(crate) const LFS_OBJECTS: &str = "lfs/objects/";
/// What the names of members begin with that are streams of a forge's metadata.
pub(crate) const METADATA: &str = "metadata/";

/// Returns whether the member called `name` is a file of git-lfs's.
pub(crate) fn is_lfs_object(name: &str) -> bool {
    name.starts_with(LFS_OBJECTS)
}

/// Returns whether the member called `name` is a part of a stream of metadata.
pub(crate) fn is_metadata(name: &str) -> bool {
    name.starts_with(METADATA)
}
