//! Keeps what commits bring, and objects as deltas on others, for later fetches: clients that are behind lack
//! much the same objects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_git::{Oid, OidMap};

/// The most bytes that are kept, for all repositories together.
const BYTES_MAX: usize = 128 << 20;
/// The bytes that an entry takes besides its content.
const PLACE_BYTES: usize = 128;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// An entry of a pack (gitformat-pack, `OBJ_REF_DELTA`): head, id of the base, compressed delta.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) base: Oid,
    pub(crate) entry: Arc<[u8]>,
}

/// Trees and blobs, each with the object that was at its path before.
pub(crate) type Brought = Arc<[(Oid, Option<Oid>)]>;

/// The kept deltas and lists of one repository.
#[derive(Default)]
pub(crate) struct Changes {
    list: Mutex<OidMap<Change>>,
    brought: Mutex<OidMap<Brought>>,
}

fn brought_bytes(brought: &Brought) -> usize {
    size_of_val::<[_]>(brought) + PLACE_BYTES
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, OidMap<Change>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the delta that was last made of `oid`.
    pub(crate) fn get(&self, oid: &Oid) -> Option<Change> {
        self.lock().get(oid).cloned()
    }

    /// Returns what the commit `oid` brings that its parents lack, if that is known.
    pub(crate) fn brought_by(&self, oid: &Oid) -> Option<Brought> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner).get(oid).cloned()
    }

    /// Keeps what the commit `oid` brings, if there is room.
    pub(crate) fn keep_brought(&self, oid: Oid, brought: Vec<(Oid, Option<Oid>)>) -> Brought {
        let brought: Brought = brought.into();
        let bytes = brought_bytes(&brought);
        if BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes > BYTES_MAX {
            BYTES.fetch_sub(bytes, Ordering::Relaxed);
            self.clear();
        } else if let Some(before) =
            self.brought.lock().unwrap_or_else(PoisonError::into_inner).insert(oid, brought.clone())
        {
            BYTES.fetch_sub(brought_bytes(&before), Ordering::Relaxed);
        }
        brought
    }

    /// Keeps the delta of `oid`, if there is room.
    pub(crate) fn put(&self, oid: Oid, change: Change) {
        let bytes = change.entry.len() + PLACE_BYTES;
        if BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes > BYTES_MAX {
            BYTES.fetch_sub(bytes, Ordering::Relaxed);
            // Everything kept for this repository is dropped: what is needed now will be kept again.
            self.clear();
            return;
        }
        if let Some(before) = self.lock().insert(oid, change) {
            BYTES.fetch_sub(before.entry.len() + PLACE_BYTES, Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        let gone = std::mem::take(&mut *self.lock());
        BYTES
            .fetch_sub(gone.values().map(|change| change.entry.len() + PLACE_BYTES).sum(), Ordering::Relaxed);
        let gone = std::mem::take(&mut *self.brought.lock().unwrap_or_else(PoisonError::into_inner));
        BYTES.fetch_sub(gone.values().map(brought_bytes).sum(), Ordering::Relaxed);
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.clear();
    }
}
