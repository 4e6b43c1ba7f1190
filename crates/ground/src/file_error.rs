//! A system error that names the file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A system error, with the file and the action that failed.
#[derive(Debug)]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Returns a function that turns a system error into an error of `action` ("read", "write to") on `path`.
    ///
    /// ```
    /// # use weir_ground::FileError;
    /// # use std::path::Path;
    /// let path = Path::new("/none");
    /// let error = std::fs::read(path).map_err(FileError::on("read", path)).unwrap_err();
    /// assert!(error.to_string().starts_with("cannot read '/none': "));
    /// ```
    pub fn on(action: &'static str, path: &Path) -> impl Fn(io::Error) -> FileError + Copy {
        move |source| FileError { action, path: path.to_owned(), source }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} '{}': {}", self.action, self.path.display(), self.source)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
