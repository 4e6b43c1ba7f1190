//! The kernel's union mount (overlayfs): a view below, a folder for what is written above.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};

use crate::error::{Error, Result};

/// Mounts on `folder` the files of `lower`, with those of `upper` above. What is written goes to `upper`;
/// `work` is an empty folder beside it, for the kernel.
///
/// # Errors
/// If the system does not let the user mount, or has no overlayfs.
pub(crate) fn mount(folder: &Path, lower: &Path, upper: &Path, work: &Path) -> Result<()> {
    let mut options = OsString::new();
    for (name, path) in [("lowerdir=", lower), (",upperdir=", upper), (",workdir=", work)] {
        options.push(name);
        options.push(escaped(path));
    }
    // A folder of the commit may be renamed, as git mv does. Inodes are those of the view.
    options.push(",redirect_dir=on,xino=off");
    let mounted = nix::mount::mount(
        Some("weir"),
        folder,
        Some("overlay"),
        MsFlags::MS_NODEV | MsFlags::MS_NOSUID,
        Some(options.as_os_str()),
    );
    mounted.map_err(|e| Error::Mount {
        path: folder.to_owned(),
        source: e.into(),
        remedy: match e {
            Errno::EPERM => "; only root may make union mounts".to_owned(),
            Errno::ENODEV => "; the kernel has no overlayfs: load its module 'overlay'".to_owned(),
            Errno::EINVAL => {
                "; the kernel's log (dmesg) says why: the disk may lack extended attributes".to_owned()
            }
            _ => String::new(),
        },
    })
}

/// Returns a path as the options of a mount take it: a comma or colon would end it.
fn escaped(path: &Path) -> OsString {
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    OsString::from_vec(escaped)
}

/// Takes the mount on `folder` away, and ends it once nothing uses it.
///
/// # Errors
/// As [`unmount`].
pub(crate) fn detach(folder: &Path) -> Result<()> {
    let done = umount2(folder, MntFlags::MNT_DETACH);
    done.map_err(|e| Error::Unmount { path: folder.to_owned(), source: e.into() })
}

/// Unmounts `folder`.
///
/// # Errors
/// If something uses it, or the user may not.
pub(crate) fn unmount(folder: &Path) -> Result<()> {
    umount2(folder, MntFlags::empty())
        .map_err(|e| Error::Unmount { path: folder.to_owned(), source: e.into() })
}
