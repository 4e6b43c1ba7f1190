//! Runs a process that answers git through a socket, in place of git's own fsmonitor daemon, so that git
//! starts no program for each question (git 2.55 and newer on Linux).
//!
//! git connects to `.git/fsmonitor--daemon.ipc`, which is a link to one socket for all workspaces of a user.
//! It sends a token in lines of gitprotocol-common(5) up to a flush (api-simple-ipc in git's documentation),
//! and the answer comes likewise. It works at the top of the working tree that it asks about.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use weir_git::pktline::{self, Pkt, PktReader};
use weir_ground::thread::spawn;

use crate::error::{Error, Result};
use crate::guard::{self, Process};
use crate::monitor_socket::{self, ANSWER_MAX, END};
use crate::short_path::ShortPath;
use crate::touched::{UNKNOWN, is_same};
use crate::workspaces::Workspaces;

/// The file that the process locks.
const LOCK: &str = "fsmonitor.lock";
/// Bytes of a question, and of a line of the answer (gitprotocol-common(5)).
const QUESTION_BYTES_MAX: u64 = 64 << 10;
const LINE_BYTES_MAX: usize = 65_516;
/// The number of questions that the process answers at the same time.
const ANSWERS_MAX: usize = 64;
/// How long the process waits when it cannot accept a connection, for want of descriptors, say.
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait for the lock of a process that ends, and how often to try.
const LOCK_MAX: Duration = Duration::from_secs(5);
const LOCK_TICK: Duration = Duration::from_millis(2);
const _: () = assert!(LOCK_TICK.as_millis() < LOCK_MAX.as_millis(), "it is tried more than once");

/// Answers git's questions about the workspaces that are recorded in the folder `root`, until there are
/// none; calls `ready` when it begins to. A process of its own answers; if that is killed, another goes on.
///
/// # Errors
/// If the socket cannot be made, another process answers, or no process can go on.
///
/// # Panics
/// If this process has more than one thread.
pub fn serve_monitor(root: &Path, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let path = monitor_socket::path(root);
    let failed = Error::on(&path);
    let _alone = lock(root)?;
    let listener = listen(root).map_err(&failed)?;
    ready().map_err(&failed)?;
    match guard::split().map_err(&failed)? {
        Process::Server { .. } => serve(&Arc::new(Workspaces::new(root.to_owned())), &listener),
        Process::Guard => fs::remove_file(&path).map_err(&failed),
    }
}

/// Takes the lock of the process that answers.
fn lock(root: &Path) -> Result<File> {
    let path = root.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(Error::on(&path))?;
    let end = Instant::now() + LOCK_MAX;
    while file.try_lock().is_err() {
        if Instant::now() > end {
            return Err(Error::Odd(format!(
                "another process answers git's fsmonitor, and has '{}' locked",
                path.display()
            )));
        }
        std::thread::sleep(LOCK_TICK);
    }
    Ok(file)
}

/// Makes the socket, in place of one at which nobody answers any more.
fn listen(root: &Path) -> io::Result<UnixListener> {
    let at = ShortPath::open(root)?;
    let new = at.join("fsmonitor.new");
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, at.join(monitor_socket::NAME))?;
    Ok(listener)
}

/// Answers questions until the process ends.
fn serve(workspaces: &Arc<Workspaces>, listener: &UnixListener) -> ! {
    let running = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                tracing::error!("cannot take a question of git's fsmonitor: {e}");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let counted = Arc::clone(&running);
        let asked = Arc::clone(workspaces);
        let answering = move || {
            if let Err(e) = answer(&asked, &stream) {
                tracing::debug!("git's fsmonitor was not answered: {e}");
            }
            counted.fetch_sub(1, Ordering::SeqCst);
        };
        if running.fetch_add(1, Ordering::SeqCst) >= ANSWERS_MAX {
            answering();
        } else if let Err(e) = spawn("fsmonitor", answering) {
            // Who asked hears the end of the connection, and looks at every file.
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::error!("cannot answer git's fsmonitor: {e}");
        }
    }
    guard::end(false)
}

/// Answers a question.
fn answer(workspaces: &Workspaces, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    let token = question(stream)?;
    if token == END {
        if !workspaces.are_there() {
            guard::end(true);
        }
        return Ok(());
    }
    // 0 is who asks from a namespace that is not seen from here (pid_namespaces(7)), and nobody's folder.
    let asks = getsockopt(stream, PeerCredentials)?.pid();
    let tree = PathBuf::from(format!("/proc/{asks}/cwd"));
    let answer = changed(workspaces, &tree, &String::from_utf8_lossy(&token)).unwrap_or_else(|e| {
        tracing::debug!("git looks at every file: {e}");
        UNKNOWN.to_vec()
    });
    let mut lines = Vec::with_capacity(answer.len() + 16);
    answer.chunks(LINE_BYTES_MAX).for_each(|line| pktline::push(&mut lines, line));
    pktline::push_flush(&mut lines);
    (&mut &*stream).write_all(&lines)
}

/// Reads a question.
fn question(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut lines = PktReader::new(BufReader::new(stream.take(QUESTION_BYTES_MAX)));
    let mut token = Vec::new();
    loop {
        match lines.next_pkt()? {
            Some(Pkt::Line(line)) => token.extend_from_slice(line),
            Some(Pkt::Flush) => return Ok(token),
            // Whoever only looks whether somebody listens asks nothing.
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Returns what has changed since `token` in the working tree `tree`. Finds the workspace by its path, or,
/// where it is bound to another path, by device and inode.
fn changed(workspaces: &Workspaces, tree: &Path, token: &str) -> Result<Vec<u8>> {
    let named = fs::read_link(tree).map_err(Error::on(tree))?;
    let is_asked = |folder: &Path| is_same(folder, tree);
    let found = workspaces.find(&named).ok().filter(|workspace| is_asked(&workspace.folder));
    let found = match found {
        Some(found) => Some(found),
        None => workspaces.list()?.into_iter().find(|workspace| is_asked(&workspace.folder)),
    };
    let workspace = found.ok_or(Error::NoWorkspace(named))?;
    workspaces.changed_since(&workspaces.place(&workspace.folder), tree, token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(sent: &[u8]) -> io::Result<Vec<u8>> {
        let (mut git, weir) = UnixStream::pair().unwrap();
        git.write_all(sent).unwrap();
        drop(git);
        question(&weir)
    }

    #[test]
    fn a_question_ends_with_a_flush_and_is_bounded() {
        assert_eq!(asked(b"000aweir:1").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(asked(b"000aweir:10000").unwrap(), b"weir:1");
        assert_eq!(asked(b"0009weir:00061:0000").unwrap(), b"weir:1:");
        assert_eq!(asked(b"0000").unwrap(), b"");
        for sent in [&b""[..], b"00", b"zzzz", b"0001", b"00ffshort", b"0003"] {
            assert!(asked(sent).is_err(), "{sent:?}");
        }
        let line = [&b"fff0"[..], &[b'x'; 0xfff0 - 4]].concat();
        let endless: Vec<u8> =
            line.iter().copied().cycle().take(QUESTION_BYTES_MAX as usize + 1000).collect();
        assert!(asked(&endless).is_err());
    }

    #[test]
    fn who_is_in_no_workspace_is_told_that_all_may_have_changed() {
        let dir = weir_testing::folder();
        let workspaces = Workspaces::new(dir.path().to_owned());
        let (mut git, weir) = UnixStream::pair().unwrap();
        git.write_all(b"000aweir:10000").unwrap();
        answer(&workspaces, &weir).unwrap();
        drop(weir);
        let mut told = Vec::new();
        git.read_to_end(&mut told).unwrap();
        assert_eq!(told, b"000fweir:0:0\0/\x000000");
    }
}
