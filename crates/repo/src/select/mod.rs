//! Selects the objects of an answer: what is wanted, without what the client has and what a filter leaves
//! out.

mod brought;
pub(crate) mod by_bitmaps;
pub(crate) mod by_walk;
pub(crate) mod filter;
pub(crate) mod query;
pub(crate) mod sparse;
