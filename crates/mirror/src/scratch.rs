//! Chooses where packs lie while they are verified: in a scratch folder, preferably a ramdisk, as long as
//! they fit.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_repo::ingest::{Quota, SpillPlace};

/// A folder for incoming packs, and how much of it they may take.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// The folder; files in it have no name and vanish with the process.
    pub folder: Option<PathBuf>,
    /// The bytes of it that one pack may take.
    pub pack_bytes_max: u64,
    /// The bytes of it that all packs together may take.
    pub quota: Arc<Quota>,
}

impl Scratch {
    /// Returns a file for a pack of more than `bytes`: in the scratch folder if the pack fits its limits and
    /// free space, otherwise in the store.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn place(&self, bytes: u64, store: &Path) -> io::Result<SpillPlace> {
        if let Some(folder) = &self.folder
            && bytes <= self.pack_bytes_max
            && free_bytes(folder).is_some_and(|free| free / 2 > self.pack_bytes_max)
            && let Some(share) = self.quota.share(bytes)
            && let Ok(file) = tempfile::tempfile_in(folder)
        {
            return Ok(SpillPlace {
                file: Arc::new(file),
                bytes_max: self.pack_bytes_max,
                share: Some(share),
            });
        }
        std::fs::create_dir_all(store)?;
        Ok(SpillPlace::unlimited(tempfile::tempfile_in(store)?))
    }
}

pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is a C string and `stat` has room for the answer, which is read only if the call
    // succeeded.
    unsafe { (libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
        .map(|s| s.f_bavail * s.f_frsize)
}
