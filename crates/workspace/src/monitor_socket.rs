//! The socket at which git asks what has changed in a workspace.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_git::pktline;

use crate::short_path::ShortPath;

pub(crate) const NAME: &str = "fsmonitor.sock";
/// What is sent when the last workspace has been removed.
pub(crate) const END: &[u8] = b"weir:end";
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

/// Ends the process that answers, if there is one. There are no workspaces any more in `root`.
pub(crate) fn end(root: &Path) {
    let told = connect(root).and_then(|mut stream| {
        let mut message = Vec::new();
        pktline::push(&mut message, END);
        pktline::push_flush(&mut message);
        stream.write_all(&message)?;
        // It has ended when the connection has.
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.read_to_end(&mut Vec::new())
    });
    if let Err(e) = told.inspect_err(|e| tracing::debug!("nobody answers git's fsmonitor: {e}")) {
        // Nobody is there who would remove it.
        if e.kind() == io::ErrorKind::ConnectionRefused {
            let _ = fs::remove_file(path(root));
        }
    }
}
