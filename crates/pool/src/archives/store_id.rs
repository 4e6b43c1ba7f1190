//! The id of a store, in a file in it. By the id, a catalog knows that the store holds its archives.

use std::fs::Permissions;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir_catalog::Catalog;
use weir_ground::FileError;

use crate::error::{Error, Result};

/// The file in a store that identifies it.
pub const STORE_ID_NAME: &str = ".store-id";

/// Returns `catalog` if `store` is the store that it knows. A store that is not mounted has no id: nothing is
/// cloned into the empty folder in its place.
///
/// # Errors
/// If the catalog knows another store, or the store that it knows is missing.
pub fn claim(catalog: Catalog, store: &Path) -> Result<Catalog> {
    match catalog.store()? {
        Some(known) if read(store)?.is_none() => {
            Err(Error::NoStore { id_file: store.join(STORE_ID_NAME), id: known })
        }
        _ => {
            catalog.claim_store(&read_or_make(store)?)?;
            Ok(catalog)
        }
    }
}

/// Returns the id of `store`. Makes one if it has none.
///
/// # Errors
/// If the file cannot be read or written.
pub fn read_or_make(store: &Path) -> Result<String> {
    if let Some(id) = read(store)? {
        return Ok(id);
    }
    let path = store.join(STORE_ID_NAME);
    let fail = FileError::on("write", &path);
    let id = format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1));
    // The id is not a secret: every process that reads the pool needs it.
    let readable = Permissions::from_mode(0o644);
    let mut new = tempfile::Builder::new().permissions(readable).tempfile_in(store).map_err(fail)?;
    writeln!(new, "{id}").and_then(|()| new.as_file().sync_all()).map_err(fail)?;
    // The file is written completely or not at all, and the first of two processes wins.
    match new.persist_noclobber(&path) {
        Ok(_) => Ok(id),
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => read_or_make(store),
        Err(e) => Err(fail(e.error).into()),
    }
}

/// Returns the id of `store`, if it has one.
fn read(store: &Path) -> Result<Option<String>> {
    let path = store.join(STORE_ID_NAME);
    match std::fs::read_to_string(&path) {
        Ok(id) => Ok(Some(id.trim().to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FileError::on("read", &path)(e).into()),
    }
}
