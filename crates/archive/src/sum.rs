//! Checksums, and how records write them.

/// The length of a checksum in bytes.
pub const SHA256_BYTES: usize = 32;
/// A SHA-256 checksum.
pub type Sha256Sum = [u8; SHA256_BYTES];

/// Reads a checksum as records write it.
pub(crate) fn parse_sum(text: &str) -> Option<Sha256Sum> {
    weir_ground::unhex(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ground::hex;

    #[test]
    fn a_sum_is_written_in_one_way() {
        let sum = [0xea; 32];
        assert_eq!(parse_sum(&hex(&sum)), Some(sum));
        // A flipped bit turns an `e` into an `E`.
        for other in [
            hex(&sum).to_uppercase(),
            hex(&sum)[1..].to_owned(),
            hex(&sum) + "0",
            hex(&sum).replacen('e', "+", 1),
        ] {
            assert_eq!(parse_sum(&other), None, "{other}");
        }
    }
}
