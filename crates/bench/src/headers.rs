//! Looks headers of a request up, in the ways in which servers do. Run below callgrind, it tells how many
//! instructions a lookup takes.

use std::collections::HashMap;
use std::hint::black_box;

use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
};

use crate::Error;

/// The headers of a fetch by git, through a proxy.
const SENT: [(&str, &str); 12] = [
    ("Host", "git.example.org"),
    ("User-Agent", "git/2.39.5"),
    ("Accept-Encoding", "deflate, gzip, br, zstd"),
    ("Content-Type", "application/x-git-upload-pack-request"),
    ("Accept", "application/x-git-upload-pack-result"),
    ("Accept-Language", "de-DE, *;q=0.9"),
    ("Content-Length", "1735"),
    ("Authorization", "Basic Y2k6b3BlbiBzZXNhbWU="),
    ("X-Forwarded-For", "192.0.2.7"),
    ("X-Forwarded-Proto", "https"),
    ("X-Request-Id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ("Git-Protocol", "version=2"),
];
/// The headers that weir looks up for it. One is not there.
const ASKED: [&str; 6] =
    ["Host", "Authorization", "Content-Type", "Content-Encoding", "X-Request-Id", "Git-Protocol"];
const TYPED: [HeaderName; 6] = [
    HOST,
    AUTHORIZATION,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("git-protocol"),
];

/// Looks all up `count` times as `how` says: `weir`, `scan` or `lower`. Returns how many were found.
pub(crate) fn run(how: &str, count: usize) -> Result<usize, Error> {
    let mut found = 0;
    match how {
        "weir" => {
            let headers: HeaderMap = SENT
                .iter()
                .map(|(name, value)| Ok((name.parse::<HeaderName>()?, HeaderValue::from_static(value))))
                .collect::<Result<_, Error>>()?;
            for _ in 0..count {
                found += TYPED.iter().filter(|name| black_box(&headers).get(*name).is_some()).count();
            }
        }
        // As nginx finds the value of $http_NAME: each header is compared, byte by byte in lower case.
        "scan" => {
            for _ in 0..count {
                let has =
                    |asked: &&&str| black_box(&SENT).iter().any(|(name, _)| name.eq_ignore_ascii_case(asked));
                found += ASKED.iter().filter(has).count();
            }
        }
        // As frameworks do that take names as texts of any case.
        "lower" => {
            let headers: HashMap<String, &str> =
                SENT.iter().map(|(name, value)| (name.to_ascii_lowercase(), *value)).collect();
            for _ in 0..count {
                let has = |asked: &&&str| black_box(&headers).contains_key(&asked.to_ascii_lowercase());
                found += ASKED.iter().filter(has).count();
            }
        }
        _ => return Err("how to look up: weir, scan or lower".into()),
    }
    Ok(found)
}
