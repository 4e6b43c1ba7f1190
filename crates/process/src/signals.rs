//! Handles signals.

use std::io;

use tokio::sync::watch::{Receiver, channel};
use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::systemd;

/// Requests `stop` on SIGINT and SIGTERM. A second signal ends the process at once. The returned
/// receiver becomes true at the first.
///
/// # Errors
/// If the system allows no handler, or no thread.
pub fn stop_on_signal(stop: &Stop) -> io::Result<Receiver<bool>> {
    let stop = stop.clone();
    let (told, asked) = channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Before this function returns: a signal without a handler would end the process.
    let (mut interrupt, mut terminate) = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        Ok::<_, io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    })?;
    spawn("signals", move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.is_stopped() {
                    std::process::exit(130);
                }
                tracing::info!(
                    "stopping after the work in progress; a second signal stops at once (nothing committed \
                    is lost)"
                );
                systemd::notify("STOPPING=1");
                stop.stop();
                told.send_replace(true);
            }
        });
    })?;
    Ok(asked)
}

/// Calls `act` on each SIGHUP and SIGUSR2, until it returns false. Where SIGHUP comes because the terminal is
/// gone that this process had at its start, stops in place of that; `nohup` goes on.
///
/// # Errors
/// If the system allows no handler, or no thread.
pub fn on_reload_signal(
    mut had_terminal: bool,
    mut act: impl FnMut() -> bool + Send + 'static,
) -> io::Result<()> {
    let ignores_hang_up = ignores_hang_up();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut hang_up, mut user) = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        Ok::<_, io::Error>((signal(SignalKind::hangup())?, signal(SignalKind::user_defined2())?))
    })?;
    spawn("reload", move || {
        let mut asked = || {
            runtime.block_on(async {
                tokio::select! {
                    asked = hang_up.recv() => asked,
                    asked = user.recv() => asked,
                }
            })
        };
        while asked().is_some() {
            if had_terminal && !has_terminal() {
                had_terminal = false;
                if ignores_hang_up {
                    continue;
                }
                return stop_by_signal();
            }
            if !act() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Stops this process as SIGTERM does. [`stop_on_signal`] was called before.
pub fn stop_by_signal() {
    // SAFETY: a signal to ourselves, for which there is a handler.
    unsafe { libc::raise(libc::SIGTERM) };
}

/// Returns whether this process has a terminal that is still there (tty(4)).
pub fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Returns whether this process was started to ignore SIGHUP (proc_pid_status(5), `SigIgn`).
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (libc::SIGHUP - 1) != 0)
}
