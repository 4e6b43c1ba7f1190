//! Changes to an archive: commits, compaction, derived files, and what is kept beside git's objects.

pub(crate) mod archive_repo;
pub(crate) mod bundle_file;
pub(crate) mod chains;
pub(crate) mod changed_paths;
pub(crate) mod compact;
pub(crate) mod derived_files;
pub(crate) mod exact;
pub(crate) mod fsck;
pub(crate) mod lfs;
pub(crate) mod link;
pub(crate) mod members;
pub(crate) mod metadata;
pub(crate) mod recover;
pub(crate) mod relink;
pub(crate) mod repack;
