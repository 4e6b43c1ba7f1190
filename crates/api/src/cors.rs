//! Lets pages of other origins read answers, if `serve.cors` names the origins (the Fetch standard, "CORS
//! protocol").

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::{Response, StatusCode};
use weir_serve::HandlerBody;

use crate::answer::set;

/// Returns whether pages of `origin` may read answers.
pub(crate) fn may_read(cors: &[String], origin: &HeaderValue) -> bool {
    cors.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
}

/// Lets pages of `origin` read an answer, if they may. A browser sends no token by itself.
pub(crate) fn let_read(cors: &[String], origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
    if cors.is_empty() {
        return;
    }
    answer.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin.filter(|origin| may_read(cors, origin)) {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let exposed = HeaderValue::from_static("ETag, Location, Retry-After, Content-Range");
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

/// Returns the answer to a page that asks whether it may send `methods` with the headers `taken`.
pub(crate) fn preflight(
    cors: &[String],
    asked: &HeaderMap,
    methods: &str,
    taken: &'static str,
) -> Response<HandlerBody> {
    let mut response = Response::new(HandlerBody::from(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    set(headers, ALLOW, methods);
    let_read(cors, asked.get(ORIGIN), headers);
    if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        set(headers, ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(taken));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    }
    response
}
