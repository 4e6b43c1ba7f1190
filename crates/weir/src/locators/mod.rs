//! Finds the repositories that clients name: through the catalog, or by their path on disk.

pub(crate) mod catalog;
pub(crate) mod paths;
