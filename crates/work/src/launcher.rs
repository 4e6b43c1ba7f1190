//! The processes of this program that show commits and read servers, and the one that holds a namespace for a
//! user who may not mount.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_clone::Attached;
use weir_ground::FileError;
use weir_process::{StartError, Starting};
use weir_workspace::{
    Error as WorkspaceError, Namespace, NamespaceCommand, Processes, Result as WorkspaceResult, StartingView,
    is_shown, may_mount, unmount_dead,
};

use crate::error::{Error, Result};

/// The line that a process of this program says when it has mounted what it is to show, or answers what it is
/// to answer.
pub const MOUNTED: &str = "mounted";
/// The line that weir writes to the standard input of a view's process after it has written the file of the
/// view's times.
const TIMES_ARE_WRITTEN: &str = "times are written";

/// Returns the folder of the attached clone whose git directory is `source`, if it is one.
pub fn attached_to(source: &Path) -> Option<&Path> {
    source.parent().filter(|place| Attached::is_at(place))
}

/// Returns the folder on which the packs of the attached clone in `place` are mounted.
pub(crate) fn packs_of(place: &Path) -> PathBuf {
    Attached::git_dir(place).join("objects/pack")
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
        self.starting.give_up();
    }
}

/// Waits until the process that started this one says that the file of the times is written.
///
/// # Errors
/// If that has ended, or does not need this process any more.
pub(crate) fn wait_for_times() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim_end() == TIMES_ARE_WRITTEN { Ok(()) } else { Err(Error::NotNeeded) }
}

fn view_failed(source: &Path) -> impl Fn(StartError) -> WorkspaceError {
    let name = source.display().to_string();
    move |e| WorkspaceError::Source(format!("cannot show '{name}': {e}"))
}

/// The arguments with which this program does what a [`Launcher`] starts.
#[derive(Clone, Copy, Debug)]
pub struct OwnCommands {
    /// Shows a commit in a folder: takes the repository with `@COMMIT`, the file of the times, if there is
    /// one, and the folder.
    pub show: fn(OsString, Option<&Path>, &Path) -> Vec<OsString>,
    /// Reads the attached clone in a folder from its server.
    pub read: fn(&Path) -> Vec<OsString>,
    /// Answers git's fsmonitor about the workspaces that are recorded in a folder.
    pub answer: fn(&Path) -> Vec<OsString>,
    /// Holds the namespace of the workspaces that are recorded in a folder; without one, only tries whether
    /// there may be a namespace.
    pub hold: fn(Option<&Path>) -> Vec<OsString>,
}

/// Starts processes of this program.
#[derive(Clone, Copy, Debug)]
pub struct Launcher(pub OwnCommands);

impl Launcher {
    fn start(args: &[OsString], log: &Path) -> std::result::Result<(), StartError> {
        Starting::new(args, Stdio::null(), MOUNTED, log)?.wait()
    }

    /// Starts the process that reads the attached clone in the folder `place`, unless there is one, and waits
    /// until its files are there.
    ///
    /// # Errors
    /// If it cannot be started, or has ended.
    pub fn start_remote(&self, place: &Path) -> std::result::Result<(), StartError> {
        let packs = packs_of(place);
        if is_shown(&packs) {
            return Ok(());
        }
        unmount_dead(&packs);
        Self::start(&(self.0.read)(place), &place.join("log"))
    }

    /// Starts the process that holds the namespace of the user whose records lie in `root`.
    fn start_holder(&self, root: &Path) -> WorkspaceResult<()> {
        let failed = |e: StartError| WorkspaceError::NoNamespace(std::io::Error::other(e));
        Self::start(&(self.0.hold)(Some(root)), &root.join("namespace.log")).map_err(failed)
    }

    /// Tries in a process of its own whether the kernel makes a namespace for this user.
    ///
    /// # Errors
    /// If it does not.
    pub fn try_namespace(&self) -> std::result::Result<(), StartError> {
        let program = std::env::current_exe()?;
        let said = Command::new(program).args((self.0.hold)(None)).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&said.stderr).trim().trim_start_matches("error: ").to_owned();
        if said.status.success() { Ok(()) } else { Err(StartError::Ended(text)) }
    }

    /// Runs this program with `args` and `environment` in the namespace of the user whose records lie in
    /// `root`. Returns its status.
    ///
    /// # Errors
    /// If there can be no namespace, or the program cannot be started.
    pub fn run_in_namespace(
        &self,
        root: &Path,
        args: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<i32> {
        let program = std::env::current_exe()?;
        let command = NamespaceCommand { program: &program, args, environment };
        Namespace::new(root).run(&command, &|| self.start_holder(root)).map_err(|e| match e {
            e @ WorkspaceError::NoNamespace(_) => Error::NoNamespace(e),
            e => e.into(),
        })
    }

    /// Takes this process to where the workspaces of the user are mounted whose records lie in `root`.
    ///
    /// # Errors
    /// If there is no namespace, and none can be made.
    pub fn enter_namespace(&self, root: &Path) -> Result<()> {
        Ok(Namespace::new(root).enter(&|| self.start_holder(root))?)
    }
}

impl Processes for Launcher {
    fn show(
        &self,
        source: &Path,
        commit: &str,
        times: Option<&Path>,
        view: &Path,
    ) -> WorkspaceResult<Box<dyn StartingView>> {
        let failed = view_failed(source);
        if let Some(place) = attached_to(source) {
            self.start_remote(place).map_err(&failed)?;
        }
        let mut commit_of = source.as_os_str().to_owned();
        commit_of.push(format!("@{commit}"));
        let args = (self.0.show)(commit_of, times, view);
        let stdin = times.map_or_else(Stdio::null, |_| Stdio::piped());
        let starting = Starting::new(&args, stdin, MOUNTED, &view.with_extension("log"));
        let starting = starting.map_err(|e| failed(e.into()))?;
        Ok(Box::new(OwnView { starting, source: source.to_owned() }))
    }

    fn answer(&self, root: &Path) -> WorkspaceResult<()> {
        let started = Self::start(&(self.0.answer)(root), &root.join("fsmonitor.log"));
        started.map_err(|e| WorkspaceError::Source(e.to_string()))
    }
}

/// Returns whether a process holds a namespace for the workspaces whose records lie in `root`.
pub fn has_namespace(root: &Path) -> bool {
    Namespace::new(root).is_held()
}

/// Returns the folders that are mounted in the namespace of the user whose records lie in `root`.
pub fn mounted_in_namespace(root: &Path) -> HashSet<PathBuf> {
    if may_mount() { HashSet::new() } else { Namespace::new(root).mounted() }
}

/// Returns a path without links in it, even if its last part is not there.
///
/// # Errors
/// If the folder above is not there.
pub fn whole(path: &Path) -> Result<PathBuf> {
    let absolute =
        std::path::absolute(path).map_err(|source| Error::Nowhere { path: path.to_owned(), source })?;
    let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) else { return Ok(absolute) };
    let above = above.canonicalize().map_err(FileError::on("find", above))?;
    Ok(if absolute.exists() { absolute.canonicalize()? } else { above.join(name) })
}
