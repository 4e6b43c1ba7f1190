//! Open repositories: an archive or a directory, with its refs, its bodies and its base.

pub(crate) mod archive_file;
pub(crate) mod base;
pub(crate) mod bodies;
pub(crate) mod caches;
pub(crate) mod directory;
pub(crate) mod keys;
pub(crate) mod lost;
pub(crate) mod named_state;
pub(crate) mod object_folders;
pub(crate) mod open;
pub(crate) mod origin;
pub(crate) mod past_refs;
pub(crate) mod reached;
pub(crate) mod repository;
pub(crate) mod revision;
pub(crate) mod snapshot;
