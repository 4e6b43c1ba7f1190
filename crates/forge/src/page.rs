//! Parts of a listing.

use weir_catalog::Listed;

use crate::Error;

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What it lists.
    pub repositories: Vec<Listed>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// What tells this page from what it will be, if the forge says so and all about the repositories in it
    /// is known.
    pub etag: Option<String>,
    /// It is as it was when it had the tag that was shown: then it lists nothing.
    pub is_unchanged: bool,
    /// Set if the forge could not give it: then it lists nothing.
    pub skipped: Option<Skipped>,
    /// Set if the forge gives it to nobody of ours, and says so: then it lists nothing.
    pub left_out: Option<Skipped>,
}

impl Page {
    /// One that could not be had, and is passed over; `next` follows.
    pub(crate) fn skipping(position: &str, error: &Error, next: Option<String>) -> Page {
        Page {
            next,
            skipped: Some(Skipped { position: position.to_owned(), error: error.to_string() }),
            ..Page::default()
        }
    }

    /// The pages of an owner that are not there, or not for us; `next` is the next owner's.
    pub(crate) fn leaving_out(position: &str, error: &Error, next: Option<String>) -> Page {
        tracing::warn!("skipped: {error}");
        let is_forbidden = !matches!(error, Error::NotFound(_));
        let left_out =
            is_forbidden.then(|| Skipped { position: position.to_owned(), error: error.to_string() });
        Page { next, left_out, ..Page::default() }
    }
}

/// A page that a forge could not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it starts.
    pub position: String,
    /// Why.
    pub error: String,
}
