//! Parts of a listing.

use weir_catalog::Listed;

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What it lists.
    pub repositories: Vec<Listed>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
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
