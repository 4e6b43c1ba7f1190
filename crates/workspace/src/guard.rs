//! A process that keeps what a mount needs, and starts another that answers the kernel: again, if that one is
//! killed. Programs that wait for an answer meanwhile wait a few milliseconds longer.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The guard gives up after this number of servers in a row have crashed within [`FAILED_BEFORE`]: the same
/// request may crash each of them.
const FAILED_MAX: u32 = 100;
const FAILED_BEFORE: Duration = Duration::from_secs(1);
/// After [`FAILED_MAX`] servers in a row were killed within [`FAILED_BEFORE`], the guard sleeps for this long
/// before it starts the next.
const PAUSE: Duration = Duration::from_millis(100);
/// For how long threads that start stay on one processor.
const BOUND_FOR: Duration = Duration::from_millis(5);

/// Which process this is, after [`split`].
pub(crate) enum Process {
    /// The one that serves. It ends with [`end`].
    Server { is_first: bool },
    /// The one that called. The last server has ended well.
    Guard,
}

/// Goes on in two processes: at once in one that serves, and in this one when that has ended with
/// `end(true)`. If the server ends in any other way, another one goes on from here. What this process has
/// open stays open meanwhile.
///
/// # Errors
/// If no process can be started, or each fails at once.
///
/// # Panics
/// If this process has more than one thread: those would not be in the server.
pub(crate) fn split() -> std::io::Result<Process> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    assert_eq!(threads, 1, "a guard has one thread");
    let (mut failed, mut killed) = (0, 0);
    let mut is_first = true;
    while failed < FAILED_MAX {
        if killed >= FAILED_MAX {
            std::thread::sleep(PAUSE);
        }
        let start = Instant::now();
        // SAFETY: there is no other thread, which could hold a lock.
        let forked = on_this_processor(|| unsafe { fork() })?;
        let server = match forked {
            ForkResult::Parent { child } => child,
            ForkResult::Child => return Ok(Process::Server { is_first }),
        };
        let ended = loop {
            match waitpid(server, None) {
                Err(nix::errno::Errno::EINTR) => {}
                ended => break ended?,
            }
        };
        if ended == WaitStatus::Exited(server, 0) {
            return Ok(Process::Guard);
        }
        tracing::warn!("process {server}, which showed a commit, has ended ({ended:?}); another goes on");
        let is_killed = matches!(ended, WaitStatus::Signaled(_, Signal::SIGKILL | Signal::SIGTERM, _));
        (failed, killed) = match (start.elapsed() < FAILED_BEFORE, is_killed) {
            (true, true) => (failed, killed + 1),
            (true, false) => (failed + 1, killed),
            (false, _) => (0, 0),
        };
        is_first = false;
    }
    Err(std::io::Error::other(format!("{FAILED_MAX} processes failed at once")))
}

/// Calls `start`, which forks, and lets the new process begin on the processor of this one. Otherwise Linux
/// may queue it on another processor that is busy, while this process sleeps until it has ended. Afterwards
/// both may run anywhere again.
fn on_this_processor<T>(start: impl FnOnce() -> T) -> T {
    let all = bind();
    let started = start();
    if let Some(all) = all {
        let _ = sched_setaffinity(None, &all);
    }
    started
}

/// Calls `start`, which starts threads that start more, and keeps all on the processor of this thread for
/// [`BOUND_FOR`]. Otherwise Linux may queue them on a busy processor, while a program waits for their first
/// answers. Afterwards all threads of this process may run anywhere again.
pub(crate) fn with_threads_on_this_processor<T>(start: impl FnOnce() -> T) -> T {
    let all = bind();
    let started = start();
    if let Some(all) = all {
        std::thread::sleep(BOUND_FOR);
        // Twice: a thread that is not free yet may be starting another.
        (0..2).for_each(|_| free_threads(&all));
    }
    started
}

/// Lets all threads of this process run on the processors `all`.
fn free_threads(all: &CpuSet) {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = threads.filter_map(|thread| Pid::from_raw(thread.file_name().to_str()?.parse().ok()?));
    for id in ids {
        let _ = sched_setaffinity(Some(id), all);
    }
}

/// Lets this thread, and those that it starts, run on its processor only. Returns where it could run before.
fn bind() -> Option<CpuSet> {
    let all = sched_getaffinity(None).ok()?;
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).ok()?;
    Some(all)
}

/// Ends a server. What the guard has made is left as it is.
pub(crate) fn end(is_done: bool) -> ! {
    // SAFETY: nothing is called, and no memory is freed.
    unsafe { libc::_exit(i32::from(!is_done)) }
}
