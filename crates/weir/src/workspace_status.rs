//! Prints how workspaces differ from HEAD, once or after each change.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use serde_json::json;
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_pool::open_local;
use weir_workspace::{PathChange, Workspace, WorkspaceStatus, Workspaces, is_mounted};

use crate::cli::Global;
use crate::environment::git_command;
use crate::error::{Error, Result, SOME_FAILED};
use crate::output;
use crate::signals::stop_on_signal;
use crate::workspace_mounts::{git, of_workspace};

/// Prints the status of each workspace of `list`; with an interval again whenever it has changed.
pub(crate) fn status(
    global: &Global,
    workspaces: &Workspaces,
    list: &[Workspace],
    watch: Option<Duration>,
) -> Result<ExitCode> {
    let mut has_failed = false;
    let mut failed = |workspace: &Workspace, e: &Error| {
        has_failed = true;
        warn_line!("error: {}: {e}", workspace.folder.display());
    };
    let Some(interval) = watch else {
        let mut found = Vec::new();
        for workspace in list {
            match status_of(workspaces, workspace) {
                Ok(status) if global.json => found.push(status_json(workspace, &status)),
                Ok(status) => print(workspace, &status)?,
                Err(e) => failed(workspace, &e),
            }
        }
        if global.json {
            output::json_array(found.iter())?;
        }
        return Ok(if has_failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS });
    };
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let mut told: HashMap<&Path, (u64, Option<WorkspaceStatus>)> = HashMap::new();
    loop {
        for workspace in list {
            let folder = workspace.folder.as_path();
            // One that is not mounted now may be later.
            let print_of = workspaces.fingerprint(workspace).unwrap_or(0);
            if told.get(folder).is_some_and(|(known, _)| *known == print_of) {
                continue;
            }
            let status = status_of(workspaces, workspace).inspect_err(|e| failed(workspace, e)).ok();
            if let Some(status) = &status
                && told.get(folder).is_none_or(|(_, known)| known.as_ref() != Some(status))
            {
                match global.json {
                    true => output::json_line(&status_json(workspace, status))?,
                    false => print(workspace, status)?,
                }
            }
            told.insert(folder, (print_of, status));
        }
        if !stop.sleep(interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Returns the status of a workspace, without what git ignores.
pub(crate) fn status_of(workspaces: &Workspaces, workspace: &Workspace) -> Result<WorkspaceStatus> {
    let folder = &workspace.folder;
    if !is_mounted(folder) {
        return Err(Error::Message("it is not mounted; 'weir workspace mount' mounts it".to_owned()));
    }
    let repo = open_local(&folder.join(".git")).map_err(Error::of)?;
    let mut status = workspaces.status(workspace, &repo).map_err(of_workspace)?;
    let new = status.changes.iter().filter(|(_, change)| **change == PathChange::New);
    let new: Vec<&[u8]> = new.map(|(path, _)| path.as_slice()).collect();
    for path in unlisted(folder, &new)? {
        status.changes.remove(&path);
    }
    Ok(status)
}

/// Returns those of `paths` that git does not list in the workspace: it ignores them, or they are in a
/// submodule that is staged.
fn unlisted(folder: &Path, paths: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    if let Some(ignored) = ignored(folder, paths)? {
        return Ok(ignored);
    }
    let staged = git(folder, &["-c", "core.fsmonitor=false", "ls-files", "--stage", "-z"])?;
    let submodules: Vec<&[u8]> = staged
        .split('\0')
        .filter(|line| line.starts_with("160000 "))
        .filter_map(|line| Some(line.split_once('\t')?.1.as_bytes()))
        .collect();
    let is_in =
        |path: &[u8], folder: &&[u8]| path.strip_prefix(*folder).is_some_and(|rest| rest.starts_with(b"/"));
    let (inside, outside): (Vec<&[u8]>, Vec<&[u8]>) =
        paths.iter().partition(|path| submodules.iter().any(|submodule| is_in(path, submodule)));
    let ignored = ignored(folder, &outside)?;
    let mut unlisted =
        ignored.ok_or_else(|| Error::Message(format!("git check-ignore fails in '{}'", folder.display())))?;
    unlisted.extend(inside.into_iter().map(<[u8]>::to_vec));
    Ok(unlisted)
}

/// Returns those of `paths` that git ignores in the workspace; `None` if it refuses, as for one in a
/// submodule.
fn ignored(folder: &Path, paths: &[&[u8]]) -> Result<Option<Vec<Vec<u8>>>> {
    if paths.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let mut git = git_command();
    git.arg("-C").arg(folder).args(["-c", "core.fsmonitor=false", "check-ignore", "-z", "--stdin"]);
    let failed = |e: std::io::Error| Error::Message(format!("cannot start git: {e}"));
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = git.spawn().map_err(failed)?;
    let (mut input, given) = (child.stdin.take().expect("it is a pipe"), paths.join(&b"\0"[..]));
    // It answers while it reads.
    let giving = spawn("check-ignore", move || input.write_all(&[&given[..], b"\0"].concat()));
    let said = child.wait_with_output()?;
    let _ = giving?.join();
    // 1 says that it ignores none.
    match said.status.code() {
        Some(0 | 1) => {
            let all = said.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
            Ok(Some(all.map(<[u8]>::to_vec).collect()))
        }
        _ => Ok(None),
    }
}

fn status_json(workspace: &Workspace, status: &WorkspaceStatus) -> serde_json::Value {
    let changes = status.changes.iter();
    json!({
        "folder": workspace.folder,
        "branch": status.branch,
        "commit": status.commit.to_string(),
        "changes": changes
            .map(|(path, change)| json!({ "path": String::from_utf8_lossy(path), "change": change }))
            .collect::<Vec<_>>(),
    })
}

fn print(workspace: &Workspace, status: &WorkspaceStatus) -> Result<()> {
    let mut out = output::stdout();
    let commit = &status.commit.to_string()[..12];
    let at = status.branch.as_ref().map_or(commit.to_owned(), |branch| format!("{branch} at {commit}"));
    let count = match status.changes.len() {
        0 => "clean".to_owned(),
        1 => "1 path differs".to_owned(),
        count => format!("{count} paths differ"),
    };
    writeln!(out, "{}: {at}, {count}", workspace.folder.display())?;
    for (path, change) in &status.changes {
        let code = match change {
            PathChange::Modified => " M",
            PathChange::Deleted => " D",
            PathChange::New => "??",
        };
        writeln!(out, "{code} {}", output::printable(path))?;
    }
    Ok(())
}
