//! Checksums, and how records write them.

/// The length of a checksum in bytes.
pub const SHA256_BYTES: usize = 32;
/// A SHA-256 checksum.
pub type Sha256Sum = [u8; SHA256_BYTES];

pub(crate) fn unhex(text: &str) -> Option<Sha256Sum> {
    let t = text.as_bytes();
    if t.len() != 64 || !t.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut out = [0; 32];
    for (o, pair) in out.iter_mut().zip(t.chunks_exact(2)) {
        *o = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ground::hex;

    #[test]
    fn a_sum_is_written_in_one_way() {
        let sum = [0xea; 32];
        assert_eq!(unhex(&hex(&sum)), Some(sum));
        // A flipped bit turns an `e` into an `E`.
        for other in [
            hex(&sum).to_uppercase(),
            hex(&sum)[1..].to_owned(),
            hex(&sum) + "0",
            hex(&sum).replacen('e', "+", 1),
        ] {
            assert_eq!(unhex(&other), None, "{other}");
        }
    }
}
