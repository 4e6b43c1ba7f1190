//! Lists, page by page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};

use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::request::ApiRequest;

/// The entries of a page, if the client says nothing.
const COUNT: usize = 50;
/// The parameters of a page.
const LIMIT: &str = "limit";
const CURSOR: &str = "cursor";
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

impl<T> EntryPage<T> {
    /// Returns the only page of an empty list.
    pub(crate) fn empty() -> EntryPage<T> {
        EntryPage { items: Vec::new(), next: None }
    }
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
    /// The list that the client asks for.
    #[param(ignore)]
    pub(crate) list: ListId,
}

/// A hash of what is asked for but the page: the endpoint, what its path names, and the parameters. A cursor
/// begins with it, so that the cursor of another list is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListId([u8; 4]);

impl ListId {
    fn of(request: &ApiRequest) -> ListId {
        let mut hasher = Sha256::new();
        let mut add = |part: &[u8]| {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        add(request.path.as_bytes());
        request.parts.iter().for_each(|part| add(part));
        for (name, value) in request.parameters.sorted() {
            if !matches!(name, LIMIT | CURSOR) {
                add(name.as_bytes());
                add(value);
            }
        }
        let hash = hasher.finalize();
        ListId([hash[0], hash[1], hash[2], hash[3]])
    }

    /// Returns the cursor of the page that begins at `place`.
    pub(crate) fn cursor_at(self, place: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode([&self.0, place.as_ref()].concat())
    }

    /// Returns the place of a cursor.
    fn place_of(self, cursor: &str) -> Result<Vec<u8>, Problem> {
        let decoded = URL_SAFE_NO_PAD.decode(cursor).ok();
        let place = decoded.as_deref().and_then(|decoded| decoded.strip_prefix(&self.0));
        place.map(<[u8]>::to_vec).ok_or_else(not_a_cursor)
    }
}

impl WantedPage {
    /// Takes the parameters of a page.
    /// They are the first that an endpoint takes.
    pub(crate) fn take(request: &mut ApiRequest) -> Result<WantedPage, Problem> {
        let list = ListId::of(request);
        let limit = WantedPage::take_count(&mut request.parameters)?;
        let cursor = request.parameters.text(CURSOR)?.filter(|cursor| !cursor.is_empty());
        let cursor = cursor.map(|cursor| list.place_of(&cursor)).transpose()?;
        Ok(WantedPage { limit, cursor, list })
    }

    /// Takes the most entries that a client wants.
    pub(crate) fn take_count(parameters: &mut Parameters) -> Result<usize, Problem> {
        Ok(parameters.number(LIMIT, 1..=COUNT_MAX)?.map_or(COUNT, |limit| limit as usize))
    }

    /// Returns the cursor as text.
    pub(crate) fn cursor_text(&self) -> Result<Option<&str>, Problem> {
        let text = self.cursor.as_deref().map(std::str::from_utf8).transpose();
        text.map_err(|_| not_a_cursor())
    }
}

/// Seals cursors whose place a client may not know: it may be the name of a repository that is hidden from
/// it.
pub(crate) struct CursorSeal(Option<LessSafeKey>);

impl CursorSeal {
    /// Returns the seal of a pool, whose store has the id `store_id`, which no client knows.
    pub(crate) fn new(store_id: &str) -> CursorSeal {
        let key = Sha256::new().chain_update("weir cursor\0").chain_update(store_id).finalize();
        CursorSeal(UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new))
    }

    /// Returns the cursor of the page of `list` that begins at `place`.
    pub(crate) fn seal(&self, list: ListId, place: &str) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        // Padding hides the length of the name.
        let mut text = place.as_bytes().to_vec();
        text.push(0);
        text.resize(text.len().next_multiple_of(64), 0);
        let key = self.0.as_ref()?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text).ok()?;
        Some(list.cursor_at([&nonce[..], &text].concat()))
    }

    /// Returns the place of a cursor.
    pub(crate) fn open(&self, cursor: &[u8]) -> Result<String, Problem> {
        let opened = || {
            let (nonce, text) = cursor.split_first_chunk::<NONCE_LEN>()?;
            let mut text = text.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let text = self.0.as_ref()?.open_in_place(nonce, Aad::empty(), &mut text).ok()?;
            let end = text.iter().position(|byte| *byte == 0)?;
            String::from_utf8(text[..end].to_vec()).ok()
        };
        opened().ok_or_else(not_a_cursor)
    }
}

/// Returns the problem that a cursor is none.
pub(crate) fn not_a_cursor() -> Problem {
    let words =
        "there is no such page: the parameter 'cursor' must be 'next' of a page before, of the same list";
    Problem::not_found(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_cursors_tell_nothing() {
        let seal = CursorSeal::new("store");
        let list = ListId([1, 2, 3, 4]);
        let [short, long] = ["a", "some/other/name"].map(|name| seal.seal(list, name).unwrap());
        assert_eq!(short.len(), long.len());
        let raw = list.place_of(&long).unwrap();
        assert!(ListId([1, 2, 3, 5]).place_of(&long).is_err());
        assert_eq!(seal.open(&raw).unwrap(), "some/other/name");
        assert_ne!(seal.seal(list, "a").unwrap(), short);
        assert!(CursorSeal::new("other").open(&raw).is_err());
        for wrong in [&raw[..raw.len() - 1], &raw[..5], b""] {
            assert!(seal.open(wrong).is_err());
        }
    }
}
