//! git:// on the connection that inetd passes.

use std::io::{self, Read, Write, stdin, stdout};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_git::pktline::{self, Pkt};
use weir_ground::thread::spawn;
use weir_upload::{DaemonRequest, UNREADABLE, UploadOptions, UploadPack, Version, parse_daemon_request};

use crate::access::{Client, Locator, PathLocator};
use crate::server::DaemonLimits;
use crate::stdio::conversation::{GiveUp, SilentClient, serve_stdio};

/// The largest first line, in bytes.
const FIRST_LINE_BYTES_MAX: usize = 8 << 10;

/// Serves one conversation of git://, on the connection that inetd has passed as standard input and output.
/// `give_up` ends the process if the client is silent for too long.
///
/// # Errors
/// If a system call fails.
pub fn serve_inetd(locator: &PathLocator, limits: &DaemonLimits, give_up: GiveUp) -> io::Result<()> {
    let Some(request) = first_request(limits.init_timeout, give_up)? else { return Ok(()) };
    let refuse = |words: &str| {
        let mut out = Vec::new();
        pktline::push(&mut out, format!("ERR {}", words.escape_default()).as_bytes());
        stdout().write_all(&out)
    };
    let Some(request) = request else {
        return refuse("weir: not a git request; this is a read-only git server");
    };
    let found = match locator.find(&request, &Client::at(peer_of_stdin())) {
        Ok(found) => found,
        Err(refusal) => return refuse(refusal.words_without_token()),
    };
    let (repo, features) = match locator.presentation.open_found(&found) {
        Ok(opened) => opened,
        Err(e) => {
            tracing::error!("cannot open: {e}");
            return refuse(&format!("weir: {UNREADABLE}"));
        }
    };
    let options = UploadOptions { features, ..UploadOptions::default() };
    let mut machine = UploadPack::new(repo, Version::from_number(request.version), options);
    // `Duration::MAX` stands for no timeout.
    let idle_timeout = Some(limits.idle_timeout).filter(|timeout| *timeout < Duration::MAX);
    serve_stdio(&mut machine, idle_timeout, give_up).map(drop)
}

/// Reads the request that a conversation starts with. Returns `None` if none comes, and `Some(None)` if it is
/// not a git request.
fn first_request(timeout: Duration, give_up: GiveUp) -> io::Result<Option<Option<DaemonRequest>>> {
    let is_there = Arc::new(AtomicBool::new(false));
    if timeout < Duration::MAX {
        let is_there = is_there.clone();
        spawn("timeout", move || {
            std::thread::sleep(timeout);
            if !is_there.load(Ordering::Relaxed) {
                give_up(SilentClient::NeverAsked, timeout);
            }
        })?;
    }
    let mut input = stdin().lock();
    let mut line = Vec::new();
    let request = loop {
        match pktline::decode(&line) {
            Ok(Some((Pkt::Line(first), _))) => break parse_daemon_request(first),
            Ok(None) if line.len() < FIRST_LINE_BYTES_MAX => {}
            _ => break None,
        }
        // Read no more than the line: the rest belongs to the conversation.
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        line.extend_from_slice(&byte);
    };
    is_there.store(true, Ordering::Relaxed);
    Ok(Some(request))
}

fn peer_of_stdin() -> Option<SocketAddr> {
    let socket = stdin().as_fd().try_clone_to_owned().ok()?;
    std::net::TcpStream::from(socket).peer_addr().ok()
}
