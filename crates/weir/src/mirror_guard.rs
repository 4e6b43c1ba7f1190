//! Taking part in mirroring a pool: whoever is first cleans up after those that were killed.

use std::path::Path;

use weir_catalog::Catalog;
use weir_ground::FileError;
use weir_pool::check_locks;

use crate::error::Result;
use crate::hooks::Hooks;
use crate::pool::{MIRROR_LOCK_NAME, Pool, now};

/// What this machine's processes call themselves in `catalog`: machines of a fleet know only of their own.
pub(crate) fn machine_of(catalog: &Catalog) -> Result<String> {
    Ok(match catalog.is_remote() {
        true => format!("{}/", nix::unistd::gethostname().map_err(std::io::Error::from)?.display()),
        false => String::new(),
    })
}

/// A process that mirrors: what it leases is known by a name of its own.
pub(crate) struct MirrorGuard {
    pub(crate) owner: String,
    /// What the owners of this machine begin with: nothing, if there is one machine only.
    pub(crate) machine: String,
    _lock: std::fs::File,
}

impl MirrorGuard {
    /// Takes part. If nobody else does, leases that are still there belonged to a process that was killed.
    pub(crate) fn take(pool: &Pool) -> Result<MirrorGuard> {
        if pool.catalog.is_remote() {
            check_locks(&pool.store.path)?;
        }
        let path = pool.path.join(MIRROR_LOCK_NAME);
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = file.map_err(FileError::on("open", &path))?;
        let machine = machine_of(&pool.catalog)?;
        if lock.try_lock().is_ok() {
            let mut catalog = pool.another_catalog()?;
            catalog.release_all(&machine)?;
            mend_times(&mut catalog)?;
            // Nothing waits for it: the store may be large.
            let store = pool.store.path.clone();
            std::thread::Builder::new().name("stale".to_owned()).spawn(move || remove_stale(&store))?;
        }
        lock.lock_shared()?;
        Ok(MirrorGuard { owner: format!("{machine}{}-{}", std::process::id(), now()), machine, _lock: lock })
    }

    /// Returns the name under which this process leases looks at what forges say: visits give back all that
    /// the other name has leased.
    pub(crate) fn metadata_owner(&self) -> String {
        format!("{}-metadata", self.owner)
    }

    /// The hooks that are told of what is mirrored.
    pub(crate) fn hooks(&self, pool: &Pool) -> Result<Option<Hooks>> {
        Hooks::start(pool, &self.machine)
    }
}

/// Removes what processes that were killed left half-written below `store`.
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

/// What a clock that was ahead has put off is due again.
pub(crate) fn mend_times(catalog: &mut Catalog) -> Result<()> {
    let mended = catalog.mend_times(now())?;
    if mended > 0 {
        tracing::warn!(
            "corrected the times of {mended} repositories, visited or leased while the clock was ahead"
        );
    }
    Ok(())
}
