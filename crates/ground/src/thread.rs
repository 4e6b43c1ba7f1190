//! Starting threads. A process that has too many threads gets an error, not a panic.

use std::io;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The nice value of threads that give way (sched(7)): others get nine times as much of a processor.
const NICE: i32 = 10;

/// Starts a thread named `name`. Linux shows the first 15 bytes of the name.
///
/// # Errors
/// If the system cannot start another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Starts a thread named `name` within `scope`.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    name: &str,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work)
}

/// Has the calling thread, and those that it starts from now on, get less of the processors than others, as
/// `nice` does. On Linux each thread has a priority of its own.
pub fn give_way() {
    // If it cannot, its work is done all the same.
    let _ = setpriority_process(Some(gettid()), NICE);
}

/// Runs `work` on a thread named `name` that gives way to others; on the calling thread if none can be
/// started.
///
/// # Panics
/// If `work` panics.
pub fn giving_way<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let given = std::thread::scope(|scope| {
        let work = &mut work;
        let started = spawn_scoped(name, scope, move || {
            give_way();
            work.take().map(|work| work())
        });
        started.ok().and_then(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    given.unwrap_or_else(|| work.take().expect("it was not begun")())
}

/// Runs `work` on `threads` threads at once, and returns the result of each. Uses fewer threads if no more
/// can be started; if none can, runs `work` once on the calling thread.
///
/// # Panics
/// If `work` panics.
pub fn on_threads<T: Send>(name: &str, threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    if threads <= 1 {
        return vec![work()];
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map_while(|_| spawn_scoped(name, scope, &work).ok()).collect();
        if started.is_empty() {
            return vec![work()];
        }
        let joined = started.into_iter().map(|thread| thread.join());
        joined.map(|given| given.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn work_is_done_on_as_many_threads_as_are_asked_for() {
        for threads in [0, 1, 3] {
            let next = AtomicUsize::new(0);
            let work =
                || std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed))).take_while(|n| *n < 100);
            let mut done: Vec<usize> = on_threads("test", threads, || work().collect::<Vec<_>>()).concat();
            done.sort_unstable();
            assert_eq!(done, (0..100).collect::<Vec<_>>(), "{threads}");
        }
    }

    #[test]
    fn a_thread_has_a_name() {
        let name = spawn("a name", || std::thread::current().name().map(str::to_owned)).unwrap();
        assert_eq!(name.join().unwrap().as_deref(), Some("a name"));
    }
}
