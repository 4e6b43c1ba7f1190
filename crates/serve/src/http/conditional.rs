//! The part of a file that a client wants (RFC 9110, "Conditional Requests" and "Range Requests").

use std::ops::Range;

use hyper::header::{HeaderMap, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};

/// The part of a file that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedPart {
    /// All of it.
    All,
    /// These bytes.
    Bytes(Range<u64>),
    /// Bytes that it does not have.
    Outside,
    /// None: the client has it.
    Nothing,
}

impl WantedPart {
    /// Returns what a client wants, by its `headers`, of a file with the tag `etag` (in quotes) and `len`
    /// bytes. If the file has changed since the client got its first part, the transfer starts over.
    pub fn of(headers: &HeaderMap, etag: &str, len: u64) -> WantedPart {
        let said = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let is_known = |tag: &str| {
            let tag = tag.trim();
            tag == "*" || tag.trim_start_matches("W/") == etag.trim_start_matches("W/")
        };
        if said(IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(is_known)) {
            return WantedPart::Nothing;
        }
        let may_go_on = said(IF_RANGE).is_none_or(|tag| tag == etag);
        match said(RANGE).filter(|_| may_go_on).and_then(|range| parse_range(range, len)) {
            Some(Ok(range)) => WantedPart::Bytes(range),
            Some(Err(())) => WantedPart::Outside,
            None => WantedPart::All,
        }
    }
}

/// Returns the byte range that `text` asks for in a file of `len` bytes; `None` if the request for a range is
/// to be ignored, an error if the range is empty.
fn parse_range(text: &str, len: u64) -> Option<Result<Range<u64>, ()>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first.trim(), last.trim()) {
        ("", last) => len.saturating_sub(last.parse().ok()?)..len,
        (first, "") => first.parse().ok()?..len,
        (first, last) => first.parse::<u64>().ok()?..last.parse::<u64>().ok()?.saturating_add(1).min(len),
    };
    Some(if range.start < range.end { Ok(range) } else { Err(()) })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn ranges() {
        for (text, expected) in [
            ("bytes=0-9", WantedPart::Bytes(0..10)),
            ("bytes=10-", WantedPart::Bytes(10..100)),
            ("bytes=-10", WantedPart::Bytes(90..100)),
            ("bytes=90-1000", WantedPart::Bytes(90..100)),
            ("bytes=100-", WantedPart::Outside),
            ("bytes=5-4", WantedPart::Outside),
            ("bytes=0-1,3-4", WantedPart::All),
            ("lines=1-2", WantedPart::All),
            ("bytes=x-", WantedPart::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(text));
            assert_eq!(WantedPart::of(&headers, "\"a\"", 100), expected, "{text}");
            headers.insert(IF_RANGE, HeaderValue::from_static("\"b\""));
            assert_eq!(WantedPart::of(&headers, "\"a\"", 100), WantedPart::All, "{text}");
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"c\", W/\"a\""));
            assert_eq!(WantedPart::of(&headers, "\"a\"", 100), WantedPart::Nothing, "{text}");
        }
    }
}
