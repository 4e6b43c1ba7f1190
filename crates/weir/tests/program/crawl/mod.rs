//! Listings of forges, dumps and metadata.

mod github;
mod import;
mod listings;
mod metadata;
