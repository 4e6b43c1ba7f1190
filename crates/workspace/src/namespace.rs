//! A namespace of a user's own (user_namespaces(7)), in which the kernel lets mount who is not root.
//!
//! A process holds it, and runs commands in it for whoever asks at its socket: a process that came into the
//! namespace otherwise, as a shell does, may not mount there. A request has the file descriptors of the
//! standard streams and five lists: the program, its arguments, the environment and the folder to start in.
//! A list is a number, and fields with their lengths; all numbers have 32 bits, little-endian. The answer is
//! the exit status, likewise.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid};
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};

use weir_ground::thread::spawn;

use crate::error::{Error, Result};
use crate::short_path::ShortPath;

const SOCKET: &str = "namespace.sock";
/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 16 << 20;
const STREAMS: usize = 3;

/// Returns whether this process may mount: it is root's, or runs in a namespace for [`Namespace::run`].
pub fn may_mount() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The namespace of the user whose records lie in a folder.
pub struct Namespace<'p> {
    folder: &'p Path,
}

/// A command that a process of the namespace is to run, in the folder of this process.
pub struct NamespaceCommand<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Its environment.
    pub environment: &'a [(OsString, OsString)],
}

impl<'p> Namespace<'p> {
    /// Returns the namespace of the user whose records lie in `folder`.
    pub fn new(folder: &'p Path) -> Namespace<'p> {
        Namespace { folder }
    }

    /// Makes the namespace, and holds it: runs commands there, until one has ended after which `is_needed`
    /// returns false. Calls `ready` once it takes requests.
    ///
    /// # Errors
    /// If the kernel makes no namespace for the user, or the socket cannot be made.
    pub fn hold(
        &self,
        ready: impl FnOnce(),
        is_needed: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        become_alone().map_err(Error::NoNamespace)?;
        let path = self.folder.join(SOCKET);
        let failed = Error::on(&path);
        let listener = (|| {
            let at = ShortPath::open(self.folder)?;
            let _ = fs::remove_file(at.join(SOCKET));
            let listener = UnixListener::bind(at.join(SOCKET))?;
            fs::set_permissions(at.join(SOCKET), fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        })()
        .map_err(failed)?;
        ready();
        let (is_needed, running) = (Arc::new(is_needed), Arc::new(AtomicUsize::new(0)));
        for stream in listener.incoming() {
            let mut stream = stream.map_err(Error::on(&path))?;
            running.fetch_add(1, Ordering::SeqCst);
            let counted = Arc::clone(&running);
            let (is_needed, path) = (Arc::clone(&is_needed), path.clone());
            let answering = move || {
                let status = answer(&stream).unwrap_or_else(|e| {
                    tracing::error!("cannot run a command in the namespace: {e}");
                    1
                });
                let is_last = counted.fetch_sub(1, Ordering::SeqCst) == 1 && !is_needed();
                if is_last {
                    let _ = fs::remove_file(path);
                }
                // Who asked may be gone.
                let _ = stream.write_all(&status.to_le_bytes());
                if is_last {
                    std::process::exit(0);
                }
            };
            // Who asked hears the end of the connection.
            if let Err(e) = spawn("namespace", answering) {
                running.fetch_sub(1, Ordering::SeqCst);
                tracing::error!("cannot run a command in the namespace: {e}");
            }
        }
        Ok(())
    }

    /// Returns whether somebody holds the namespace.
    pub fn is_held(&self) -> bool {
        self.connect().is_ok()
    }

    /// Returns the folders on which something is mounted in the namespace, if somebody holds it
    /// (proc_pid_mountinfo(5)).
    pub fn mounted(&self) -> HashSet<PathBuf> {
        let lines = || {
            let holder = rustix::net::sockopt::socket_peercred(self.connect()?)?.pid;
            fs::read(format!("/proc/{}/mountinfo", holder.as_raw_nonzero()))
        };
        let lines: Vec<u8> = lines().unwrap_or_default();
        let mounted =
            lines.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
        mounted.map(unescaped).collect()
    }

    fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(ShortPath::open(self.folder)?.join(SOCKET))
    }

    /// Returns a connection to the process that holds the namespace. Calls `start` to start it if there is
    /// none.
    fn connected(&self, start: &dyn Fn() -> Result<()>) -> Result<UnixStream> {
        fs::create_dir_all(self.folder).map_err(Error::on(self.folder))?;
        if let Ok(stream) = self.connect() {
            return Ok(stream);
        }
        // One at a time: two would hold a namespace each.
        let path = self.folder.join("namespace.lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(Error::on(&path))?;
        lock.lock().map_err(Error::on(&path))?;
        if let Ok(stream) = self.connect() {
            return Ok(stream);
        }
        start()?;
        self.connect().map_err(Error::on(&self.folder.join(SOCKET)))
    }

    /// Runs a command in the namespace, and returns its exit status. `start` starts a process that calls
    /// [`Namespace::hold`], and returns when that is ready.
    ///
    /// # Errors
    /// If there is no namespace, or the process that holds it ends.
    pub fn run(&self, command: &NamespaceCommand<'_>, start: &dyn Fn() -> Result<()>) -> Result<i32> {
        let mut stream = self.connected(start)?;
        let failed = |e| Error::on(&self.folder.join(SOCKET))(e);
        ask(&stream, command).map_err(failed)?;
        let mut status = [0; 4];
        stream.read_exact(&mut status).map_err(failed)?;
        Ok(i32::from_le_bytes(status))
    }

    /// Takes this process into the namespace. Its folder is then the top of all. It has one thread.
    ///
    /// # Errors
    /// If there is no namespace, or the process has other threads.
    pub fn enter(&self, start: &dyn Fn() -> Result<()>) -> Result<()> {
        let stream = self.connected(start)?;
        let holder =
            rustix::net::sockopt::socket_peercred(&stream).map_err(|e| Error::NoNamespace(e.into()))?;
        let of = |name: &str| File::open(format!("/proc/{}/ns/{name}", holder.pid.as_raw_nonzero()));
        let entered = (|| {
            let (user, mounts) = (of("user")?, of("mnt")?);
            setns(user, CloneFlags::CLONE_NEWUSER)?;
            Ok(setns(mounts, CloneFlags::CLONE_NEWNS)?)
        })();
        entered.map_err(Error::NoNamespace)
    }
}

/// Returns a path as it is: the kernel writes white space and backslashes as three octal digits.
pub(crate) fn unescaped(path: &[u8]) -> PathBuf {
    let (mut plain, mut rest) = (Vec::new(), path);
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// Takes this process to namespaces of its own, where it and all that it starts may mount. It has one thread.
///
/// # Errors
/// If the kernel does not let the user.
pub fn become_alone() -> io::Result<()> {
    let (user, group) = (Uid::current(), Gid::current());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    for capability in sets.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Runs the command that is asked for on `stream`, and returns its exit status; as a shell tells it, if a
/// signal ended it.
fn answer(stream: &UnixStream) -> io::Result<i32> {
    let (request, [input, output, errors]) = received(stream)?;
    let cut = || io::Error::from(io::ErrorKind::InvalidData);
    let mut rest = &request[..];
    let mut list = || list_of(&mut rest).ok_or_else(cut);
    let (program, args, environment, folder) = (list()?, list()?, list()?, list()?);
    let mut command = Command::new(program.first().ok_or_else(cut)?);
    command.args(args).env_clear().current_dir(folder.first().ok_or_else(cut)?);
    for pair in environment {
        let equals = pair.as_bytes().iter().skip(1).position(|byte| *byte == b'=').map(|at| at + 1);
        let (name, value) = pair.as_bytes().split_at(equals.ok_or_else(cut)?);
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(&value[1..]));
    }
    let status = command.stdin(input).stdout(output).stderr(errors).status()?;
    Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1))
}

fn push_list<'a>(out: &mut Vec<u8>, fields: impl ExactSizeIterator<Item = &'a [u8]>) {
    out.extend_from_slice(&(fields.len() as u32).to_le_bytes());
    for field in fields {
        out.extend_from_slice(&(field.len() as u32).to_le_bytes());
        out.extend_from_slice(field);
    }
}

/// Takes a list off a request; `None` if it is cut.
fn list_of(rest: &mut &[u8]) -> Option<Vec<OsString>> {
    let number = |rest: &mut &[u8]| {
        let (bytes, after) = rest.split_first_chunk::<4>()?;
        *rest = after;
        Some(u32::from_le_bytes(*bytes) as usize)
    };
    let count = number(rest)?;
    let mut list = Vec::new();
    for _ in 0..count {
        let len = number(rest)?;
        let (field, after) = rest.split_at_checked(len)?;
        *rest = after;
        list.push(OsString::from_vec(field.to_vec()));
    }
    Some(list)
}

/// Sends a request.
fn ask(mut stream: &UnixStream, command: &NamespaceCommand<'_>) -> io::Result<()> {
    let mut request = Vec::new();
    push_list(&mut request, [command.program.as_os_str().as_bytes()].into_iter());
    push_list(&mut request, command.args.iter().map(|arg| arg.as_bytes()));
    let pair = |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let pairs: Vec<Vec<u8>> = command.environment.iter().map(pair).collect();
    push_list(&mut request, pairs.iter().map(Vec::as_slice));
    // Where the folder is gone, names that are absolute still lead somewhere.
    let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    push_list(&mut request, [folder.as_os_str().as_bytes()].into_iter());
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(STREAMS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&streams));
    let length = (request.len() as u32).to_le_bytes();
    sendmsg(stream, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&request)
}

/// Receives a request and its streams.
fn received(mut stream: &UnixStream) -> io::Result<(Vec<u8>, [Stdio; STREAMS])> {
    let cut = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut length, mut space) = ([0; 4], [MaybeUninit::uninit(); cmsg_space!(ScmRights(STREAMS))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    stream.read_exact(length.get_mut(got.bytes..).ok_or_else(cut)?)?;
    let mut streams: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            streams.extend(sent);
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > REQUEST_BYTES_MAX {
        return Err(cut());
    }
    let mut request = vec![0; length];
    stream.read_exact(&mut request)?;
    let streams: [OwnedFd; STREAMS] = streams.try_into().map_err(|_| cut())?;
    Ok((request, streams.map(Stdio::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_kernel_is_read() {
        assert_eq!(unescaped(b"/a\\040b\\134c\\"), Path::new("/a b\\c\\"));
        assert_eq!(unescaped(b"/\\9"), Path::new("/\\9"));
    }

    #[test]
    fn a_list_is_what_was_pushed_or_cut() {
        let mut data = Vec::new();
        push_list(&mut data, [&b"a"[..], b"", b"\xff\n"].into_iter());
        push_list(&mut data, std::iter::empty());
        let mut rest = &data[..];
        assert_eq!(
            list_of(&mut rest).unwrap(),
            [OsStr::from_bytes(b"a"), OsStr::new(""), OsStr::from_bytes(b"\xff\n")]
        );
        assert_eq!(list_of(&mut rest).unwrap(), Vec::<OsString>::new());
        assert!(rest.is_empty());
        for end in 0..data.len() - 4 {
            assert_eq!(list_of(&mut &data[..end]), None, "{end}");
        }
        assert_eq!(list_of(&mut &[0xff; 8][..]), None);
    }
}
