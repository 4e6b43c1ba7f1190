//! A view as a file system of the kernel (FUSE). No file of the crate knows `fuser` but this one and
//! `remote_files`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request, Session, SessionACL,
};
use nix::unistd::{Gid, Uid};
use weir_ground::Stop;

use crate::error::{Error, Result};
use crate::guard::{self, Process};
use crate::overlay;
use crate::tree::FileKind;
use crate::view::{Attributes, Child, Shown, Validity, View};

/// How long the kernel keeps what never changes, and what may.
pub(crate) const LASTING: Duration = Duration::from_secs(365 * 24 * 3600);
const CHANGING: Duration = Duration::from_secs(1);
const _: () = assert!(CHANGING.as_secs() < LASTING.as_secs(), "the kernel asks again for what changes");
/// Requests that the kernel sends ahead, and bytes it reads ahead.
const BACKGROUND_MAX: u16 = 64;
const READAHEAD_BYTES: u32 = 1 << 20;
/// The fewest bytes of a buffer that the allocator maps by itself, and the most that it keeps of others.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 4 << 20;
#[cfg(target_env = "gnu")]
const FREE_BYTES_MAX: libc::c_int = 8 << 20;
/// How often it is looked whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// How to mount.
pub struct MountOptions {
    /// Threads that answer the kernel.
    pub threads: usize,
    /// Whether other users may look, too.
    pub allow_other: bool,
}

/// A mounted view.
pub struct Mount {
    session: fuser::BackgroundSession,
    path: PathBuf,
}

/// Mounts what is `shown` on the folder `path`.
///
/// # Errors
/// If it cannot be read, or the system does not let the user mount there.
pub fn mount(shown: Shown, path: &Path, options: &MountOptions) -> Result<Mount> {
    let session = session(Arc::new(View::new(shown)?), path, options)?;
    let session = session.spawn().map_err(mount_error(path))?;
    Ok(Mount { session, path: path.to_owned() })
}

/// Mounts the lower layer that is `shown` on the folder `path`, calls `ready`, and returns when it is
/// unmounted. A process of its own answers the kernel. If that is killed, another goes on in its place.
///
/// # Errors
/// If it cannot be read, if the system does not let the user mount there, or no process can go on.
///
/// # Panics
/// If this process has more than one thread.
pub fn mount_guarded(
    shown: Shown,
    path: &Path,
    options: &MountOptions,
    ready: impl FnOnce() -> std::io::Result<()>,
) -> Result<()> {
    let view = View::new(shown)?;
    view.number_all()?;
    let view = Arc::new(view);
    let session = session(Arc::clone(&view), path, options)?;
    serve_guarded(session, path, ready, || view.take_up())
}

/// Calls `ready`, and answers the kernel until the session ends, in a process of its own, which calls
/// `take_up` first.
pub(crate) fn serve_guarded<F: Filesystem>(
    session: Session<F>,
    path: &Path,
    ready: impl FnOnce() -> std::io::Result<()>,
    take_up: impl FnOnce() -> Result<()>,
) -> Result<()> {
    ready().map_err(mount_error(path))?;
    match guard::split().map_err(mount_error(path))? {
        Process::Server { is_first } => {
            let is_done = take_up().and_then(|()| serve(session, is_first).map_err(mount_error(path)));
            if let Err(e) = &is_done {
                tracing::error!("{e}");
            }
            guard::end(is_done.is_ok())
        }
        // It is unmounted. fuser 0.18 would unmount what is mounted there by now.
        Process::Guard => std::mem::forget(session),
    }
    Ok(())
}

/// Answers the kernel until the session ends.
fn serve<F: Filesystem>(session: Session<F>, is_first: bool) -> std::io::Result<()> {
    if !is_first {
        send_again(session.as_fd())?;
    }
    let session = guard::with_threads_on_this_processor(|| session.spawn())?;
    session.guard.join().map_err(|_| std::io::Error::other("a thread has panicked"))?
}

/// Mounts a view on the folder `path`; nothing answers the kernel yet.
fn session(view: Arc<View>, path: &Path, options: &MountOptions) -> Result<Session<MountedView>> {
    let mut config = config_of(options);
    // What a thread has read from a descriptor of its own is lost when that is closed, and is not sent again.
    config.clone_fd = options.threads > 1 && !view.is_lower();
    let files = MountedView {
        view,
        user: Uid::current().as_raw(),
        group: Gid::current().as_raw(),
        opened: Mutex::default(),
        next: AtomicU64::new(1),
    };
    session_of(files, path, &config)
}

/// Returns how a file system is mounted that nobody writes to.
pub(crate) fn config_of(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::DefaultPermissions,
        MountOption::FSName("weir".to_owned()),
        MountOption::Subtype("weir".to_owned()),
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config
}

/// Mounts `files` on the folder `path`; nothing answers the kernel yet.
pub(crate) fn session_of<F: Filesystem>(files: F, path: &Path, config: &Config) -> Result<Session<F>> {
    // The system would let a file be mounted on.
    if !path.is_dir() {
        return Err(mount_error(path)(std::io::ErrorKind::NotADirectory.into()));
    }
    map_large_buffers();
    Session::new(files, path, config).map_err(mount_error(path))
}

/// Lets the allocator map each large buffer by itself. Each thread of fuser has one of 16 MiB, of which it
/// needs little. When glibc has freed the first, it would take others from its heap, and clear all of each.
fn map_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: numbers are set.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX);
    }
}

fn mount_error(path: &Path) -> impl Fn(std::io::Error) -> Error {
    |source| Error::Mount { path: path.to_owned(), remedy: remedy(&source), source }
}

/// Asks the kernel to send again what was read and not answered (`FUSE_NOTIFY_RESEND`). Linux before 6.9
/// refuses: the view ends then, so that nobody waits for ever.
fn send_again(kernel: BorrowedFd<'_>) -> std::io::Result<()> {
    const NOTIFY_RESEND: i32 = 7;
    // struct fuse_out_header: its length, the kind of notification, and the number 0.
    let mut header = [0; 16];
    header[..4].copy_from_slice(&16_u32.to_ne_bytes());
    header[4..8].copy_from_slice(&NOTIFY_RESEND.to_ne_bytes());
    nix::unistd::write(kernel, &header)?;
    Ok(())
}

impl Mount {
    /// Waits until the view is unmounted, by somebody else or because of `stop`. If its files are in use
    /// then, it disappears, and is served until they are closed.
    pub fn wait(self, stop: &Stop) {
        let Mount { session, path } = self;
        let mut is_stopping = false;
        while !session.guard.is_finished() {
            if is_stopping {
                std::thread::sleep(TICK);
            } else if !stop.sleep(TICK) {
                unmount(&path);
                is_stopping = true;
            }
        }
        // fuser 0.18 would unmount what is mounted there by now: it takes an end of its own view for the
        // contrary (`is_mounted`).
        std::mem::forget(session);
    }
}

/// Unmounts the folder `path`, if it is mounted.
fn unmount(path: &Path) {
    // Its files are in use, or fusermount3 says that they are.
    if let Err(e) = overlay::unmount(path).or_else(|_| overlay::detach(path)) {
        tracing::error!("{e}");
    }
}

/// Returns what can be done about an error of mounting.
fn remedy(e: &std::io::Error) -> String {
    if !Path::new("/dev/fuse").exists() {
        return "; this system has no /dev/fuse: load the kernel's module 'fuse', or pass the device to the \
                container"
            .to_owned();
    }
    match e.kind() {
        std::io::ErrorKind::NotFound => "; install fuse3, whose fusermount3 lets users mount".to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "; /dev/fuse must be readable, and 'user_allow_other' be in /etc/fuse.conf to let others look"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// The view, as `fuser` calls it.
struct MountedView {
    view: Arc<View>,
    user: u32,
    group: u32,
    /// The children of folders that are being read and may change meanwhile.
    opened: Mutex<HashMap<u64, Arc<Vec<Child>>>>,
    next: AtomicU64,
}

/// Returns the number of the system's error for `e`, which is logged if it is about a repository.
fn errno(e: &Error) -> fuser::Errno {
    match e {
        Error::NotAFolder => fuser::Errno::ENOTDIR,
        Error::NotAFile => fuser::Errno::EISDIR,
        Error::NoNode => fuser::Errno::ESTALE,
        Error::NoCommit(_) => fuser::Errno::ENOENT,
        Error::Full => fuser::Errno::ENFILE,
        _ => {
            tracing::error!("{e}");
            fuser::Errno::EIO
        }
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Folder | FileKind::Submodule => FileType::Directory,
        FileKind::File { .. } => FileType::RegularFile,
        FileKind::Link => FileType::Symlink,
    }
}

impl MountedView {
    fn attributes(&self, of: &Attributes) -> FileAttr {
        let time: SystemTime = UNIX_EPOCH + Duration::new(of.time.seconds, of.time.nanoseconds);
        // The owner may write to what a union mount copies then.
        let write = if self.view.is_lower() { 0o200 } else { 0 };
        let (perm, nlink) = match of.kind {
            FileKind::Folder | FileKind::Submodule => (0o555 | write, 2),
            FileKind::File { is_executable: true } => (0o555 | write, 1),
            FileKind::File { is_executable: false } => (0o444 | write, 1),
            FileKind::Link => (0o777, 1),
        };
        FileAttr {
            ino: INodeNo(of.node),
            size: of.size,
            blocks: of.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(of.kind),
            perm,
            nlink,
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn opened(&self, handle: FileHandle) -> Option<Arc<Vec<Child>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.0).map(Arc::clone)
    }

    /// Calls `add` with each entry of a folder behind `offset`: its name, what it is, and the place behind
    /// it. Ends when `add` returns that there is no more room.
    fn each_entry(
        &self,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(&[u8], &Attributes, u64) -> bool,
    ) -> Result<()> {
        if offset == 0 && add(b".", &self.view.attributes(node.0)?, 1) {
            return Ok(());
        }
        if offset <= 1 && add(b"..", &self.view.parent(node.0)?, 2) {
            return Ok(());
        }
        let from = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
        let children = match self.opened(handle) {
            Some(children) => Some(children),
            None => self.view.all_children(node.0)?.map(Arc::new),
        };
        if let Some(children) = children {
            for (n, child) in children.iter().enumerate().skip(from) {
                if add(&child.name, &child.attributes, n as u64 + 3) {
                    break;
                }
            }
            return Ok(());
        }
        self.view.each_child(node.0, from, |name, attributes, next| !add(name, &attributes, next as u64 + 2))
    }
}

fn ttl(of: &Attributes) -> &'static Duration {
    match of.validity {
        Validity::Lasting => &LASTING,
        Validity::Changing => &CHANGING,
        Validity::Unknown => &Duration::ZERO,
    }
}

impl Filesystem for MountedView {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Not FUSE_EXPORT_SUPPORT: overlayfs would keep handles that go stale when caches are dropped.
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_NO_OPEN_SUPPORT;
        if self.view.is_lasting() {
            wanted |= InitFlags::FUSE_NO_OPENDIR_SUPPORT | InitFlags::FUSE_CACHE_SYMLINKS;
        }
        // Older kernels know fewer of them.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_readahead(READAHEAD_BYTES);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.view.look_up(parent.0, name.as_bytes()) {
            Ok(Some(found)) => reply.entry(ttl(&found), &self.attributes(&found), Generation(0)),
            // An entry without a number says that there is none, and for how long.
            Ok(None) => match self.view.attributes(parent.0) {
                Ok(folder) => {
                    let nothing = Attributes { node: 0, ..folder };
                    reply.entry(ttl(&folder), &self.attributes(&nothing), Generation(0));
                }
                Err(e) => reply.error(errno(&e)),
            },
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.view.attributes(node.0) {
            Ok(found) => reply.attr(ttl(&found), &self.attributes(&found)),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.view.content(node.0) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // All files may be opened: the kernel need not ask.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.view.content(node.0) {
            Ok(data) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                let to = from.saturating_add(size as usize).min(data.len());
                reply.data(&data[from..to]);
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.view.is_lasting() {
            return reply.error(fuser::Errno::ENOSYS);
        }
        match self.view.all_children(node.0) {
            Ok(Some(children)) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
                opened.insert(handle, Arc::new(children));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Ok(None) => {
                reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = self.each_entry(node, handle, offset, |name, found, next| {
            reply.add(INodeNo(found.node), next, file_type(found.kind), OsStr::from_bytes(name))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = self.each_entry(node, handle, offset, |name, found, next| {
            let attributes = self.attributes(found);
            let name = OsStr::from_bytes(name);
            reply.add(INodeNo(found.node), next, name, ttl(found), &attributes, Generation(0))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }
}
