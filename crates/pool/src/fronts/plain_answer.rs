//! Answers in plain text.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use weir_serve::HandlerBody;

/// Returns an answer that says `words`, and asks to come again in ten seconds if the status is 503.
pub(super) fn plain_answer(status: StatusCode, words: &str) -> Response<HandlerBody> {
    let mut answer = Response::new(format!("{words}\n").into_bytes().into());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
    }
    answer
}
