//! Prints how workspaces differ from HEAD, once or after each change.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use weir_arguments::Global;
use weir_ground::Stop;
use weir_process::stop_on_signal;
use weir_terminal::{output, warn_line};
use weir_workspace::{PathChange, Workspace, WorkspaceStatus, Workspaces};

use crate::error::{Result, SOME_FAILED};
use crate::remedies::Remediable;

/// Prints the status of each workspace of `list`; with an interval again whenever it has changed.
pub(crate) fn status(
    global: &Global,
    workspaces: &Workspaces,
    list: &[Workspace],
    watch: Option<Duration>,
) -> Result<ExitCode> {
    let mut has_failed = false;
    let mut failed = |workspace: &Workspace, e: &weir_workspace::Error| {
        has_failed = true;
        warn_line!("error: {}: {}", workspace.folder.display(), e.with_remedy());
    };
    let Some(interval) = watch else {
        let mut found = Vec::new();
        for workspace in list {
            match workspaces.whole_status(workspace) {
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
            let status = workspaces.whole_status(workspace).inspect_err(|e| failed(workspace, e)).ok();
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
