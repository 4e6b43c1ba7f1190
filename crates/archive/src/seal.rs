//! Sealing (section 7): making a copy that ends as POSIX requires of a tar.

use std::io::{self, Write};

use crate::reader::Archive;

/// Returns the committed bytes of `archive`. Together with the last bytes of [`write_sealed`], they are the
/// sealed tar.
pub fn seal_prefix(archive: &Archive) -> &[u8] {
    archive.region()
}

/// Writes the committed part and the two zero blocks that end a tar. Nothing may be appended to the result.
///
/// # Errors
/// If `out` fails.
pub fn write_sealed(archive: &Archive, out: &mut impl Write) -> io::Result<u64> {
    out.write_all(seal_prefix(archive))?;
    out.write_all(&[0; 1024])?;
    out.flush()?;
    Ok(archive.region().len() as u64 + 1024)
}
