//! A folder of files the bytes of which are on another machine, as a file system of the kernel (FUSE).

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};
use nix::unistd::{Gid, Uid};

use crate::error::{Error, Result};
use crate::mount::{LASTING, MountOptions, config_of, serve_guarded, session_of};

/// The number of the folder; those of the files follow.
const FOLDER: u64 = 1;

/// The bytes of some files.
pub trait RemoteFiles: Send + Sync {
    /// Reads the bytes at `offset` of the file with the number `file`. They are in it.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Mounts files, each with its name and its bytes, on the folder `path`, calls `ready`, and returns when it
/// is unmounted. A process of its own answers the kernel; it calls `open` for what the files hold. If it is
/// killed, another goes on in its place.
///
/// # Errors
/// If the system does not let the user mount there, or no process can go on.
///
/// # Panics
/// If this process has more than one thread.
pub fn mount_remote_files(
    files: Vec<(String, u64)>,
    path: &Path,
    options: &MountOptions,
    ready: impl FnOnce() -> io::Result<()>,
    open: impl FnOnce() -> io::Result<Box<dyn RemoteFiles>>,
) -> Result<()> {
    let opened: Arc<OnceLock<Box<dyn RemoteFiles>>> = Arc::default();
    let owner = (Uid::current().as_raw(), Gid::current().as_raw());
    let mounted = MountedFiles { files, opened: Arc::clone(&opened), owner };
    let session = session_of(mounted, path, &config_of(options))?;
    serve_guarded(session, path, ready, || {
        let _ = opened.set(open().map_err(Error::on(path))?);
        Ok(())
    })
}

/// The files, as `fuser` calls them.
struct MountedFiles {
    files: Vec<(String, u64)>,
    opened: Arc<OnceLock<Box<dyn RemoteFiles>>>,
    /// The user and the group.
    owner: (u32, u32),
}

impl MountedFiles {
    /// Returns the number of the file that the kernel calls `node`.
    fn number(&self, node: INodeNo) -> Option<usize> {
        let number = usize::try_from(node.0.checked_sub(FOLDER + 1)?).ok()?;
        (number < self.files.len()).then_some(number)
    }

    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match node.0 {
            FOLDER => (FileType::Directory, 0o555, 2, 0),
            _ => (FileType::RegularFile, 0o444, 1, self.files[self.number(node)?].1),
        };
        let (uid, gid) = self.owner;
        let time = UNIX_EPOCH;
        let (blocks, blksize) = (size.div_ceil(512), 4096);
        Some(FileAttr {
            ino: node,
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev: 0,
            blksize,
            flags: 0,
        })
    }
}

impl Filesystem for MountedFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.files.iter().position(|(known, _)| name == known.as_str());
        let node = found.map(|number| INodeNo(number as u64 + FOLDER + 1));
        match node.and_then(|node| self.attributes(node)) {
            Some(found) => reply.entry(&LASTING, &found, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(found) => reply.attr(&LASTING, &found),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // All files may be opened: the kernel need not ask.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
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
        let (Some(number), Some(opened)) = (self.number(node), self.opened.get()) else {
            return reply.error(Errno::ESTALE);
        };
        let left = self.files[number].1.saturating_sub(offset);
        let mut data = vec![0; left.min(u64::from(size)) as usize];
        match opened.read(number, offset, &mut data) {
            Ok(()) => reply.data(&data),
            Err(e) => {
                tracing::error!("{}: {e}", self.files[number].0);
                reply.error(Errno::EIO);
            }
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let folders = [".", ".."].into_iter().map(|name| (name, FOLDER, FileType::Directory));
        let files = self.files.iter().enumerate();
        let files = files.map(|(n, (name, _))| (&**name, n as u64 + FOLDER + 1, FileType::RegularFile));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (n, (name, node, kind)) in folders.chain(files).enumerate().skip(from) {
            if reply.add(INodeNo(node), n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }
}
