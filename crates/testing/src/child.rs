//! Children of tests. They see nothing of the environment that the tests were started in: not the
//! repository of a hook (`GIT_DIR`), not proxies, not the settings or the language of a user.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::folder::base;

/// The variables that a child inherits: they ask for coverage and backtraces.
const INHERITED: &[&str] = &["RUST_BACKTRACE", "LLVM_PROFILE_FILE", "LD_LIBRARY_PATH"];
/// Folders of servers, which are not in the `PATH` of every user.
const SERVER_FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the `PATH` of children: that of the test, and the folders of servers.
pub(crate) fn search_path() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let folders = std::env::split_paths(&own).chain(SERVER_FOLDERS.iter().map(Into::into));
    std::env::join_paths(folders).expect("folders that were joined before")
}

/// Returns a command that starts `program` without the environment of the test, and whose process is killed
/// when the thread that started it ends: a test that fails leaves nothing behind.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    command_ended_by(Signal::SIGKILL, program)
}

/// Returns the same for a process that receives `signal` when the thread that started it ends (prctl(2),
/// `PR_SET_PDEATHSIG`).
///
/// setpriv(1) sets that. Code of ours between fork and exec would: but a fork copies the memory tables of the
/// test, and holds duplicates of all its files for so long that locks and programs that are just written stay
/// busy.
pub fn command_ended_by(signal: Signal, program: impl AsRef<OsStr>) -> Command {
    let mut command = short_command("setpriv");
    command.args(["--pdeathsig", signal.as_str().trim_start_matches("SIG"), "--"]).arg(program);
    command
}

/// Returns a command without the environment of the test, for a process that ends by itself.
pub fn short_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", search_path()).env("LC_ALL", "C.UTF-8").env("TMPDIR", base());
    command.envs(INHERITED.iter().filter_map(|key| Some((key, std::env::var_os(key)?))));
    // The home of nobody: what a child writes there fails, unless a test sets another.
    command.env("HOME", "/nonexistent");
    command
}

/// Runs `command`, which must succeed. Returns its standard output.
pub fn output_of(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Copies a program, in a process of its own: a child that another thread starts meanwhile would hold the
/// copy open for writing, and the system starts no such program (`ETXTBSY`).
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    output_of(short_command("cp").arg(from.as_ref()).arg(to));
}

/// Returns a command of git in `folder`, with nobody's configuration and an author of its own.
pub fn git(folder: &Path, args: &[&str]) -> Command {
    let mut git = short_command("git");
    git.args(args).current_dir(folder).env("HOME", folder);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "A U Thor").env(format!("GIT_{who}_EMAIL"), "author@example.com");
        git.env(format!("GIT_{who}_DATE"), "1700000000 +0100");
    }
    git
}

/// Returns whether the git of this machine has at least this version.
pub fn is_git_since(major: u32, minor: u32) -> bool {
    let version = String::from_utf8(run_git(Path::new("/"), &["version"], b"")).expect("git prints text");
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Runs git in `folder` with `input` on standard input. It must succeed. Returns its standard output.
pub fn run_git(folder: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut git = git(folder, args);
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().expect("git is installed");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // A git that fails says why; that it did not read everything is no news.
        scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().expect("git runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?} in {}: {told}", folder.display());
        output.stdout
    })
}

/// Sends `signal` to a process, which must exist.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().expect("a process id"));
    kill(pid, signal).unwrap_or_else(|e| panic!("cannot send {signal} to process {pid}: {e}"));
}

/// A server with workers, in a group of their own, which are asked to end (SIGTERM) when this value is
/// dropped.
pub struct Terminated(Child);

impl Terminated {
    /// Starts `command`, one of [`command_ended_by`] SIGTERM.
    pub fn start(command: &mut Command) -> Terminated {
        Terminated(
            command.process_group(0).spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}")),
        )
    }
}

impl Drop for Terminated {
    fn drop(&mut self) {
        // A child that has ended keeps its number until it is waited for.
        let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
