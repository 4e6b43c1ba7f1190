//! The revision of the protocol that a request follows.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::mcp::message::{HEADER_MISMATCH, INVALID_PARAMS, RpcError, RpcRequest, UNSUPPORTED_VERSION};

/// The revision in which each request stands for itself.
const MODERN: &str = "2026-07-28";
/// Revisions that open with `initialize`, the newest first.
pub(crate) const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];

const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
/// Keys in `_meta`: the revision, and what is said of the client.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";

/// The kind of the revision that a request follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Each request names its revision.
    Modern,
    /// A client opens with `initialize`.
    Legacy,
}

/// Returns all revisions that are served, the newest first.
pub(crate) fn served() -> Vec<&'static str> {
    [&[MODERN][..], &LEGACY].concat()
}

/// Returns the kind of the revision of a request.
///
/// # Errors
/// If it follows none that is served, or its headers say something else than its body.
pub(crate) fn era_of(headers: &HeaderMap, request: &RpcRequest) -> Result<Era, RpcError> {
    let header = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let meta = request.params.get("_meta");
    let in_body = meta.and_then(|meta| meta.get(VERSION_KEY));
    let in_header = header(&VERSION_HEADER);
    let is_legacy = |version: &str| LEGACY.contains(&version);
    if in_body.is_none() && (in_header.is_none_or(is_legacy) || request.method == "initialize") {
        return Ok(Era::Legacy);
    }
    let must_be = |name: &HeaderName, expected: &str| match headers.get(name) {
        None => Err(mismatch(name, "is missing")),
        Some(given) if given.to_str().ok().and_then(decoded).as_deref() == Some(expected) => Ok(()),
        Some(_) => Err(mismatch(name, "is not what the body says")),
    };
    match (in_body.map(Value::as_str), in_header) {
        (Some(None), _) => return Err(lacks(VERSION_KEY, "must be a text")),
        (Some(Some(version)), Some(_)) => must_be(&VERSION_HEADER, version)?,
        _ => {}
    }
    let version = in_body.and_then(Value::as_str).or(in_header).unwrap_or_default();
    if is_legacy(version) {
        return Ok(Era::Legacy);
    }
    if version != MODERN {
        let data = json!({ "supported": served(), "requested": version });
        let error = RpcError::bad(UNSUPPORTED_VERSION, "Unsupported protocol version");
        return Err(RpcError { data: Some(data), ..error });
    }
    let field = |key: &str| meta.and_then(|meta| meta.get(key));
    if in_body.is_none() {
        return Err(lacks(VERSION_KEY, "is missing"));
    }
    if !field(CAPABILITIES_KEY).is_some_and(Value::is_object) {
        return Err(lacks(CAPABILITIES_KEY, "must be an object"));
    }
    if field(CLIENT_KEY).is_some_and(|client| !client.is_object()) {
        return Err(lacks(CLIENT_KEY, "must be an object"));
    }
    must_be(&VERSION_HEADER, version)?;
    must_be(&METHOD_HEADER, &request.method)?;
    if request.method == "tools/call" {
        must_be(&NAME_HEADER, request.params.get("name").and_then(Value::as_str).unwrap_or_default())?;
    }
    Ok(Era::Modern)
}

/// Returns the error about a field of `_meta`.
fn lacks(key: &str, words: &str) -> RpcError {
    RpcError::bad(INVALID_PARAMS, format!("'{key}' in '_meta' {words}"))
}

fn mismatch(name: &HeaderName, words: &str) -> RpcError {
    RpcError::new(StatusCode::BAD_REQUEST, HEADER_MISMATCH, format!("the header {name} {words}"))
}

/// Returns the value of a header that may be in base64 (2026-07-28, "Value Encoding").
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, params: Value) -> RpcRequest {
        let Value::Object(params) = params else { panic!("an object") };
        RpcRequest { id: json!(1), method: method.to_owned(), params }
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_era_is_found() {
        let all = json!({ VERSION_KEY: MODERN, CAPABILITIES_KEY: {} });
        let meta = json!({ "_meta": all });
        let call = json!({ "name": "caf\u{e9}", "_meta": all });
        let of = |given: &[(&'static str, &str)], request: &RpcRequest| {
            era_of(&headers(given), request).map_err(|e| e.code)
        };
        let list = request("tools/list", meta.clone());
        let (version, method) = (("mcp-protocol-version", MODERN), ("mcp-method", "tools/list"));
        assert_eq!(of(&[version, method], &list), Ok(Era::Modern));
        assert_eq!(of(&[version], &list), Err(HEADER_MISMATCH));
        assert_eq!(of(&[method], &list), Err(HEADER_MISMATCH));
        assert_eq!(of(&[version, ("mcp-method", "tools/call")], &list), Err(HEADER_MISMATCH));
        let named = [version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?Y2Fmw6k=?=")];
        assert_eq!(of(&named, &request("tools/call", call.clone())), Ok(Era::Modern));
        assert_eq!(of(&named[..2], &request("tools/call", call)), Err(HEADER_MISMATCH));
        let of_version = |version: Value| request("tools/list", json!({ "_meta": { VERSION_KEY: version } }));
        let old = ("mcp-protocol-version", "1900-01-01");
        assert_eq!(of(&[old, method], &of_version("1900-01-01".into())), Err(UNSUPPORTED_VERSION));
        assert_eq!(of(&[version, method], &of_version("1900-01-01".into())), Err(HEADER_MISMATCH));
        assert_eq!(of(&[version, method], &of_version("2025-11-25".into())), Err(HEADER_MISMATCH));
        assert_eq!(of(&[version, method], &of_version(5.into())), Err(INVALID_PARAMS));
        assert_eq!(of(&[version, method], &of_version(MODERN.into())), Err(INVALID_PARAMS));
        let legacy = ("mcp-protocol-version", "2025-11-25");
        assert_eq!(of(&[legacy], &of_version("2025-11-25".into())), Ok(Era::Legacy));
        // Earlier revisions have no such keys; the first had no header, either.
        let plain = request("tools/list", json!({}));
        assert_eq!(of(&[], &plain), Ok(Era::Legacy));
        assert_eq!(of(&[("mcp-protocol-version", "2025-06-18")], &plain), Ok(Era::Legacy));
        assert_eq!(of(&[("mcp-protocol-version", "1900-01-01")], &plain), Err(UNSUPPORTED_VERSION));
        assert_eq!(of(&[version, method], &plain), Err(INVALID_PARAMS));
    }
}
