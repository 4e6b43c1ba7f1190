//! The words for classes of failures that are of no repository.

/// The class of failures of listings: those that ended early, and pages that could not be fetched.
pub(crate) const LISTING: &str = "listing";
/// The class of failures to fetch issues, pull requests and releases.
pub(crate) const METADATA: &str = "metadata";
