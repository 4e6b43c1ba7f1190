//! Checks this machine: owners of files, free space, clocks, limits of the process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::archives::check_locks;
use crate::running::{CLOCK_SKEW_TOLD_S, Pool};
use crate::words;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};
use weir_ground::FileError;

use crate::checks::report::{CheckLevel, CheckReport};
use crate::error::Result;
use weir_catalog::clock::now;

/// The least number of files that a file system must still have room for. A visit makes two.
const INODES_MIN: u64 = 1000;
/// The used percentage of `store.bytes_max` from which on it is reported.
const QUOTA_PERCENT_TOLD: u64 = 90;
const _: () = assert!(QUOTA_PERCENT_TOLD < 100, "it is told before the quota is reached");

/// Checks who owns the files of the pool at `path`, and who can write to them.
pub(crate) fn owner(path: &Path, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "pool";
    let user = geteuid();
    let mut foreign = report.many("that belong to others");
    let mut open_to_all = report.many("that everybody may write to");
    let mut closed = report.many("that cannot be read and written");
    let files = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in std::iter::once(path.to_owned()).chain(files) {
        let Ok(found) = std::fs::symlink_metadata(&path).and_then(|_| std::fs::metadata(&path)) else {
            continue;
        };
        let shown = path.display();
        if found.uid() != user.as_raw() {
            let owner = found.uid();
            foreign.add(|| {
                format!(
                    "'{shown}' belongs to user {owner}, and this is user {user}: run weir as \
                one user, and chown the rest"
                )
            });
        }
        if found.mode() & 0o002 != 0 {
            open_to_all.add(|| format!("'{shown}' is world-writable: run chmod o-w '{shown}'"));
        }
        let wanted = AccessFlags::R_OK
            | AccessFlags::W_OK
            | if found.is_dir() { AccessFlags::X_OK } else { AccessFlags::empty() };
        if access(&path, wanted).is_err() {
            closed.add(|| {
                format!("'{shown}' cannot be read and written by user {user}: chmod u+rw, or chown it")
            });
        }
    }
    match std::env::current_exe().and_then(std::fs::metadata) {
        Ok(program) if program.mode() & 0o002 != 0 => {
            report.add(CheckLevel::Warning, CHECK, "the weir program itself is world-writable")?;
        }
        _ => {}
    }
    if foreign.is_empty() && open_to_all.is_empty() && closed.is_empty() && path.is_dir() {
        report.add(
            CheckLevel::Ok,
            CHECK,
            format!("'{}' belongs to user {user}, who runs this", path.display()),
        )?;
    }
    report.add_all(CheckLevel::Error, CHECK, open_to_all)?;
    report.add_all(CheckLevel::Error, CHECK, closed)?;
    report.add_all(CheckLevel::Warning, CHECK, foreign)
}

/// Checks the room for archives, and for packs while they are received.
pub(crate) fn space(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "disk";
    let store = &pool.store.path;
    let stat = statvfs(store).map_err(std::io::Error::from).map_err(FileError::on("look at", store))?;
    let free = stat.blocks_available() * stat.fragment_size();
    let wanted = pool.config.store.free_bytes_min.0;
    let room = format!("{} free", words::bytes(free));
    if free < wanted {
        let wanted = words::bytes(wanted);
        report.add(
            CheckLevel::Error,
            CHECK,
            format!("{room}; visits pause below {wanted} (store.free_bytes_min): free disk space"),
        )?;
    } else {
        report.add(CheckLevel::Ok, CHECK, room)?;
    }
    // Some file systems do not count inodes, and report 0 of 0.
    if stat.files() > 0 && stat.files_available() < INODES_MIN {
        let left = stat.files_available();
        report.add(
            CheckLevel::Error,
            CHECK,
            format!("the store's file system has only {left} free inodes"),
        )?;
    }
    if let Some(quota) = pool.config.store.bytes_max {
        let used = pool.catalog.status().archive_bytes()?;
        if used >= quota.0 / 100 * QUOTA_PERCENT_TOLD {
            let (used, quota) = (words::bytes(used), words::bytes(quota.0));
            report.add(
                CheckLevel::Warning,
                CHECK,
                format!("archives take {used} of the {quota} that store.bytes_max allows"),
            )?;
        }
    }
    if pool.catalog.is_remote()
        && let Err(e) = check_locks(store)
    {
        report.add(CheckLevel::Error, CHECK, e.to_string())?;
    }
    let scratch = pool.store.scratch.clone().folder.unwrap_or_else(std::env::temp_dir);
    let written = tempfile::tempfile_in(&scratch);
    if let Err(e) = written {
        report.add(
            CheckLevel::Error,
            CHECK,
            format!("cannot write to the scratch folder '{}': {e}", scratch.display()),
        )?;
    }
    Ok(())
}

/// Compares this machine's clock with the catalog's and the store's.
pub(crate) fn clock(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "clock";
    let mut is_well = true;
    let ahead = pool.catalog.follow_clock()?;
    if ahead.abs() > CLOCK_SKEW_TOLD_S {
        is_well = false;
        report.add(
            CheckLevel::Warning,
            CHECK,
            format!("the database's clock is {}; weir uses that one", told(ahead)),
        )?;
    }
    // On a network file system, the time of a file is the server's.
    let store = &pool.store.path;
    match tempfile::tempfile_in(store).and_then(|file| file.metadata()?.modified()) {
        Err(e) => {
            is_well = false;
            report.add(
                CheckLevel::Error,
                "pool",
                format!("cannot write to the store '{}': {e}", store.display()),
            )?;
        }
        Ok(time) => {
            let seconds =
                |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
            let ahead = seconds(time) - seconds(SystemTime::now());
            if ahead.abs() > CLOCK_SKEW_TOLD_S {
                is_well = false;
                report.add(CheckLevel::Warning, CHECK, format!("the store's clock is {}", told(ahead)))?;
            }
        }
    }
    let ahead = pool.catalog.visits().last_at()?.map_or(0, |last| last - now());
    if ahead > CLOCK_SKEW_TOLD_S {
        is_well = false;
        let ahead = words::span(ahead);
        report.add(
            CheckLevel::Error,
            CHECK,
            format!(
                "the last visit is {ahead} in the future: this machine's clock is wrong, or was wrong then"
            ),
        )?;
    }
    if is_well {
        report.add(CheckLevel::Ok, CHECK, format!("it is {} UTC here", words::time(now())))?;
    }
    Ok(())
}

fn told(ahead_s: i64) -> String {
    let by = words::span(ahead_s.abs());
    if ahead_s > 0 { format!("{by} ahead of this machine's") } else { format!("{by} behind this machine's") }
}

/// Checks the limits that the system sets for a process.
pub(crate) fn limits(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    const CHECK: &str = "limits";
    let hard = |what: Resource| getrlimit(what).map_or(RLIM_INFINITY, |(_, hard)| hard);
    let mut is_well = true;
    let (files, connections) = (hard(Resource::RLIMIT_NOFILE), pool.config.serve.connections_max as u64);
    // weir-serve divides the descriptors in the same way.
    if files / 2 < connections {
        is_well = false;
        let served = files / 2;
        report.add(
            CheckLevel::Warning,
            CHECK,
            format!(
                "{files} open files (ulimit -Hn): the server takes {served} connections at once, not \
                {connections}"
            ),
        )?;
    }
    for (what, name, flag) in
        [(Resource::RLIMIT_FSIZE, "file size", "-f"), (Resource::RLIMIT_AS, "address space", "-v")]
    {
        let limit = hard(what);
        if limit != RLIM_INFINITY {
            is_well = false;
            let limit = words::bytes(limit);
            report.add(
                CheckLevel::Warning,
                CHECK,
                format!("{name} is limited to {limit} (ulimit -H{flag}): larger archives fail; lift it"),
            )?;
        }
    }
    if is_well {
        report.add(CheckLevel::Ok, CHECK, format!("{files} open files"))?;
    }
    Ok(())
}
