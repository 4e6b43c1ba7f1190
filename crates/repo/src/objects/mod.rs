//! Objects in packs and loose files: finds them by id, reads them whole, compares them. Knows no refs.

pub(crate) mod bits;
pub(crate) mod delta;
pub(crate) mod delta_cache;
pub(crate) mod entry;
pub(crate) mod forest;
pub(crate) mod id_finder;
pub(crate) mod index;
pub(crate) mod lookup;
pub(crate) mod loose;
pub(crate) mod object_set;
pub(crate) mod pack;
pub(crate) mod reader;
pub(crate) mod resident;
pub(crate) mod tree_diff;
pub(crate) mod zlib;
