//! Checks that machines that share a store see each other's locks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::{major, minor};
use weir_ground::FileError;

use crate::error::{Error, Result};

/// Refuses a store whose locks only this machine would see: two machines could write to one archive.
///
/// # Errors
/// If its file system is mounted in such a way.
pub fn check_locks(store: &Path) -> Result<()> {
    let device = fs::metadata(store).map_err(FileError::on("look at", store))?.dev();
    // Without the list of mounts, the file system is trusted.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match local_locks(&mounts, &format!("{}:{}", major(device), minor(device))) {
        None => Ok(()),
        Some(how) => Err(Error::Refused(format!(
            "'{}' is {how}: machines that share it would not see each other's locks, and could write to one \
            archive at the same time; mount it without that option, or, on a single machine, use a catalog \
            of its own",
            store.display()
        ))),
    }
}

/// Returns the file system of `device` ("MAJOR:MINOR") and the option that keeps its locks on one machine,
/// from /proc/self/mountinfo (proc_pid_mountinfo(5), nfs(5), mount.cifs(8)).
fn local_locks(mounts: &str, device: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let mut rest = line.split_once(" - ")?.1.split(' ');
    let (kind, options) = (rest.next()?, rest.nth(1).unwrap_or_default());
    let is_local = |option: &&str| match kind {
        // `local_lock=posix` is about POSIX locks, which weir does not take.
        "nfs" | "nfs4" => matches!(*option, "nolock" | "local_lock=all" | "local_lock=flock"),
        "cifs" | "smb3" => *option == "nobrl",
        _ => false,
    };
    let option = options.split(',').find(is_local);
    match kind {
        "fuse.sshfs" => Some("on sshfs, which does not share locks".to_owned()),
        _ => option.map(|option| format!("on {kind}, mounted with '{option}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let mounts = "\
24 1 254:0 / / rw,relatime - ext4 /dev/vda rw
60 24 0:50 / /a rw,relatime shared:9 - nfs4 host:/a rw,vers=4.2,rsize=1048576,local_lock=none,addr=10.0.0.1
61 24 0:51 / /b rw,relatime - nfs host:/b rw,vers=3,nolock,proto=tcp,local_lock=all,addr=10.0.0.1
62 24 0:52 / /c rw,relatime - nfs host:/c rw,vers=3,proto=tcp,local_lock=flock
63 24 0:53 / /d rw,relatime - cifs //host/d rw,vers=3.1.1,nobrl
64 24 0:54 / /e rw,relatime - fuse.sshfs u@host:/e rw,user_id=0
65 24 0:55 / /f rw,relatime - nfs host:/f rw,vers=3,proto=tcp,local_lock=posix
66 24 0:56 / /g rw,relatime - cifs //host/g rw,vers=3.1.1
";
        for (device, expected) in [
            ("254:0", None),
            ("0:50", None),
            ("0:51", Some("on nfs, mounted with 'nolock'")),
            ("0:52", Some("on nfs, mounted with 'local_lock=flock'")),
            ("0:53", Some("on cifs, mounted with 'nobrl'")),
            ("0:54", Some("on sshfs, which does not share locks")),
            ("0:55", None),
            ("0:56", None),
            ("0:99", None),
        ] {
            assert_eq!(local_locks(mounts, device).as_deref(), expected, "{device}");
        }
        assert_eq!(local_locks("no mounts\n1 2 3:4\n1 2 3:4 - ", "3:4"), None);
    }
}
