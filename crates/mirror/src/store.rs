//! Checks whether the store is mounted: an empty mount point is not a store without archives.

use std::path::PathBuf;

use weir_ground::FailureClass;

use crate::failure::Failure;

/// A file in the store that identifies it.
#[derive(Clone, Debug)]
pub struct StoreMark {
    /// The path of the file.
    pub path: PathBuf,
    /// The expected content.
    pub id: String,
}

impl StoreMark {
    /// Checks whether the store is there.
    ///
    /// # Errors
    /// If it is not there, or is another store.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let what = match std::fs::read_to_string(&self.path) {
            Ok(text) if text.trim() == self.id => return Ok(()),
            Ok(_) => "belongs to another store".to_owned(),
            Err(e) => format!("cannot be read: {e}"),
        };
        let error = format!(
            "'{}', the file that identifies the store, {what}; is the store mounted?",
            self.path.display()
        );
        Err(Failure::new(FailureClass::Store, error))
    }
}
