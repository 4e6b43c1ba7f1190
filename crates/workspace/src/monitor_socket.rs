//! The socket at which git asks what has changed in a workspace.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_git::pktline;

use crate::short_path::ShortPath;

pub(crate) const NAME: &str = "fsmonitor.sock";
/// The message by which weir ends the process, after it removed the last workspace.
pub(crate) const END: &[u8] = b"weir:end";
/// The number of bytes that weir reads from a daemon before it closes the connection.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How long a question, or its answer, may take.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Returns the socket at which git asks about the workspaces that are recorded in the folder `root`.
pub(crate) fn path(root: &Path) -> PathBuf {
    root.join(NAME)
}

/// Returns whether a process answers at the socket of the workspaces in `root`.
pub(crate) fn is_answered(root: &Path) -> bool {
    connect(root).is_ok()
}

fn connect(root: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(ShortPath::open(root)?.join(NAME))
}

/// Sends `command` as git sends a question, and waits until the connection ends.
fn send(mut stream: UnixStream, command: &[u8]) -> io::Result<()> {
    let mut message = Vec::new();
    pktline::push(&mut message, command);
    pktline::push_flush(&mut message);
    stream.write_all(&message)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    io::copy(&mut stream.take(ANSWER_BYTES_MAX), &mut io::sink()).map(drop)
}

/// Ends the daemon of git's own that has its socket at `path`, if there is one.
pub(crate) fn end_daemon(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
        return;
    };
    if !is_socket {
        return;
    }
    let told = ShortPath::open(folder).and_then(|at| send(UnixStream::connect(at.join(name))?, b"quit"));
    if let Err(e) = told {
        tracing::debug!("no daemon of git's is at '{}': {e}", path.display());
    }
}

/// Ends the process that answers, if there is one. There are no workspaces any more in `root`.
pub(crate) fn end(root: &Path) {
    let told = connect(root).and_then(|stream| send(stream, END));
    if let Err(e) = told.inspect_err(|e| tracing::debug!("nobody answers git's fsmonitor: {e}")) {
        // Nobody is there who would remove it.
        if e.kind() == io::ErrorKind::ConnectionRefused {
            let _ = fs::remove_file(path(root));
        }
    }
}
