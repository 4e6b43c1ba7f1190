//! Union mounts: a view below, a folder for what is written above. The kernel's (overlayfs) where it lets the
//! user mount, fuse-overlayfs elsewhere.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};
use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::{Timespec, nanosleep};

use crate::error::{Error, Result};
use crate::namespace::unescaped;

/// The program that makes union mounts where the kernel does not.
pub(crate) const FUSE_OVERLAYFS: &str = "fuse-overlayfs";

/// How long to wait for whoever looks into a workspace while it is mounted again, and how often to look.
const IN_USE_MAX: Duration = Duration::from_millis(100);
const IN_USE_TICK: Duration = Duration::from_micros(500);
const _: () = assert!(IN_USE_TICK.as_micros() < IN_USE_MAX.as_micros(), "it is tried more than once");
/// How long a union mount stays at least that another has replaced: until the switch is done.
const CLOSED_AFTER_MIN: Duration = Duration::from_millis(50);
/// The type and the source of weir's union mounts in proc_pid_mountinfo(5).
const UNION_SOURCE: &[u8] = b" - overlay weir ";
/// The stack of the process that closes one: for two calls of the system.
const CLOSING_STACK_BYTES: usize = 16 << 10;

/// What is mounted upon each other.
pub(crate) struct Layers<'a> {
    /// The folders below, which do not change, the last on top of the others.
    pub(crate) lower: &'a [PathBuf],
    /// What is written.
    pub(crate) upper: &'a Path,
    /// An empty folder beside it, for the mount.
    pub(crate) work: &'a Path,
}

impl Layers<'_> {
    fn options(&self) -> OsString {
        let mut options = OsString::from("lowerdir=");
        for (n, path) in self.lower.iter().rev().enumerate() {
            options.push(if n > 0 { ":" } else { "" });
            options.push(escaped(path));
        }
        for (name, path) in [(",upperdir=", self.upper), (",workdir=", self.work)] {
            options.push(name);
            options.push(escaped(path));
        }
        options
    }
}

/// Mounts `layers` on `folder`.
///
/// # Errors
/// If the system does not let the user mount, or has no overlayfs.
pub(crate) fn mount_by_kernel(folder: &Path, layers: &Layers<'_>) -> Result<()> {
    let mut options = layers.options();
    // Inodes are those of the view.
    options.push(",xino=off");
    // A file whose mode was changed has its content with it, and another mount may take this one's place.
    options.push(",metacopy=off,index=off");
    // A folder of the commit may be renamed, as git mv does; in a namespace of a user's own the kernel takes
    // no such option.
    options.push(if is_in_first_namespace() { ",redirect_dir=on" } else { ",userxattr" });
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
            Errno::ENODEV => "; the kernel has no overlayfs: load its module 'overlay'".to_owned(),
            Errno::EINVAL => {
                "; the kernel's log (dmesg) says why: the disk may lack extended attributes".to_owned()
            }
            _ => String::new(),
        },
    })
}

/// Mounts `layers` where nobody sees them, by way of the empty folder `by`, for [`replace`].
///
/// # Errors
/// As [`mount_by_kernel`], or if the kernel has no such call.
pub(crate) fn mount_detached(by: &Path, layers: &Layers<'_>) -> Result<OwnedFd> {
    mount_by_kernel(by, layers)?;
    let opened = clone_of(by);
    unmount(by)?;
    opened
}

/// Returns another mount of what is mounted on `folder`, which nobody sees.
fn clone_of(folder: &Path) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, folder, flags).map_err(mount_failed(folder))
}

/// Returns whether nothing uses what is mounted on `folder`.
pub(crate) fn is_free(folder: &Path) -> bool {
    // The first call of this kind only notes that nothing does; the second would unmount it, unless something
    // looks at it in between.
    let _ = fs::symlink_metadata(folder);
    umount2(folder, MntFlags::MNT_EXPIRE) == Err(Errno::EAGAIN)
}

/// Mounts `new` on `folder`, in place of what is mounted there. At each moment one of the two is seen.
///
/// Returns what was mounted; `None` if something came in meanwhile and stays: then the same files as before
/// are mounted, but not by the mount in which it is.
///
/// # Errors
/// If the system does not mount so (Linux before 6.5). Then nothing has changed.
pub(crate) fn replace(folder: &Path, new: &OwnedFd) -> Result<Option<ReplacedMount>> {
    let old = ReplacedMount(clone_of(folder)?);
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    let mount_beneath =
        |mount: &OwnedFd| move_mount(mount, "", CWD, folder, flags).map_err(mount_failed(folder));
    mount_beneath(new)?;
    let end = Instant::now() + IN_USE_MAX;
    while unmount(folder).is_err() {
        if Instant::now() > end {
            detach(folder)?;
            mount_beneath(&old.0)?;
            detach(folder)?;
            return Ok(None);
        }
        std::thread::sleep(IN_USE_TICK);
    }
    Ok(Some(old))
}

/// A union mount that another has replaced. Nobody sees it any more.
pub(crate) struct ReplacedMount(OwnedFd);

impl Drop for ReplacedMount {
    fn drop(&mut self) {
        close_aside(&self.0);
    }
}

/// Closes the last descriptor of a union mount in a process of its own, a while later: the kernel first
/// writes all that is dirty on the disk, whoever it belongs to (`ovl_sync_fs`), which may take long, and
/// delays who writes there meanwhile.
///
/// The process shares the memory of this one. fork(2) would copy its page tables, and delay a switch.
fn close_aside(mount: &OwnedFd) {
    let wait = until_next_closing(SystemTime::now());
    let closing = Closing {
        mount: mount.as_raw_fd().unsigned_abs(),
        wait: Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() },
        stack: Stack([0; CLOSING_STACK_BYTES]),
    };
    // It stays until both processes have ended.
    let closing = Box::leak(Box::new(closing));
    // SAFETY: the end of an array of bytes, which is aligned as the stack of a function has to be.
    let top = unsafe { closing.stack.0.as_mut_ptr().add(CLOSING_STACK_BYTES) };
    let flags = libc::CLONE_VM | libc::SIGCHLD;
    // SAFETY: the process has a stack and data of its own. If it does not start, the caller closes the mount.
    unsafe { libc::clone(close_later, top.cast(), flags, std::ptr::from_mut(closing).cast()) };
}

/// The stack of a process that closes a mount, and its data.
struct Closing {
    mount: libc::c_uint,
    wait: Timespec,
    stack: Stack,
}

#[repr(align(16))]
struct Stack([u8; CLOSING_STACK_BYTES]);

/// Closes a mount a while later, and all other descriptors at once: who waits for the end of a stream of the
/// process that started this one does not wait for it.
///
/// It shares the variables of the thread that started it, so it calls nothing of libc that changes any, as
/// `errno`: of the calls below none fails, and the last is that of the system itself.
extern "C" fn close_later(closing: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `close_aside` has left it for this process.
    let Closing { mount, wait, .. } = unsafe { &*closing.cast::<Closing>() };
    // SAFETY: the descriptors are copies, which belong to this process.
    unsafe {
        if let Some(last) = mount.checked_sub(1) {
            libc::syscall(libc::SYS_close_range, 0_u64, u64::from(last), 0_u64);
        }
        libc::syscall(libc::SYS_close_range, u64::from(*mount) + 1, u64::from(libc::c_uint::MAX), 0_u64);
    }
    let _ = nanosleep(wait);
    0
}

/// Returns how long after `now` a process closes a mount: at the next full second. All processes wait for the
/// same moment, since the kernel writes the disk for the first, and finds little to write for the others.
fn until_next_closing(now: SystemTime) -> Duration {
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let wait = Duration::from_secs(1) - Duration::from_nanos(since_epoch.subsec_nanos().into());
    if wait < CLOSED_AFTER_MIN { wait + Duration::from_secs(1) } else { wait }
}

fn mount_failed(path: &Path) -> impl Fn(rustix::io::Errno) -> Error {
    |source| Error::Mount { path: path.to_owned(), source: source.into(), remedy: String::new() }
}

/// Returns whether this process is in the machine's first user namespace (user_namespaces(7)).
fn is_in_first_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Mounts `layers` on `folder` with the program fuse-overlayfs.
///
/// # Errors
/// If it is not there, or does not mount.
pub(crate) fn mount_by_program(folder: &Path, layers: &Layers<'_>) -> Result<()> {
    let failed =
        |source, remedy: &str| Error::Mount { path: folder.to_owned(), source, remedy: remedy.to_owned() };
    let mut program = Command::new(FUSE_OVERLAYFS);
    let said =
        program.arg("-o").arg(layers.options()).arg(folder).current_dir("/").stdin(Stdio::null()).output();
    let said = said.map_err(|e| failed(e, ""))?;
    match said.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            Err(failed(std::io::Error::other(format!("{FUSE_OVERLAYFS}: {why}")), ""))
        }
    }
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

/// Lets nobody write to what is mounted on `folder`, or lets them again.
///
/// # Errors
/// If a program has a file open to write.
pub(crate) fn set_read_only(folder: &Path, is_read_only: bool) -> Result<()> {
    let kept = MsFlags::MS_REMOUNT | MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    let flags = if is_read_only { kept | MsFlags::MS_RDONLY } else { kept };
    let done = nix::mount::mount(None::<&str>, folder, None::<&str>, flags, None::<&str>);
    done.map_err(|e| Error::Mount {
        path: folder.to_owned(),
        source: e.into(),
        remedy: match e {
            Errno::EBUSY => "; a program has a file open there to write: end it first".to_owned(),
            _ => String::new(),
        },
    })
}

/// Returns whether nobody may write to what is mounted on `folder`.
pub(crate) fn is_read_only(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Takes the mount on `folder` away, and ends it once nothing uses it.
///
/// # Errors
/// As [`unmount`].
pub(crate) fn detach(folder: &Path) -> Result<()> {
    unmount_with(folder, MntFlags::MNT_DETACH)
}

/// Unmounts `folder`.
///
/// # Errors
/// If something uses it, or the user may not.
pub(crate) fn unmount(folder: &Path) -> Result<()> {
    unmount_with(folder, MntFlags::empty())
}

fn unmount_with(folder: &Path, flags: MntFlags) -> Result<()> {
    let failed = |source| Error::Unmount { path: folder.to_owned(), source };
    match umount2(folder, flags) {
        // Only root may, or whom the program helps that belongs to root.
        Err(Errno::EPERM) => {
            let mut helper = Command::new("fusermount3");
            helper.arg("-u").args(flags.contains(MntFlags::MNT_DETACH).then_some("-z"));
            let done = helper.arg("--").arg(folder).stdin(Stdio::null()).output().map_err(failed)?;
            if done.status.success() {
                return Ok(());
            }
            let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            Err(failed(std::io::Error::other(why)))
        }
        done => done.map_err(|e| failed(e.into())),
    }
}

/// Returns whether a process shows something on the folder `view`. It is asked: the kernel remembers what was
/// there.
pub fn is_shown(view: &Path) -> bool {
    is_mounted(view) && rustix::fs::statfs(view).is_ok()
}

/// Returns whether `folder` is the top of a mount.
pub fn is_mounted(folder: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|about| about.dev());
    match (device(folder), folder.parent().map(device)) {
        (Ok(own), Some(Ok(above))) => own != above,
        // The process that serves it has ended.
        (Err(e), _) => e.raw_os_error() == Some(nix::errno::Errno::ENOTCONN as i32),
        _ => false,
    }
}

/// Unmounts the union mounts of weir that are left on `folder`: a process may have been killed between two of
/// them.
pub(crate) fn unmount_left(folder: &Path) {
    let is_left = || {
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        mounts.split(|byte| *byte == b'\n').any(|line| {
            let is_ours = line.windows(UNION_SOURCE.len()).any(|part| part == UNION_SOURCE);
            is_ours && line.split(|byte| *byte == b' ').nth(4).is_some_and(|at| unescaped(at) == folder)
        })
    };
    while is_left() && unmount(folder).or_else(|_| detach(folder)).is_ok() {}
}

/// Unmounts all that is mounted on the folder `path`, also where its process has ended.
pub fn unmount_dead(path: &Path) {
    while is_mounted(path) && unmount(path).or_else(|_| detach(path)).is_ok() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_the_last_layer_first_and_escape_what_would_end_one() {
        let lower = ["/a,b", "/c:d", "/e\\f"].map(PathBuf::from);
        let layers = Layers { lower: &lower, upper: "/u,p".as_ref(), work: "/w".as_ref() };
        let expected = "lowerdir=/e\\\\f:/c\\:d:/a\\,b,upperdir=/u\\,p,workdir=/w";
        assert_eq!(layers.options().to_str(), Some(expected));
    }

    #[test]
    fn mounts_are_closed_at_the_next_full_second() {
        let wait = |milliseconds: u64| {
            let wait = until_next_closing(UNIX_EPOCH + Duration::from_millis(7000 + milliseconds));
            wait.as_millis()
        };
        assert_eq!([0, 1, 500, 950, 951, 999].map(wait), [1000, 999, 500, 50, 1049, 1001]);
    }

    #[test]
    fn folders_are_told_from_mounts() {
        let dir = weir_testing::folder();
        assert!(is_mounted(Path::new("/proc")) && is_shown(Path::new("/proc")));
        for path in [dir.path(), &dir.path().join("none"), Path::new("/")] {
            assert!(!is_mounted(path) && !is_shown(path), "{}", path.display());
            assert!(!is_free(path), "{}", path.display());
        }
        assert!(unmount(dir.path()).is_err_and(|e| matches!(e, Error::Unmount { .. })));
        assert!(!is_read_only(dir.path()) && !is_read_only(&dir.path().join("none")));
    }
}
