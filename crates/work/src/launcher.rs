//! How commands about workspaces get their mounts: from processes that show commits, and from one that holds
//! a namespace for a user who may not mount.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use weir_clone::Attached;
use weir_workspace::{
    Error as WorkspaceError, Namespace, NamespaceCommand, Processes, Result as WorkspaceResult, StartingView,
    Workspaces, become_alone, is_shown, may_mount, serve_monitor, unmount_dead,
};

use crate::error::{Error, Result};
use crate::named_source::MOUNTED;
use crate::output;

/// The line that weir writes to the standard input of a view's process after it has written the file of the
/// view's times.
const TIMES_ARE_WRITTEN: &str = "times are written";

/// Why a process of this program does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It has ended, and said this.
    #[error("{0}")]
    Ended(String),
}

/// A process of this program that starts in the background.
struct Starting {
    child: Child,
    log: PathBuf,
}

impl Starting {
    /// Starts this program with `args` and `stdin`. What it says besides that it is ready goes to the file
    /// `log`.
    fn new(args: &[OsString], stdin: Stdio, log: &Path) -> std::io::Result<Starting> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).current_dir("/");
        command.stdin(stdin).stdout(Stdio::piped()).stderr(File::create(log)?);
        Ok(Starting { child: command.spawn()?, log: log.to_owned() })
    }

    /// Writes `line` to its standard input, if that is a pipe, and closes that.
    fn tell(&mut self, line: &str) {
        if let Some(mut stdin) = self.child.stdin.take() {
            // If the process has ended, `wait` returns why.
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// If it has ended.
    fn wait(&mut self) -> std::result::Result<(), StartError> {
        let mut line = String::new();
        let stdout = self.child.stdout.take().expect("it is a pipe");
        let _ = BufReader::new(stdout).read_line(&mut line);
        if line.trim_end() == MOUNTED {
            return Ok(());
        }
        let _ = self.child.wait();
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(StartError::Ended(said.trim().trim_start_matches("error: ").to_owned()))
    }
}

/// Starts this program with `args` in the background, and waits until it says that it is ready. What else it
/// says goes to the file `log`.
///
/// # Errors
/// If it cannot be started, or has ended.
fn start(args: &[OsString], log: &Path) -> std::result::Result<(), StartError> {
    Starting::new(args, Stdio::null(), log)?.wait()
}

/// Returns the folder of the attached clone whose git directory is `source`, if it is one.
pub(crate) fn attached_to(source: &Path) -> Option<&Path> {
    source.parent().filter(|place| Attached::is_at(place))
}

/// Returns the folder on which the packs of the attached clone in `place` are mounted.
pub(crate) fn packs_of(place: &Path) -> PathBuf {
    Attached::git_dir(place).join("objects/pack")
}

/// Starts the process that reads the attached clone in the folder `place`, unless there is one, and waits
/// until its files are there.
///
/// # Errors
/// If it cannot be started, or has ended.
pub(crate) fn start_remote(place: &Path) -> std::result::Result<(), StartError> {
    let packs = packs_of(place);
    if is_shown(&packs) {
        return Ok(());
    }
    unmount_dead(&packs);
    let args: [OsString; 3] = ["workspace".into(), "remote".into(), place.into()];
    start(&args, &place.join("log"))
}

/// A process of this program that is to show a commit.
struct OwnView {
    starting: Starting,
    /// The repository of the commit.
    source: PathBuf,
}

impl StartingView for OwnView {
    fn times_are_written(&mut self) {
        self.starting.tell(TIMES_ARE_WRITTEN);
    }

    fn wait(mut self: Box<Self>) -> WorkspaceResult<()> {
        self.times_are_written();
        self.starting.wait().map_err(view_failed(&self.source))
    }
}

impl Drop for OwnView {
    fn drop(&mut self) {
        // The process ends when its standard input does. Only then can its files be removed.
        if self.starting.child.stdin.take().is_some() {
            let _ = self.starting.child.wait();
        }
    }
}

/// Waits until whoever started this process says that the file of the times is written.
///
/// # Errors
/// If that has ended, or does not need this process any more.
pub(crate) fn wait_for_times() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    match line.trim_end() == TIMES_ARE_WRITTEN {
        true => Ok(()),
        false => Err(Error::Message("whoever started this view does not need it".to_owned())),
    }
}

fn view_failed(source: &Path) -> impl Fn(StartError) -> WorkspaceError {
    let name = source.display().to_string();
    move |e| WorkspaceError::Source(format!("cannot show '{name}': {e}"))
}

/// Starts processes of this program.
pub(crate) struct OwnProcesses;

impl Processes for OwnProcesses {
    fn show(
        &self,
        source: &Path,
        commit: &str,
        times: Option<&Path>,
        view: &Path,
    ) -> WorkspaceResult<Box<dyn StartingView>> {
        let failed = view_failed(source);
        if let Some(place) = attached_to(source) {
            start_remote(place).map_err(&failed)?;
        }
        let mut commit_of = source.as_os_str().to_owned();
        commit_of.push(format!("@{commit}"));
        let mut args = vec!["mount".into(), "--lower".into(), commit_of, view.into()];
        if let Some(times) = times {
            args.extend(["--times".into(), times.into()]);
        }
        let stdin = times.map_or_else(Stdio::null, |_| Stdio::piped());
        let starting = Starting::new(&args, stdin, &view.with_extension("log"));
        let starting = starting.map_err(|e| failed(e.into()))?;
        Ok(Box::new(OwnView { starting, source: source.to_owned() }))
    }

    fn answer(&self, root: &Path) -> WorkspaceResult<()> {
        let args = ["workspace".into(), "monitor".into(), root.into()];
        start(&args, &root.join("fsmonitor.log")).map_err(|e| WorkspaceError::Source(e.to_string()))
    }
}

/// Starts the process that holds the namespace of the user whose records lie in `root`.
fn start_holder(root: &Path) -> WorkspaceResult<()> {
    let args = ["workspace".into(), "hold".into(), root.into()];
    let failed = |e: StartError| WorkspaceError::NoNamespace(std::io::Error::other(e));
    start(&args, &root.join("namespace.log")).map_err(failed)
}

/// Answers git's fsmonitor about the workspaces that are recorded in `root`, until there are none.
pub(crate) fn answer_monitor(root: &Path) -> Result<()> {
    close_inherited();
    let ready = || {
        // It outlives the terminal.
        let _ = nix::unistd::setsid();
        writeln!(output::stdout(), "{MOUNTED}")
    };
    serve_monitor(root, ready).map_err(Error::of)
}

/// Closes what this process has open but the standard streams: whoever started it may wait for the end of a
/// file or lock.
pub(crate) fn close_inherited() {
    // SAFETY: nothing in this process owns a descriptor yet but the standard streams.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Holds the namespace of the user whose records lie in `root`, until there are no workspaces any more.
pub(crate) fn hold(root: &Path) -> Result<()> {
    let all = root.to_owned();
    let is_needed = move || Workspaces::new(all.clone()).are_there();
    let ready = || {
        // It outlives the terminal.
        let _ = nix::unistd::setsid();
        let _ = writeln!(output::stdout(), "{MOUNTED}");
    };
    Namespace::new(root).hold(ready, is_needed).map_err(|e| match e {
        WorkspaceError::NoNamespace(e) => Error::Io(e),
        e => Error::Message(e.to_string()),
    })
}

/// Tries in a process of its own whether the kernel makes a namespace for this user.
///
/// # Errors
/// If it does not.
pub(crate) fn try_namespace() -> std::result::Result<(), StartError> {
    let said = std::env::current_exe()
        .and_then(|program| Command::new(program).args(["workspace", "hold"]).stdin(Stdio::null()).output());
    let said = said?;
    let text = String::from_utf8_lossy(&said.stderr).trim().trim_start_matches("error: ").to_owned();
    if said.status.success() { Ok(()) } else { Err(StartError::Ended(text)) }
}

/// Makes a namespace and leaves it, to find whether the kernel allows it. [`try_namespace`] starts a process
/// that calls this.
pub(crate) fn check_namespace() -> Result<()> {
    become_alone().map_err(Error::Io)
}

/// Runs this program with `args` in the namespace of the user whose records lie in `root`. Returns its
/// status.
pub(crate) fn run_in_namespace(root: &Path, args: &[OsString]) -> Result<ExitCode> {
    let program = std::env::current_exe()?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let command = NamespaceCommand { program: &program, args, environment: &environment };
    match Namespace::new(root).run(&command, &|| start_holder(root)) {
        Ok(status) => Ok(ExitCode::from(u8::try_from(status).unwrap_or(1))),
        Err(e @ WorkspaceError::NoNamespace(_)) => {
            Err(Error::Message(format!("{e}; 'weir workspace doctor' says what there is instead")))
        }
        Err(e) => Err(Error::Message(e.to_string())),
    }
}

/// Takes this process to where the workspaces of the user are mounted whose records lie in `root`.
pub(crate) fn enter_namespace(root: &Path) -> Result<()> {
    let entered = Namespace::new(root).enter(&|| start_holder(root));
    entered.map_err(Error::of)
}

/// Returns whether a process holds a namespace for the workspaces whose records lie in `root`.
pub(crate) fn has_namespace(root: &Path) -> bool {
    Namespace::new(root).is_held()
}

/// Returns the folders that are mounted in the namespace of the user whose records lie in `root`.
pub(crate) fn mounted_in_namespace(root: &Path) -> HashSet<PathBuf> {
    if may_mount() { HashSet::new() } else { Namespace::new(root).mounted() }
}

/// Returns a path without links in it, even if its last part is not there.
pub(crate) fn whole(path: &Path) -> Result<PathBuf> {
    let gone = |e| Error::Message(format!("cannot find '{}' from the current folder: {e}", path.display()));
    let absolute = std::path::absolute(path).map_err(gone)?;
    let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) else { return Ok(absolute) };
    let above = above.canonicalize().map_err(weir_ground::FileError::on("find", above))?;
    Ok(if absolute.exists() { absolute.canonicalize()? } else { above.join(name) })
}
