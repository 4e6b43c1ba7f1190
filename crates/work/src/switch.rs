//! Switching a workspace to another commit.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use weir_pool::open_local;
use weir_repo::open_directory_beside;
use weir_workspace::{
    CommitSwitch, Error as WorkspaceError, HeadMove, SwitchTarget, UserSearch, Workspace, Workspaces,
    bring_up, earlier_head, git, is_mounted, linked_tree_on, moved_refs, name_of_head,
};

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::named_source::NamedSource;
use crate::output;
use crate::workspace_mounts::{OwnProcesses, attached_to};

/// How often a switch is tried again that others were before.
const TRIES_MAX: u32 = 5;

/// Shows another commit in a workspace.
pub(crate) fn switch(
    global: &Global,
    workspaces: &Workspaces,
    workspace: &Workspace,
    revision: &str,
    prefers_mount: bool,
) -> Result<()> {
    for _ in 1..TRIES_MAX {
        match try_switch(global, workspaces, workspace.clone(), revision, prefers_mount) {
            Err(SwitchError::HeadMoved) => {}
            Err(SwitchError::Other(e)) => return Err(e),
            Ok(()) => return Ok(()),
        }
    }
    Err(WorkspaceError::HeadMoved(workspace.folder.clone()).into())
}

/// Why a workspace was not switched.
enum SwitchError {
    /// Another switch was before.
    HeadMoved,
    Other(Error),
}

impl<E: Into<Error>> From<E> for SwitchError {
    fn from(e: E) -> SwitchError {
        SwitchError::Other(e.into())
    }
}

fn try_switch(
    global: &Global,
    workspaces: &Workspaces,
    mut workspace: Workspace,
    revision: &str,
    prefers_mount: bool,
) -> std::result::Result<(), SwitchError> {
    let folder = workspace.folder.clone();
    if !is_mounted(&folder) {
        workspaces.mount(&workspace, &OwnProcesses)?;
    }
    // The search goes on while weir reads refs and trees.
    let users = UserSearch::begin(&folder);
    workspaces.mend_monitor(&workspace, &OwnProcesses);
    let revision = &earlier_head(&folder, revision)?;
    let source =
        NamedSource { name: workspace.repository.clone(), path: workspace.source.clone(), revision: None };
    let (source, git_dir) = (source.open()?, folder.join(".git"));
    let is_attached = attached_to(&workspace.source).is_some();
    let open = || open_local(&git_dir);
    // The process of a view answers for each object of its own that weir looks at.
    let open_refs = || match is_attached {
        true => open(),
        false => open_directory_beside(&git_dir, &source),
    };
    let failed = |e| Error::Message(format!("{}: {e}", git_dir.display()));
    let mut own = open_refs().map_err(failed)?;
    if is_attached {
        // What it is attached to stays as it was.
        if let Err(e) = git(&folder, &["fetch", "-q", "origin"]) {
            warn_line!("warning: {e}; nothing that is new there is known here");
        }
        own = open().map_err(failed)?;
    }
    let moved = if is_attached { Vec::new() } else { moved_refs(&own, &source) };
    if !moved.is_empty() {
        // A later commit's view has the objects of all.
        let whole = open().map_err(failed)?;
        if let Some((_, missing)) = moved.iter().find(|(_, oid)| !whole.contains(oid)) {
            workspaces.add_objects(&mut workspace, missing, &OwnProcesses)?;
        }
        bring_up(&folder, &moved)?;
        own = open_refs().map_err(failed)?;
    }
    let to = SwitchTarget::find(&own, (!is_attached).then_some(&source), revision)?;
    to.branch.as_deref().map_or(Ok(()), |branch| check_is_nowhere_else(&git_dir, branch))?;
    let before = name_of_head(&own);
    let from = own.refs().head_oid().ok_or_else(|| {
        let words = format!("the branch '{before}' has no commit yet");
        Error::Message(format!("{words}; switch with 'git checkout {revision}'"))
    })?;
    let why = format!("checkout: moving from {before} to {revision}");
    let switch = CommitSwitch {
        own,
        open_own: &|| Ok(open_refs()?),
        open: &|| Ok(open()?),
        source: (!is_attached).then_some(&source),
        from,
        head: HeadMove { folder: folder.clone(), to: to.clone(), why },
        users,
        prefers_mount,
    };
    let mut switched = workspaces.switch(&mut workspace, switch, &OwnProcesses).map_err(|e| match e {
        WorkspaceError::HeadMoved(_) => SwitchError::HeadMoved,
        e => e.into(),
    })?;
    workspaces.end_switch(&workspace, &mut switched);
    let count = switched.count;
    switched.wait()?;
    if global.json {
        let said = json!({ "commit": to.commit.to_string(), "branch": to.branch, "files": count });
        return Ok(output::json(&said)?);
    }
    if !global.quiet {
        let at = to.branch.unwrap_or_else(|| to.commit.to_string()[..12].to_owned());
        writeln!(output::stdout(), "{} is at {at}, {count} files differ", folder.display())?;
    }
    Ok(())
}

/// Checks that no linked working tree is on a branch.
fn check_is_nowhere_else(git_dir: &Path, branch: &str) -> Result<()> {
    match linked_tree_on(git_dir, branch) {
        Some(other) => {
            let words = format!("'{branch}' is checked out at '{other}', a linked working tree");
            Err(Error::Message(words))
        }
        None => Ok(()),
    }
}
