//! Parts of a listing.

use weir_listed::Listed;

use crate::Error;

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The repositories that it lists.
    pub repositories: Vec<Listed>,
    /// The position of the next page; `None` at the end.
    pub next: Option<String>,
    /// The ETag of the page, if the forge sends one and all details of the repositories on the page are
    /// known.
    pub etag: Option<String>,
    /// Whether it is unchanged since it had the ETag that was sent: then it lists nothing.
    pub is_unchanged: bool,
    /// Set if it could not be fetched: then it lists nothing.
    pub skipped: Option<Skipped>,
    /// Set if the forge refuses it to all our credentials: then it lists nothing.
    pub left_out: Option<Skipped>,
}

impl Page {
    /// Returns a page that could not be fetched and is skipped; `next` follows.
    pub(crate) fn skipping(position: &str, error: &Error, next: Option<String>) -> Page {
        Page {
            next,
            skipped: Some(Skipped { position: position.to_owned(), error: error.to_string() }),
            ..Page::default()
        }
    }

    /// Returns a page for an owner that is gone, or not visible to us; `next` is the next owner's.
    pub(crate) fn leaving_out(position: &str, error: &Error, next: Option<String>) -> Page {
        tracing::warn!("skipped: {error}");
        let is_forbidden = !matches!(error, Error::NotFound(_));
        let left_out =
            is_forbidden.then(|| Skipped { position: position.to_owned(), error: error.to_string() });
        Page { next, left_out, ..Page::default() }
    }
}

/// A page that could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it starts.
    pub position: String,
    /// Why.
    pub error: String,
}
