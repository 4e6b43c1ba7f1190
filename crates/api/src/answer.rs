//! Answers in JSON, and files.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Response;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, HeaderValue,
};
use serde::Serialize;
use twox_hash::XxHash3_128;
use utoipa::ToSchema;

use weir_serve::{HandlerBody, WantedPart};

use crate::problem::Problem;

/// Describes the bytes of a file.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it only describes answers")]
pub(crate) struct FileBytes(Vec<u8>);

/// The answer of an endpoint.
pub(crate) type ApiResult = Result<Response<HandlerBody>, Problem>;

/// Bytes of a hash that are enough for a tag.
pub(crate) const TAG_BYTES: usize = 16;
/// The seed of tags: nobody can make two bodies that have one tag without it.
static TAG_SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
/// Caches of proxies keep no answer. A client's own asks each time whether its copy is still right.
const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// A path, as JSON has it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PathText {
    /// The path from the top. U+FFFD replaces what is not UTF-8.
    path: String,
    /// The path in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl PathText {
    pub(crate) fn of(path: &[u8]) -> PathText {
        let is_text = std::str::from_utf8(path).is_ok();
        PathText {
            path: String::from_utf8_lossy(path).into_owned(),
            path_base64: (!is_text).then(|| STANDARD.encode(path)),
        }
    }
}

/// Returns `value` as JSON, or nothing, if the client has the same.
pub(crate) fn json<T: Serialize>(headers: &HeaderMap, value: &T) -> ApiResult {
    let body = serde_json::to_vec(value).map_err(|e| Problem::failed(&e))?;
    whole(headers, HeaderValue::from_static("application/json"), body)
}

/// Returns `body`, which is of this kind, or nothing, if the client has the same.
pub(crate) fn whole(headers: &HeaderMap, kind: HeaderValue, body: Vec<u8>) -> ApiResult {
    let etag = format!("\"{:032x}\"", XxHash3_128::oneshot_with_seed(*TAG_SEED, &body));
    let mut response = Response::new(HandlerBody::from(Vec::new()));
    let head = response.headers_mut();
    head.insert(CACHE_CONTROL, PRIVATE);
    set(head, ETAG, &etag);
    if WantedPart::of(headers, &etag, 0) == WantedPart::Nothing {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    head.insert(CONTENT_TYPE, kind);
    *response.body_mut() = body.into();
    Ok(response)
}

/// Returns what the client wants of a file with the tag `etag`, which has no quotes.
pub(crate) fn file(headers: &HeaderMap, etag: &str, kind: HeaderValue, data: &[u8]) -> ApiResult {
    let etag = format!("\"{etag}\"");
    let len = data.len() as u64;
    let mut response = Response::new(HandlerBody::from(Vec::new()));
    let head = response.headers_mut();
    head.insert(CACHE_CONTROL, PRIVATE);
    head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    set(head, ETAG, &etag);
    let (status, range) = match WantedPart::of(headers, &etag, len) {
        WantedPart::Nothing => (StatusCode::NOT_MODIFIED, 0..0),
        WantedPart::Outside => {
            set(head, CONTENT_RANGE, &format!("bytes */{len}"));
            (StatusCode::RANGE_NOT_SATISFIABLE, 0..0)
        }
        WantedPart::Bytes(range) => {
            set(head, CONTENT_RANGE, &format!("bytes {}-{}/{len}", range.start, range.end - 1));
            (StatusCode::PARTIAL_CONTENT, range)
        }
        WantedPart::All => (StatusCode::OK, 0..len),
    };
    if status != StatusCode::NOT_MODIFIED {
        head.insert(CONTENT_TYPE, kind);
        set(head, CONTENT_LENGTH, &(range.end - range.start).to_string());
    }
    *response.status_mut() = status;
    *response.body_mut() = data[range.start as usize..range.end as usize].to_vec().into();
    Ok(response)
}

/// Sets a header whose value is no secret and has no control characters; leaves out one that has some.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns the answer, without its body, of a file called `name` that is written while it is sent, and
/// whether the client has the file already, by the tag `etag`.
pub(crate) fn streamed(
    headers: &HeaderMap,
    etag: &str,
    kind: HeaderValue,
    name: &str,
) -> (Response<HandlerBody>, bool) {
    let mut response = Response::new(HandlerBody::from(Vec::new()));
    let head = response.headers_mut();
    head.insert(CACHE_CONTROL, PRIVATE);
    set(head, ETAG, etag);
    if WantedPart::of(headers, etag, 0) == WantedPart::Nothing {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return (response, true);
    }
    head.insert(CONTENT_TYPE, kind);
    name_file(head, name);
    (response, false)
}

/// Names the file that a browser saves (RFC 6266).
fn name_file(head: &mut HeaderMap, name: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    set(head, CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}\""));
}
