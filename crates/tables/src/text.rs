//! Text of any encoding as UTF-8, and the bytes where they differ.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8};

/// Decodes the texts of one object.
#[derive(Clone, Copy)]
pub(crate) struct Decoder {
    encoding: &'static Encoding,
}

impl Decoder {
    /// Makes a decoder for the encoding that a commit names. Text is taken for UTF-8 if it names none, or one
    /// that is unknown.
    pub(crate) fn new(label: &[u8]) -> Decoder {
        let encoding = if label.is_empty() { None } else { Encoding::for_label(label) };
        Decoder { encoding: encoding.unwrap_or(UTF_8) }
    }

    /// Returns `bytes` as UTF-8 without NUL, and whether they differ from that.
    pub(crate) fn decode<'b>(&self, bytes: &'b [u8]) -> (Cow<'b, str>, bool) {
        if self.encoding == UTF_8 || (self.encoding.is_ascii_compatible() && bytes.is_ascii()) {
            let text = lossy(bytes);
            let is_lossy = matches!(text, Cow::Owned(_));
            return (text, is_lossy);
        }
        let (text, _) = self.encoding.decode_without_bom_handling(bytes);
        let text = without_nul(text);
        let differs = text.as_bytes() != bytes;
        (text, differs)
    }
}

/// Returns `bytes` as UTF-8 without NUL. U+FFFD replaces what is neither.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
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
        let decode = |label: &[u8], bytes: &[u8]| {
            let (text, differs) = Decoder::new(label).decode(bytes);
            (text.into_owned(), differs)
        };
        assert_eq!(decode(b"", "ü".as_bytes()), ("ü".to_owned(), false));
        assert_eq!(decode(b"", b"\xfc"), ("\u{fffd}".to_owned(), true));
        assert_eq!(decode(b"ISO-8859-1", b"\xfc"), ("ü".to_owned(), true));
        assert_eq!(decode(b"iso8859-1", b"plain"), ("plain".to_owned(), false));
        assert_eq!(decode(b"utf8", "ü".as_bytes()), ("ü".to_owned(), false));
        assert_eq!(decode(b"no such encoding", b"\xfc"), ("\u{fffd}".to_owned(), true));
        assert_eq!(decode(b"", b"a\0b"), ("a\u{fffd}b".to_owned(), true));
        assert_eq!(decode(b"UTF-16LE", b"a\0\0\0"), ("a\u{fffd}".to_owned(), true));
        // Escape sequences of ISO-2022-JP are ASCII, and mean something else.
        assert_eq!(decode(b"ISO-2022-JP", b"\x1b$B$\"\x1b(B").0, "あ");
    }
}
