//! Where a look stores metadata, and how often it looks.

use std::path::PathBuf;
use std::time::Duration;

use weir_mirror::{Scratch, Space};

/// Where archives are, and how much room there is.
pub struct Place {
    /// The folder of archives.
    pub store: PathBuf,
    /// Where data goes that is too large for memory.
    pub scratch: Scratch,
    /// The room in the store.
    pub space: Space,
    /// The minimum time between two looks at a repository.
    pub interval: Duration,
}
