//! Reads files of git directories, which may come from anywhere: only regular files of a bounded length.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most bytes of a file with a few lines.
pub(crate) const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Reads the whole file at `path`.
///
/// # Errors
/// If the file is missing, is no regular file, or has more than `bytes_max` bytes.
pub fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let bad =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("'{}' {what}", path.display()));
    // Without this flag, opening a pipe that no process writes to would block.
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(bad("is no file".to_owned()));
    }
    let mut data = Vec::with_capacity(metadata.len().min(bytes_max) as usize);
    file.take(bytes_max + 1).read_to_end(&mut data)?;
    if data.len() as u64 > bytes_max {
        return Err(bad(format!("is larger than {bytes_max} bytes")));
    }
    Ok(data)
}

/// Reads a file like [`read_at_most`]; returns `None` if it is missing.
///
/// # Errors
/// As [`read_at_most`].
pub fn read_if_there(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    match read_at_most(path, bytes_max) {
        Ok(data) => Ok(Some(data)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the content of a file of at most `bytes_max`; empty if there is none.
///
/// # Errors
/// If it cannot be read, or is larger.
pub(crate) fn read_or_empty(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    Ok(read_if_there(path, bytes_max)?.unwrap_or_default())
}
