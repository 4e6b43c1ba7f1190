//! Processes that are no children of the test, found in proc(5).

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Returns the ids of all processes.
fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns the ids of the children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name of the program, in parentheses, may hold anything.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        parent.is_some_and(|parent| parent.parse() == Ok(pid))
    };
    all().filter(is_child).collect()
}

/// Kills a process (SIGKILL) that was found in proc(5) and may have ended since. Returns whether it was
/// there.
pub fn kill_found(pid: u32) -> bool {
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).is_ok()
}

/// Processes that are no children of the test, such as daemons: those with an argument that no other process
/// has. They are told to end (SIGTERM) when this value is dropped.
pub struct Strays(pub String);

impl Strays {
    /// Returns the ids of the processes.
    pub fn ids(&self) -> Vec<u32> {
        let is_one = |process: &u32| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|argument| argument == self.0.as_bytes())
        };
        all().filter(is_one).collect()
    }
}

impl Drop for Strays {
    fn drop(&mut self) {
        for id in self.ids() {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(id as i32), Signal::SIGTERM);
        }
    }
}
