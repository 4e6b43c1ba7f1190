//! A request, as endpoints take it.

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use weir_serve::HandlerClient;

use crate::parameters::Parameters;
use crate::problem::Problem;

/// The repository that a client names in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes parameters")]
pub(crate) struct NamedRepository {
    /// Its name, percent-encoded, or its number.
    repository: String,
}

/// A request.
pub(crate) struct ApiRequest {
    /// The endpoint's path, with the names of its parts in braces.
    pub(crate) path: &'static str,
    /// The values of the parts in braces of the endpoint's path.
    pub(crate) parts: Vec<Vec<u8>>,
    pub(crate) parameters: Parameters,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) client: HandlerClient,
}

impl ApiRequest {
    /// Returns a part of the path as text.
    pub(crate) fn part(&self, number: usize) -> Result<&str, Problem> {
        let part = self.parts.get(number).map(Vec::as_slice).unwrap_or_default();
        let text = std::str::from_utf8(part).ok().filter(|text| !text.chars().any(char::is_control));
        text.ok_or_else(|| {
            Problem::not_found("a name or a revision in the path is not UTF-8, or has control characters")
        })
    }

    /// Returns the body.
    ///
    /// # Errors
    /// If it is not the JSON that the endpoint takes.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let words = "the body must be JSON, with the header 'Content-Type: application/json'";
            return Err(Problem::new(hyper::StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        serde_json::from_slice(&self.body).map_err(|e| Problem::bad_request(format!("the body: {e}")))
    }
}
