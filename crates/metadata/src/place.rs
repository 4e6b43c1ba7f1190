//! Where what is taken goes, and how often it is looked for.

use std::path::PathBuf;
use std::time::Duration;

use weir_mirror::{Scratch, Space};

/// Where archives are, with the room there is.
pub struct Place {
    /// The folder of archives.
    pub store: PathBuf,
    /// Where what outgrows memory goes.
    pub scratch: Scratch,
    /// The room in the store.
    pub space: Space,
    /// Time between looks at a repository, at the least.
    pub interval: Duration,
}
