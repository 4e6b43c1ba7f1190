//! Lists, page by page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::parameters::Parameters;
use crate::problem::Problem;

/// The entries of a page, if the client says nothing.
const COUNT: usize = 50;
/// The most entries of a page.
const COUNT_MAX: u64 = 1000;

/// A page of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EntryPage<T> {
    /// The entries. There may be fewer than were asked for, even none, although more follow.
    pub(crate) items: Vec<T>,
    /// The `cursor` of the next page; null on the last one.
    pub(crate) next: Option<String>,
}

/// The page that a client wants.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WantedPage {
    /// The most entries.
    #[param(minimum = 1, maximum = 1000, default = 50, value_type = Option<u64>)]
    pub(crate) limit: usize,
    /// `next` of the page before.
    #[param(value_type = Option<String>)]
    pub(crate) cursor: Option<Vec<u8>>,
}

impl WantedPage {
    /// Takes the parameters of a page.
    pub(crate) fn take(parameters: &mut Parameters) -> Result<WantedPage, Problem> {
        let limit = WantedPage::take_count(parameters)?;
        let cursor = parameters.text("cursor")?.filter(|cursor| !cursor.is_empty());
        let cursor =
            cursor.map(|text| URL_SAFE_NO_PAD.decode(text).map_err(|_| not_a_cursor())).transpose()?;
        Ok(WantedPage { limit, cursor })
    }

    /// Takes the most entries that a client wants.
    pub(crate) fn take_count(parameters: &mut Parameters) -> Result<usize, Problem> {
        Ok(parameters.number("limit", 1..=COUNT_MAX)?.map_or(COUNT, |limit| limit as usize))
    }

    /// Returns the cursor as text.
    pub(crate) fn cursor_text(&self) -> Result<Option<&str>, Problem> {
        let text = self.cursor.as_deref().map(std::str::from_utf8).transpose();
        text.map_err(|_| not_a_cursor())
    }
}

/// Returns the cursor of the page that begins at `place`.
pub(crate) fn cursor_at(place: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(place)
}

/// Returns the problem that a cursor is none.
pub(crate) fn not_a_cursor() -> Problem {
    Problem::not_found("there is no such page: the parameter 'cursor' must be 'next' of a page before")
}
