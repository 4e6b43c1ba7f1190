//! Whether the store is there: an empty folder, where a disk was to be mounted, is no store without archives.

use std::path::PathBuf;

use weir_ground::FailureClass;

use crate::failure::Failure;

/// A file in the store that says which one it is.
#[derive(Clone, Debug)]
pub struct StoreMark {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub id: String,
}

impl StoreMark {
    /// Whether the store is there.
    ///
    /// # Errors
    /// If it is not, or is another.
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
