//! Small objects that were read lately: those on the way to a path are read for each request, and inflating
//! them costs most of a short answer.
//!
//! An object is named by its content, so repositories share them. Who may read which is decided before.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use weir_git::{Oid, OidMap};
use weir_repo::ObjectReader;

use crate::error::Result;

/// Bytes of all kept objects, and of the largest that is kept.
const BYTES_MAX: usize = 64 << 20;
const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Bytes that an object takes besides its content, about.
const OVERHEAD_BYTES: usize = 128;
const _: () = assert!(OBJECT_BYTES_MAX + OVERHEAD_BYTES <= BYTES_MAX, "the largest that is kept fits");

/// Objects in two generations: what is used moves to the young one, and what was not used while that one
/// filled up is dropped with the old one.
#[derive(Default)]
struct KeptObjects {
    young: OidMap<Arc<Vec<u8>>>,
    young_bytes: usize,
    old: OidMap<Arc<Vec<u8>>>,
}

impl KeptObjects {
    fn get(&mut self, oid: &Oid) -> Option<Arc<Vec<u8>>> {
        if let Some(kept) = self.young.get(oid) {
            return Some(kept.clone());
        }
        let kept = self.old.remove(oid)?;
        self.put(*oid, kept.clone());
        Some(kept)
    }

    fn put(&mut self, oid: Oid, object: Arc<Vec<u8>>) {
        let bytes = object.len() + OVERHEAD_BYTES;
        if self.young_bytes + bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(oid, object).is_none() {
            self.young_bytes += bytes;
        }
    }
}

static KEPT: LazyLock<Mutex<KeptObjects>> = LazyLock::new(Mutex::default);

/// Returns the content of the object `oid`, which the repository of `reader` must have.
///
/// # Errors
/// If it is missing or corrupt.
pub(crate) fn read(reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<Arc<Vec<u8>>> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if reader.objects().contains(oid)
        && let Some(object) = kept().get(oid)
    {
        return Ok(object);
    }
    let object = Arc::new(reader.require(oid)?.data.to_vec());
    if object.len() <= OBJECT_BYTES_MAX {
        kept().put(*oid, object.clone());
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_dropped() {
        let oid = |n: u32| Oid::from_hex_any(format!("{n:040x}").as_bytes()).unwrap();
        let object = || Arc::new(vec![0; OBJECT_BYTES_MAX]);
        let mut kept = KeptObjects::default();
        for n in 0..200 {
            kept.put(oid(n), object());
            assert!(kept.get(&oid(0)).is_some(), "{n}");
            let bytes: usize = kept.young.values().chain(kept.old.values()).map(|o| o.len()).sum();
            assert!(bytes <= BYTES_MAX, "{bytes}");
        }
        assert!(kept.get(&oid(1)).is_none() && kept.get(&oid(199)).is_some());
    }
}
