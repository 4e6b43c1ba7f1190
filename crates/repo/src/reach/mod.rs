//! Reachability: walks over commits and trees, bitmaps, the commit-graph.

pub(crate) mod bitmap;
pub(crate) mod bitmap_walk;
pub(crate) mod commit_graph;
pub(crate) mod delta_reuse;
pub(crate) mod history;
pub(crate) mod path_filter;
pub(crate) mod reachable;
pub(crate) mod steps;
pub(crate) mod walk;
