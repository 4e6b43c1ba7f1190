//! A program that ends with whoever has started it.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A running program, in a process group of its own: an interrupt from the terminal is for weir. When it is
/// dropped, it is killed, with the processes that it has started.
pub struct ProcessGroup(pub Child);

impl ProcessGroup {
    /// Starts `command`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> std::io::Result<ProcessGroup> {
        command.process_group(0).spawn().map(ProcessGroup)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let (Ok(None), Ok(group)) = (self.0.try_wait(), i32::try_from(self.0.id())) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}
