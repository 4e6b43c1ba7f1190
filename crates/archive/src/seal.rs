//! Sealing (section 7): a copy that ends as POSIX says a tar ends.

use std::io::{self, Write};

use crate::reader::Archive;

/// The committed bytes of `archive`: together with [`write_sealed`]'s last bytes, the sealed tar.
pub fn seal_prefix(archive: &Archive) -> &[u8] {
    archive.region()
}

/// Writes the committed part and the two zero blocks that end a tar. The result is no longer appended to.
///
/// # Errors
/// Of `out`.
pub fn write_sealed(archive: &Archive, out: &mut impl Write) -> io::Result<u64> {
    out.write_all(seal_prefix(archive))?;
    out.write_all(&[0; 1024])?;
    out.flush()?;
    Ok(archive.region().len() as u64 + 1024)
}
