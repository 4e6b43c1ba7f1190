//! File descriptors: as many as the system allows, so that connections leave some for everything else.

/// Raises the soft limit of open files to the hard one, which is what daemons are meant to do (getrlimit(2)).
/// Nothing here uses select(2), which the low soft limit is for.
pub fn raise_descriptor_limit() {
    if let Some(mut limit) = limit()
        && limit.rlim_cur < limit.rlim_max
    {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a value that the call only reads.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// Returns the most files that this process may have open.
pub(crate) fn descriptors_max() -> usize {
    limit().map_or(usize::MAX, |limit| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Returns how many files this process has open.
pub(crate) fn descriptors_open() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for what the call writes.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit)
}
