//! Answers to clients: packs, bundles, exports, trees of a commit, and where a shallow history ends.

pub(crate) mod bundles;
pub(crate) mod commit_trees;
pub(crate) mod deepen;
pub(crate) mod export;
pub(crate) mod pack_writer;
pub(crate) mod sparse_blob;
pub(crate) mod whole_clone;
