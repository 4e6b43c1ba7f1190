//! Runs git in workspaces.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use weir_git::LOCAL_ENVIRONMENT;
use weir_ground::thread::spawn;

use crate::error::{Error, Result};
use crate::git_dir::Monitor;

/// The first git that takes no file for deleted that its fsmonitor vouches for (release notes of 2.43).
pub const GIT_THAT_ASKS: (u32, u32) = (2, 43);

/// Returns a command of git that works on the repository it is told, not on one that the environment names:
/// weir may run in a hook.
pub fn git_command() -> Command {
    let mut git = Command::new("git");
    for name in LOCAL_ENVIRONMENT {
        git.env_remove(name);
    }
    git
}

/// Returns what git prints in `folder`.
///
/// # Errors
/// If git cannot be started, or fails.
pub fn git(folder: &Path, args: &[&str]) -> Result<String> {
    git_holding(folder, args, Stdio::null())
}

/// Returns what git prints in `folder`, which reads nothing and keeps `stdin` open until it ends.
///
/// # Errors
/// As [`git`].
pub(crate) fn git_holding(folder: &Path, args: &[&str], stdin: Stdio) -> Result<String> {
    let mut git = git_command();
    git.arg("-C").arg(folder).args(args).stdin(stdin);
    let output = git.output().map_err(Error::NoGit)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let said = if said.is_empty() { format!("it ended with {}", output.status) } else { said };
        return Err(Error::Git { command: args[0].to_owned(), folder: folder.to_owned(), said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Gives `input` to a command of git, and returns what it prints, and its status.
pub(crate) fn git_with(folder: &Path, args: &[&str], input: Vec<u8>) -> Result<(Option<i32>, Vec<u8>)> {
    let mut git = git_command();
    git.arg("-C").arg(folder).args(args);
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = git.spawn().map_err(Error::NoGit)?;
    let mut pipe = child.stdin.take().expect("it is a pipe");
    // It answers while it reads.
    let giving = spawn("git input", move || pipe.write_all(&input));
    let said = child.wait_with_output().map_err(Error::NoGit)?;
    let _ = giving.map_err(Error::NoGit)?.join();
    Ok((said.status.code(), said.stdout))
}

/// A git that was asked for its version and features, and answers while something else is done.
pub struct GitVersion(std::io::Result<Child>);

impl GitVersion {
    /// Starts git.
    pub fn ask() -> GitVersion {
        let mut git = git_command();
        GitVersion(
            git.args(["version", "--build-options"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn(),
        )
    }

    /// Returns how this git can ask what has changed.
    pub fn monitor(self) -> Monitor {
        let said = self.0.and_then(Child::wait_with_output).map(|output| output.stdout).unwrap_or_default();
        monitor_of(&String::from_utf8_lossy(&said))
    }
}

/// Returns how a git can ask that prints `said` as its version and features.
fn monitor_of(said: &str) -> Monitor {
    if said.lines().any(|line| line == "feature: fsmonitor--daemon") {
        return Monitor::Socket;
    }
    let version = said.strip_prefix("git version ").unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.trim().parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= GIT_THAT_ASKS => Monitor::Hook,
        _ => Monitor::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_is_the_best_that_a_git_has() {
        let daemon = "git version 2.55.0\ncpu: x86_64\nfeature: fsmonitor--daemon\n";
        for (said, monitor) in [
            (daemon, Monitor::Socket),
            ("git version 2.43.0\n", Monitor::Hook),
            ("git version 2.43\n", Monitor::Hook),
            ("git version 3.0.0\n", Monitor::Hook),
            ("git version 2.39.5\n", Monitor::None),
            ("git version 1.99.0\n", Monitor::None),
            ("", Monitor::None),
        ] {
            assert_eq!(monitor_of(said), monitor, "{said:?}");
        }
    }
}
