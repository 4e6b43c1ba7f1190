//! Temporary folders in which tests can bind sockets and run programs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::stat::{Mode, umask};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::getuid;

/// The longest folder for temporary files, in bytes. The path of a socket has at most 107 (unix(7)), and
/// tests append up to 60.
const BASE_BYTES_MAX: usize = 40;

/// Returns the folder for temporary files: the system's (`TMPDIR`), unless its path is too long for sockets
/// or it lets no program run.
pub(crate) fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        let candidates = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
        let is_usable = |path: &PathBuf| {
            path.as_os_str().len() <= BASE_BYTES_MAX
                && statvfs(path.as_path())
                    .is_ok_and(|disk| !disk.flags().intersects(FsFlags::ST_NOEXEC | FsFlags::ST_RDONLY))
                && (!getuid().is_root() || is_open_to_all(path))
                && tempfile::tempdir_in(path).is_ok()
        };
        candidates.into_iter().find(is_usable).expect(
            "a folder for temporary files with a short path, in which programs may run; set TMPDIR to one",
        )
    })
}

/// Returns whether every user may enter `path`, as the servers that root's tests start as other users need.
fn is_open_to_all(path: &Path) -> bool {
    path.ancestors().all(|folder| folder.metadata().is_ok_and(|data| data.permissions().mode() & 1 == 1))
}

/// Creates a temporary folder. Files that are created from now on can be read by other users, as servers that
/// run as such users need.
pub fn folder() -> tempfile::TempDir {
    umask(Mode::from_bits_truncate(0o022));
    tempfile::Builder::new().prefix("weir-test-").tempdir_in(base()).expect("a temporary folder")
}
