//! Files of git directories, which may be anybody's: of a bounded length, and ordinary ones only.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file at `path`, whole.
///
/// # Errors
/// If it is not there, is no ordinary file, or has more than `bytes_max`.
pub fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let bad =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("'{}' {what}", path.display()));
    // A pipe that nobody writes to would be waited for.
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

/// Reads a file like [`read_at_most`]; returns `None` if it is not there.
///
/// # Errors
/// As those of [`read_at_most`].
pub fn read_if_there(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    match read_at_most(path, bytes_max) {
        Ok(data) => Ok(Some(data)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}
