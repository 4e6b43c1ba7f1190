//! The commands of this program that others of its processes run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_terminal::output;
use weir_work::{Launcher, MOUNTED, OwnCommands};

use crate::error::Result;

/// Starts processes of this program.
pub(crate) const LAUNCHER: Launcher = Launcher(OwnCommands { show, read, answer, hold });

fn show(commit: OsString, times: Option<&Path>, view: &Path) -> Vec<OsString> {
    let mut args = vec!["mount".into(), "--lower".into(), commit, view.into()];
    if let Some(times) = times {
        args.extend(["--times".into(), times.into()]);
    }
    args
}

fn read(place: &Path) -> Vec<OsString> {
    workspace_command("remote", Some(place))
}

fn answer(root: &Path) -> Vec<OsString> {
    workspace_command("monitor", Some(root))
}

fn hold(root: Option<&Path>) -> Vec<OsString> {
    workspace_command("hold", root)
}

fn workspace_command(verb: &str, folder: Option<&Path>) -> Vec<OsString> {
    ["workspace".into(), verb.into()].into_iter().chain(folder.map(OsString::from)).collect()
}

/// Closes what this process has open but the standard streams: whoever started it may wait for the end of a
/// file or lock.
pub(crate) fn close_inherited() {
    // SAFETY: these processes call it before they open anything: nothing owns another descriptor yet.
    unsafe { weir_process::close_inherited() };
}

/// Tells the process that started this one that it is ready.
pub(crate) fn say_mounted() -> io::Result<()> {
    writeln!(output::stdout(), "{MOUNTED}")
}

/// Runs this program with `args` in the namespace of the user whose workspaces are recorded in `root`.
pub(crate) fn run_in_namespace(root: &Path, args: &[OsString]) -> Result<ExitCode> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let status = LAUNCHER.run_in_namespace(root, args, &environment)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}
