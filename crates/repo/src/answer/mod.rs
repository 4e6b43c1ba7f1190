//! Answers to clients: packs, bundles, exports, and where a shallow history ends.

pub(crate) mod bundles;
pub(crate) mod deepen;
pub(crate) mod export;
pub(crate) mod pack_writer;
pub(crate) mod sparse_blob;
pub(crate) mod whole_clone;
