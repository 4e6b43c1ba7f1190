//! The token that a request presents.

use base64::Engine;
use hyper::header::{AUTHORIZATION, HeaderMap};

/// Returns the token that a request presents: a bearer token, or the password of basic authentication. If the
/// password is empty, the user name is the token.
pub(crate) fn token_of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(rest.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(if password.is_empty() { user } else { password }.to_owned())
}
