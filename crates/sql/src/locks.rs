//! Locks that a process holds until it releases them or ends: advisory locks of a session in PostgreSQL,
//! locked files beside the catalog in SQLite.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Locked files beside an SQLite catalog.
pub(crate) struct FileLocks {
    catalog: PathBuf,
    held: HashMap<String, File>,
}

impl FileLocks {
    pub(crate) fn new(catalog: &Path) -> FileLocks {
        FileLocks { catalog: catalog.to_owned(), held: HashMap::new() }
    }

    /// Takes the lock called `name`. Returns false if it is taken already.
    pub(crate) fn try_lock(&mut self, name: &str) -> io::Result<bool> {
        if self.held.contains_key(name) {
            return Ok(false);
        }
        let escaped: String = name
            .bytes()
            .map(|b| {
                if b.is_ascii_alphanumeric() || b == b'-' {
                    char::from(b).to_string()
                } else {
                    format!("%{b:02X}")
                }
            })
            .collect();
        let mut path = self.catalog.clone().into_os_string();
        path.push(format!(".{escaped}.lock"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                self.held.insert(name.to_owned(), file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    pub(crate) fn unlock(&mut self, name: &str) {
        self.held.remove(name);
    }
}
