//! Listings of forges, dumps and metadata.

mod github;
mod import;
pub mod listings;
mod metadata;
