//! Takes part in mirroring a pool. The first process cleans up after those that were killed.

use std::path::Path;

use weir_catalog::clock::now;
use weir_mirror::mend_times;

use crate::archives::check_locks;
use crate::error::Result;
use crate::running::pool::{Pool, machine_of};

/// A lock that processes share while they mirror. A process that needs to know that no mirror runs takes it
/// exclusively.
pub const MIRROR_LOCK_NAME: &str = "mirror.lock";
/// Held by all processes that look at what forges say, together.
const METADATA_LOCK_NAME: &str = "metadata.lock";

/// A process that mirrors. It leases under a name of its own.
pub struct MirrorGuard {
    /// The name under which it leases.
    pub owner: String,
    _lock: std::fs::File,
}

impl MirrorGuard {
    /// Takes part. If no other process mirrors, leases that still exist belonged to a process that was
    /// killed.
    ///
    /// # Errors
    /// If the lock cannot be taken, or the catalog fails.
    pub fn take(pool: &Pool) -> Result<MirrorGuard> {
        if pool.catalog.is_remote() {
            check_locks(&pool.store.path)?;
        }
        let lock = pool.open_lock(MIRROR_LOCK_NAME)?;
        let machine = machine_of(&pool.catalog);
        if lock.try_lock().is_ok() {
            let catalog = pool.another_catalog()?;
            catalog.visits().release_all(&machine)?;
            mend_times(&catalog, now())?;
            // In a thread that nothing waits for: the store may be large.
            let store = pool.store.path.clone();
            std::thread::Builder::new().name("stale".to_owned()).spawn(move || remove_stale(&store))?;
        }
        lock.lock_shared()?;
        Ok(MirrorGuard { owner: format!("{machine}{}-{}", std::process::id(), now()), _lock: lock })
    }
}

/// A process that looks at what forges say around repositories. It leases under a name of its own.
pub struct LookGuard {
    /// The name under which it leases.
    pub owner: String,
    _lock: std::fs::File,
}

impl LookGuard {
    /// Takes part. If no other process looks, leases of looks that still exist belonged to a process that was
    /// killed.
    ///
    /// # Errors
    /// If the lock cannot be taken, or the catalog fails.
    pub fn take(pool: &Pool) -> Result<LookGuard> {
        let lock = pool.open_lock(METADATA_LOCK_NAME)?;
        let machine = machine_of(&pool.catalog);
        if lock.try_lock().is_ok() {
            pool.another_catalog()?.metadata().release_all(&machine)?;
        }
        lock.lock_shared()?;
        Ok(LookGuard { owner: format!("{machine}{}-{}", std::process::id(), now()), _lock: lock })
    }
}

/// Removes the half-written files that killed processes left below `store`.
fn remove_stale(store: &Path) {
    match weir_archive::remove_stale(store) {
        Ok((removed, unread)) => {
            if removed > 0 {
                tracing::info!("removed {removed} half-written files left by a killed process");
            }
            for (folder, e) in unread {
                tracing::warn!(folder = %folder.display(), "cannot read the folder, half-written files may \
                    be left there: {e}");
            }
        }
        Err(e) => {
            tracing::warn!(folder = %store.display(), "cannot read the folder, half-written files may be \
                left there: {e}")
        }
    }
}
