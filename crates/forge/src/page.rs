//! Parts of a listing.

use weir_catalog::Listed;

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What it lists.
    pub repositories: Vec<Listed>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// What tells this page from what it will be, if the forge says so and all about the repositories in it is known.
    pub etag: Option<String>,
    /// It is as it was when it had the tag that was shown: then it lists nothing.
    pub is_unchanged: bool,
    /// Set if the forge could not give it: then it lists nothing.
    pub skipped: Option<Skipped>,
}

/// A page that a forge could not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it starts.
    pub position: String,
    /// Why.
    pub error: String,
}
