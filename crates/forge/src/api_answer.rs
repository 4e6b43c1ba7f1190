//! Answers of a forge's API: what their headers say of limits, whether one is a success, and what it holds.

use std::time::Duration;

use serde_json::Value;
use ureq::http::header::{ETAG, HeaderName, LINK, LOCATION, RETRY_AFTER};
use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use weir_ground::{Clock, printable_or};

use crate::{Error, Result};

/// The headers in which forges send what is left of a limit, and when the limit is reset.
pub(crate) const REMAINING: [HeaderName; 2] =
    [HeaderName::from_static("x-ratelimit-remaining"), HeaderName::from_static("ratelimit-remaining")];
pub(crate) const RESET: [HeaderName; 2] =
    [HeaderName::from_static("x-ratelimit-reset"), HeaderName::from_static("ratelimit-reset")];
pub(crate) const LIMIT: [HeaderName; 2] =
    [HeaderName::from_static("x-ratelimit-limit"), HeaderName::from_static("ratelimit-limit")];
pub(crate) const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
/// The wait that GitHub asks for if a limit comes without a time.
pub(crate) const LIMIT_WAIT_MIN: Duration = Duration::from_secs(60);
/// ETags longer than this are not kept.
const ETAG_BYTES_MAX: usize = 200;
/// Answers that are longer tell of no limit.
const LIMIT_BYTES_MAX: usize = 64 << 10;
/// Characters of an error's body that are shown.
const DETAIL_CHARS_MAX: usize = 200;

/// An answer of the API.
pub(crate) struct ApiAnswer {
    pub(crate) value: Value,
    /// The target of `rel="next"`.
    pub(crate) next: Option<String>,
    /// The ETag of the answer.
    pub(crate) etag: Option<String>,
}

/// Why a request has no answer, and so what to do about it.
pub(crate) enum Unanswered {
    /// The limit of this credential is used up until this time.
    Limited(u64),
    /// The error is temporary.
    Again(String),
    Never(Error),
    /// The forge rejects this credential.
    Refused(Error),
}

pub(crate) fn now() -> u64 {
    Clock::default().now().as_u64()
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    headers.get("content-type").and_then(|v| v.to_str().ok()).is_some_and(|t| t.contains("json"))
}

pub(crate) fn number(headers: &HeaderMap, names: &[HeaderName]) -> Option<u64> {
    names.iter().find_map(|name| headers.get(name)?.to_str().ok()?.trim().parse().ok())
}

/// Returns when a limit is reset, in seconds since 1970. Forges send that time, or the seconds until then.
pub(crate) fn reset_time(headers: &HeaderMap) -> Option<u64> {
    let reset = number(headers, &RESET)?;
    Some(if reset < 1_000_000_000 { now().saturating_add(reset) } else { reset.saturating_add(1) })
}

/// Returns when to ask again, in seconds since 1970, as an answer about a limit says: after a while, or when
/// a limit of which nothing remains is reset.
fn asked_until(headers: &HeaderMap) -> Option<u64> {
    let after = number(headers, &[RETRY_AFTER]).map(|s| now().saturating_add(s));
    after.or_else(|| (number(headers, &REMAINING) == Some(0)).then(|| reset_time(headers)).flatten())
}

/// Returns whether an answer of GraphQL says that a limit is used up. It has the status of a success, and
/// something may remain of the limit that its headers tell of: a secondary limit is not that one.
fn is_graphql_limit(body: &[u8]) -> bool {
    if body.len() > LIMIT_BYTES_MAX || !body.windows(8).any(|w| w == b"\"errors\"") {
        return false;
    }
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return false };
    let says = |error: &Value| {
        let has = |text: &Value, what: &str| {
            text.as_str().is_some_and(|text| text.to_ascii_lowercase().replace('_', " ").contains(what))
        };
        let codes = [&error["type"], &error["code"], &error["extensions"]["code"]];
        codes.iter().any(|code| has(code, "rate limit")) || has(&error["message"], "rate limit")
    };
    answer["data"].is_null() && answer["errors"].as_array().is_some_and(|errors| errors.iter().any(says))
}

/// Checks whether an answer is a success; if not, returns what to do about it.
pub(crate) fn judge(
    url: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> std::result::Result<(), Unanswered> {
    let detail = || {
        let text = String::from_utf8_lossy(&body[..body.len().min(4 * DETAIL_CHARS_MAX)]);
        let message = serde_json::from_slice::<Value>(body)
            .ok()
            .and_then(|v| Some(v.get("message")?.as_str()?.to_owned()));
        let text = message.unwrap_or_else(|| text.into_owned());
        printable_or(&text, ' ').chars().take(DETAIL_CHARS_MAX).collect::<String>()
    };
    Err(match status.as_u16() {
        // GraphQL reports a limit with the status of a success.
        200..=299 if is_graphql_limit(body) => Unanswered::Limited(
            asked_until(headers).unwrap_or_else(|| now().saturating_add(LIMIT_WAIT_MIN.as_secs())),
        ),
        200..=299 => return Ok(()),
        403 | 429 => {
            // GitHub: "retry-after", else "x-ratelimit-reset" once nothing remains, else a minute at least.
            let is_limit = status == StatusCode::TOO_MANY_REQUESTS
                || detail().to_ascii_lowercase().contains("rate limit");
            match asked_until(headers) {
                Some(until) => Unanswered::Limited(until),
                None if is_limit => Unanswered::Limited(now().saturating_add(LIMIT_WAIT_MIN.as_secs())),
                None => Unanswered::Never(Error::Forbidden {
                    url: url.to_owned(),
                    status: status.as_u16(),
                    detail: detail(),
                }),
            }
        }
        401 | 407 => Unanswered::Refused(Error::Forbidden {
            url: url.to_owned(),
            status: status.as_u16(),
            detail: detail(),
        }),
        404 | 410 | 451 => Unanswered::Never(Error::NotFound(url.to_owned())),
        422 => Unanswered::Never(Error::Refused { url: url.to_owned(), detail: detail() }),
        408 | 500..=599 => Unanswered::Again(format!("{status}: {}", detail())),
        _ => Unanswered::Never(Error::Unexpected {
            url: url.to_owned(),
            detail: format!("{status}: {}", detail()),
        }),
    })
}

pub(crate) fn parse(url: &str, headers: &HeaderMap, body: &[u8]) -> Result<ApiAnswer> {
    let value = serde_json::from_slice(body)
        .map_err(|e| Error::Unexpected { url: url.to_owned(), detail: e.to_string() })?;
    let said = |name| headers.get(name).and_then(|value| value.to_str().ok());
    Ok(ApiAnswer {
        value,
        next: said(LINK).and_then(next_link),
        etag: said(ETAG).filter(|tag| tag.len() <= ETAG_BYTES_MAX).map(str::to_owned),
    })
}

/// Returns the target of `rel="next"` (RFC 8288).
fn next_link(text: &str) -> Option<String> {
    text.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters
            .split(';')
            .any(|p| matches!(p.trim(), "rel=\"next\"" | "rel=next"))
            .then(|| target.to_owned())
    })
}

/// Returns the parameter `name` of `url`.
pub(crate) fn parameter<'u>(url: &'u str, name: &str) -> Option<&'u str> {
    url.split_once('?')?.1.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
}

/// Returns whether two URLs have the same scheme, host and port (RFC 6454).
pub(crate) fn is_same_origin(one: &str, other: &str) -> bool {
    let origin = |url: &str| {
        let uri: Uri = url.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = if scheme == "https" { 443 } else { 80 };
        Some((scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
    };
    origin(one).is_some_and(|one| origin(other) == Some(one))
}

/// Returns the URL to which an answer of `url` redirects, if it does.
pub(crate) fn redirected<B>(url: &str, response: &Response<B>) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = response.headers().get(LOCATION)?.to_str().ok()?.trim();
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(match to {
        to if to.starts_with("https://") || to.starts_with("http://") => to.to_owned(),
        to if to.starts_with("//") => format!("{scheme}:{to}"),
        to if to.starts_with('/') => format!("{scheme}://{authority}{to}"),
        _ => return None,
    })
}

/// Escapes a word for the path of a URL.
pub(crate) fn escape(word: &str) -> String {
    word.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        let header = "<https://h/r?since=364>; rel=\"next\", <https://h/r{?since}>; rel=\"first\"";
        assert_eq!(next_link(header).as_deref(), Some("https://h/r?since=364"));
        assert_eq!(next_link("<https://h/r?page=1>; rel=\"prev\""), None);
        assert_eq!(parameter("https://h/r?a=1&since=364", "since"), Some("364"));
        assert_eq!(escape("a/b c"), "a%2Fb%20c");
    }

    #[test]
    fn tokens_stay_at_their_origin() {
        for (one, other, same) in [
            ("https://h/a", "https://h:443/b?c", true),
            ("http://H/a", "http://h:80/", true),
            ("http://h/a", "http://h:81/a", false),
            ("https://h/a", "http://h/a", false),
            ("https://h/a", "https://h.evil/a", false),
            ("https://h@evil/a", "https://h/a", false),
        ] {
            assert_eq!(is_same_origin(one, other), same, "{one} {other}");
        }
        let to = |status: u16, location: &str| {
            let answer = Response::builder().status(status).header("location", location).body(()).unwrap();
            redirected("https://h:8443/a/b?c", &answer)
        };
        assert_eq!(to(301, "/x?y").as_deref(), Some("https://h:8443/x?y"));
        assert_eq!(to(307, "http://o/x").as_deref(), Some("http://o/x"));
        assert_eq!(to(302, "//o/x").as_deref(), Some("https://o/x"));
        assert_eq!([to(200, "/x"), to(301, "x"), to(301, "file:///etc/passwd")], [None, None, None]);
    }
}
