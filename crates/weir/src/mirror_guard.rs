//! Takes part in mirroring a pool. The first process cleans up after those that were killed.

use std::path::Path;

use weir_catalog::Catalog;
use weir_pool::check_locks;

use crate::error::Result;
use crate::hooks::Hooks;
use crate::pool::{MIRROR_LOCK_NAME, Pool, now};

/// Returns the prefix of the names of this machine's processes in `catalog`. Machines of a fleet know only
/// their own processes.
pub(crate) fn machine_of(catalog: &Catalog) -> Result<String> {
    Ok(match catalog.is_remote() {
        true => format!("{}/", nix::unistd::gethostname().map_err(std::io::Error::from)?.display()),
        false => String::new(),
    })
}

/// Held by all processes that look at what forges say, together.
const METADATA_LOCK_NAME: &str = "metadata.lock";

/// A process that mirrors. It leases under a name of its own.
pub(crate) struct MirrorGuard {
    pub(crate) owner: String,
    /// The prefix of the owners of this machine; empty if there is only one machine.
    pub(crate) machine: String,
    _lock: std::fs::File,
}

impl MirrorGuard {
    /// Takes part. If no other process mirrors, leases that still exist belonged to a process that was
    /// killed.
    pub(crate) fn take(pool: &Pool) -> Result<MirrorGuard> {
        if pool.catalog.is_remote() {
            check_locks(&pool.store.path)?;
        }
        let lock = pool.open_lock(MIRROR_LOCK_NAME)?;
        let machine = machine_of(&pool.catalog)?;
        if lock.try_lock().is_ok() {
            let mut catalog = pool.another_catalog()?;
            catalog.release_all(&machine)?;
            mend_times(&mut catalog)?;
            // In a thread that nothing waits for: the store may be large.
            let store = pool.store.path.clone();
            std::thread::Builder::new().name("stale".to_owned()).spawn(move || remove_stale(&store))?;
        }
        lock.lock_shared()?;
        Ok(MirrorGuard { owner: format!("{machine}{}-{}", std::process::id(), now()), machine, _lock: lock })
    }

    /// Starts the hooks that receive the updates of this machine.
    pub(crate) fn hooks(&self, pool: &Pool) -> Result<Option<Hooks>> {
        Hooks::start(pool, &self.machine)
    }
}

/// A process that looks at what forges say around repositories. It leases under a name of its own.
pub(crate) struct LookGuard {
    pub(crate) owner: String,
    _lock: std::fs::File,
}

impl LookGuard {
    /// Takes part. If no other process looks, leases of looks that still exist belonged to a process that was
    /// killed.
    pub(crate) fn take(pool: &Pool) -> Result<LookGuard> {
        let lock = pool.open_lock(METADATA_LOCK_NAME)?;
        let machine = machine_of(&pool.catalog)?;
        if lock.try_lock().is_ok() {
            pool.another_catalog()?.release_all_looks(&machine)?;
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

/// Makes due again what a clock that was ahead has put off.
pub(crate) fn mend_times(catalog: &mut Catalog) -> Result<()> {
    let mended = catalog.mend_times(now())?;
    if mended > 0 {
        tracing::warn!(
            "corrected the times of {mended} repositories, visited or leased while the clock was ahead"
        );
    }
    Ok(())
}
