//! Bytes in hexadecimal.

/// Returns `bytes` as lower-case hexadecimal digits, two per byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS[usize::from(n)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the bytes that `text` means: two lower-case hexadecimal digits each. `None` for any other text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_a_byte() {
        assert_eq!(hex(&[0, 9, 0x1f, 0xff]), "00091fff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn digits_are_read_in_one_way() {
        assert_eq!(unhex("00091fff"), Some(vec![0, 9, 0x1f, 0xff]));
        assert_eq!(unhex(""), Some(Vec::new()));
        for other in ["0", "0A", "+1", "0g", "\u{e9}"] {
            assert_eq!(unhex(other), None, "{other}");
        }
    }
}
