//! Text of any encoding as UTF-8.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::iconv::Iconv;

/// The most encodings that are kept open. Commits may name any number.
const OPEN_MAX: usize = 64;

/// Decodes commits.
#[derive(Default)]
pub struct CommitDecoder {
    /// `None` stands for an encoding that nobody knows.
    open: HashMap<Vec<u8>, Option<Iconv>>,
}

impl CommitDecoder {
    /// Returns the commit `data`, which names `encoding`, in UTF-8. Like git, decodes all of it, header and
    /// message (pretty.c, `repo_logmsg_reencode`). Returns `None` if it is UTF-8 already, or cannot be
    /// decoded: then it is taken as it is.
    pub fn decode(&mut self, encoding: &[u8], data: &[u8]) -> Option<Vec<u8>> {
        if encoding.is_empty() || is_utf8(encoding) {
            return None;
        }
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(encoding) {
            self.open.clear();
        }
        let conversion = self.open.entry(encoding.to_vec()).or_insert_with(|| Iconv::open(encoding));
        conversion.as_mut()?.decode(data)
    }
}

/// Returns whether git takes `name` for UTF-8 (utf8.c, `is_encoding_utf8`).
fn is_utf8(name: &[u8]) -> bool {
    let rest = name.get(..3).filter(|start| start.eq_ignore_ascii_case(b"utf")).map(|_| &name[3..]);
    rest.is_some_and(|rest| rest.strip_prefix(b"-").unwrap_or(rest) == b"8")
}

/// Returns `bytes` as UTF-8 without NUL. U+FFFD replaces what is neither.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    without_nul(String::from_utf8_lossy(bytes))
}

/// Replaces NUL with U+FFFD: PostgreSQL has no text with it, and SQLite prints nothing of what follows it.
fn without_nul(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.as_bytes().contains(&0) { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_as_the_commit_says() {
        let mut decoder = CommitDecoder::default();
        let mut decode = |label: &[u8], bytes: &[u8]| {
            decoder.decode(label, bytes).map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(decode(b"", b"\xfc"), None);
        assert_eq!(decode(b"ISO-8859-1", b"\xfc \x92").as_deref(), Some("\u{fc} \u{92}"));
        assert_eq!(decode(b"latin-1", b"\xfc").as_deref(), Some("\u{fc}"));
        assert_eq!(decode(b"utf8", b"\xfc"), None);
        assert_eq!(decode(b"Utf-8", b"\xfc"), None);
        assert_eq!(decode(b"no such encoding", b"\xfc"), None);
        assert_eq!(decode(b"CP1252", b"a\x81"), None, "not in the encoding");
        assert_eq!(decode(b"CP932", b"\x93\xfa").as_deref(), Some("\u{65e5}"));
        // Escape sequences of ISO-2022-JP are ASCII, and mean something else.
        assert_eq!(decode(b"ISO-2022-JP", b"\x1b$B$\"\x1b(B").as_deref(), Some("\u{3042}"));
        // Every byte becomes two.
        let long = vec![0xfc; 100_000];
        assert_eq!(decode(b"ISO-8859-1", &long), Some("\u{fc}".repeat(100_000)));
        assert_eq!(lossy(b"a\0b"), "a\u{fffd}b");
    }
}
