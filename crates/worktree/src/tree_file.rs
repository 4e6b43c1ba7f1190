//! A file of a tree beside the one in a working tree.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weir_git::{HashKind, Kind, ObjectHasher, Oid};

use crate::error::{Error, Result};

/// The mode of links in an index.
pub const LINK: u32 = 0o120_000;
/// The mode of submodules in an index.
pub const SUBMODULE: u32 = 0o160_000;

/// A file, link or submodule of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Its mode, as an index has it.
    pub mode: u32,
    /// Its id.
    pub oid: Oid,
}

impl TreeFile {
    /// Returns whether a file is of the same kind as this one: a link or a regular file. With `heeds_mode`,
    /// both must be programs, or neither. The folder of a submodule is of no kind.
    pub fn is_kind_of(self, about: &Metadata, heeds_mode: bool) -> bool {
        match self.mode {
            LINK => about.is_symlink(),
            mode => {
                let is_alike = (about.mode() & 0o100 != 0) == (mode & 0o100 != 0);
                about.is_file() && (is_alike || !heeds_mode)
            }
        }
    }

    /// Returns whether the file at `path`, which is of the same kind, has the same content.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_content_of(self, hash: HashKind, path: &Path) -> Result<bool> {
        let content = match self.mode {
            LINK => fs::read_link(path).map(|target| target.into_os_string().into_encoded_bytes()),
            _ => fs::read(path),
        };
        let content = content.map_err(Error::on(path))?;
        Ok(ObjectHasher::hash(hash, Kind::Blob, &content).is_ok_and(|oid| oid == self.oid))
    }
}

/// Returns the mode that an index has for that of a tree's entry.
pub fn index_mode(mode: u32) -> u32 {
    match mode & 0o170_000 {
        kind @ (LINK | SUBMODULE) => kind,
        _ if mode & 0o100 != 0 => 0o100_755,
        _ => 0o100_644,
    }
}
