//! Switching a workspace to another commit.

use std::path::Path;

use weir_pool::open_local;
use weir_repo::open_directory_beside;
use weir_workspace::{
    CommitSwitch, Error as WorkspaceError, HeadMove, SwitchTarget, UserSearch, Workspace, Workspaces,
    bring_up, earlier_head, git, is_mounted, linked_tree_on, moved_refs, name_of_head,
};

use crate::error::{Error, Result};
use crate::launcher::{Launcher, attached_to};
use crate::source::NamedSource;

/// The number of tries of a switch that others were before.
const TRIES_MAX: u32 = 5;

/// Switches workspaces of a user to other commits.
pub struct Switcher<'a> {
    /// Starts the processes that show commits.
    pub launcher: &'a Launcher,
    /// The user's workspaces.
    pub workspaces: &'a Workspaces,
    /// Set to mount a new view also where little differs.
    pub prefers_mount: bool,
    /// Is told why the server of an attached clone was not asked for what is new.
    pub warn: &'a dyn Fn(&WorkspaceError),
}

/// The commit that a workspace was switched to.
pub struct SwitchOutcome {
    /// The commit, and the branch, that HEAD leads to.
    pub target: SwitchTarget,
    /// The number of files that differ from before.
    pub files: usize,
}

/// A failure to switch a workspace.
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

impl Switcher<'_> {
    /// Shows the commit that `revision` names in `workspace`.
    ///
    /// # Errors
    /// If there is no such commit, if something would be lost, or if HEAD moves all the time.
    pub fn switch(&self, workspace: &Workspace, revision: &str) -> Result<SwitchOutcome> {
        for _ in 1..TRIES_MAX {
            match self.try_switch(workspace.clone(), revision) {
                Err(SwitchError::HeadMoved) => {}
                Err(SwitchError::Other(e)) => return Err(e),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(WorkspaceError::HeadMoved(workspace.folder.clone()).into())
    }

    fn try_switch(
        &self,
        mut workspace: Workspace,
        revision: &str,
    ) -> std::result::Result<SwitchOutcome, SwitchError> {
        let Switcher { launcher, workspaces, prefers_mount, warn } = *self;
        let folder = workspace.folder.clone();
        if !is_mounted(&folder) {
            workspaces.mount(&workspace, launcher)?;
        }
        // The search goes on while weir reads refs and trees.
        let users = UserSearch::begin(&folder);
        workspaces.mend_monitor(&workspace, launcher);
        let revision = &earlier_head(&folder, revision)?;
        let (name, path) = (workspace.repository.clone(), workspace.source.clone());
        let source = NamedSource { name, path, revision: None }.open()?;
        let git_dir = folder.join(".git");
        let is_attached = attached_to(&workspace.source).is_some();
        let open = || open_local(&git_dir);
        // The process of a view answers for each object of its own that weir looks at.
        let open_refs = || match is_attached {
            true => open(),
            false => open_directory_beside(&git_dir, &source),
        };
        let failed = Error::in_repo(git_dir.display());
        let mut own = open_refs().map_err(&failed)?;
        if is_attached {
            // What it is attached to stays as it was.
            if let Err(e) = git(&folder, &["fetch", "-q", "origin"]) {
                warn(&e);
            }
            own = open().map_err(&failed)?;
        }
        let moved = if is_attached { Vec::new() } else { moved_refs(&own, &source) };
        if !moved.is_empty() {
            // A later commit's view has the objects of all.
            let whole = open().map_err(&failed)?;
            if let Some((_, missing)) = moved.iter().find(|(_, oid)| !whole.contains(oid)) {
                workspaces.add_objects(&mut workspace, missing, launcher)?;
            }
            bring_up(&folder, &moved)?;
            own = open_refs().map_err(&failed)?;
        }
        let to = SwitchTarget::find(&own, (!is_attached).then_some(&source), revision)?;
        to.branch.as_deref().map_or(Ok(()), |branch| check_is_nowhere_else(&git_dir, branch))?;
        let before = name_of_head(&own);
        let from = own
            .refs()
            .head_oid()
            .ok_or_else(|| Error::Unborn { branch: before.to_string(), revision: revision.to_string() })?;
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
        let mut switched = workspaces.switch(&mut workspace, switch, launcher).map_err(|e| match e {
            WorkspaceError::HeadMoved(_) => SwitchError::HeadMoved,
            e => e.into(),
        })?;
        workspaces.end_switch(&workspace, &mut switched);
        let files = switched.count;
        switched.wait()?;
        Ok(SwitchOutcome { target: to, files })
    }
}

/// Checks that no linked working tree is on a branch.
fn check_is_nowhere_else(git_dir: &Path, branch: &str) -> Result<()> {
    match linked_tree_on(git_dir, branch) {
        Some(place) => Err(Error::CheckedOut { branch: branch.to_owned(), place }),
        None => Ok(()),
    }
}
