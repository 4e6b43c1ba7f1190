//! Refs, HEAD and configuration, as files, reftables and older states have them. Knows no objects.

pub(crate) mod change;
pub(crate) mod config;
pub(crate) mod list;
pub(crate) mod quoted_pairs;
pub(crate) mod reftable;
pub(crate) mod state_kind;
pub(crate) mod states;
