//! Where repositories lie that clients name: by the catalog, or by their path on disk.

pub(crate) mod catalog;
pub(crate) mod paths;
