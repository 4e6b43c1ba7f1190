//! Where packs lie while they are verified: a scratch folder, a ramdisk by preference, as long as they fit.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_repo::ingest::{Quota, SpillPlace};

/// A folder for packs on their way in, and how much of it they may take.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// The folder; files in it have no name and vanish with the process.
    pub folder: Option<PathBuf>,
    /// Bytes one pack may take of it...
    pub pack_bytes_max: u64,
    /// ...and all together.
    pub quota: Arc<Quota>,
}

impl Scratch {
    /// A place for a pack of more than `bytes`: the scratch folder if that fits limit and space, the store
    /// otherwise.
    ///
    /// # Errors
    /// Of the system.
    pub fn place(&self, bytes: u64, store: &Path) -> io::Result<SpillPlace> {
        if let Some(folder) = &self.folder
            && bytes <= self.pack_bytes_max
            && free_bytes(folder).is_some_and(|free| free / 2 > self.pack_bytes_max)
            && let Some(share) = self.quota.share(bytes)
            && let Ok(file) = tempfile::tempfile_in(folder)
        {
            return Ok(SpillPlace { file, bytes_max: self.pack_bytes_max, share: Some(share) });
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
