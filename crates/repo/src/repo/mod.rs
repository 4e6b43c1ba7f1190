//! Open repositories: an archive or a directory, with its refs, its bodies and what it builds on.

pub(crate) mod archive_file;
pub(crate) mod base;
pub(crate) mod bodies;
pub(crate) mod directory;
pub(crate) mod origin;
pub(crate) mod repository;
pub(crate) mod revision;
pub(crate) mod snapshot;
