//! Checksums, and how records write them.

use std::fmt::Write;

/// Bytes of a checksum.
pub const SHA256_BYTES: usize = 32;
/// A SHA-256 checksum.
pub type Sha256Sum = [u8; SHA256_BYTES];

pub(crate) fn hex(sum: &[u8]) -> String {
    let mut s = String::with_capacity(sum.len() * 2);
    for b in sum {
        write!(s, "{b:02x}").expect("to a string");
    }
    s
}

pub(crate) fn unhex(text: &str) -> Option<Sha256Sum> {
    let t = text.as_bytes();
    if t.len() != 64 || !t.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut out = [0; 32];
    for (o, pair) in out.iter_mut().zip(t.chunks_exact(2)) {
        *o = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}
