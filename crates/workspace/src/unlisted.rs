//! Leaves out of a status what git does not list.

use std::path::Path;

use weir_repo::open_directory;

use crate::error::{Error, Result};
use crate::git::{git, git_with};
use crate::overlay::is_mounted;
use crate::status::{PathChange, WorkspaceStatus};
use crate::workspaces::{Workspace, Workspaces};

impl Workspaces {
    /// Returns the status of a workspace, without the files that git ignores.
    ///
    /// # Errors
    /// If it is not mounted, something in it cannot be read, or git fails.
    pub fn whole_status(&self, workspace: &Workspace) -> Result<WorkspaceStatus> {
        let folder = &workspace.folder;
        if !is_mounted(folder) {
            return Err(Error::NotMounted);
        }
        let repo = open_directory(&folder.join(".git"))?;
        let mut status = self.status(workspace, &repo)?;
        let new = status.changes.iter().filter(|(_, change)| **change == PathChange::New);
        let new: Vec<&[u8]> = new.map(|(path, _)| path.as_slice()).collect();
        for path in unlisted(folder, &new)? {
            status.changes.remove(&path);
        }
        Ok(status)
    }
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
    let mut unlisted = ignored.ok_or_else(|| Error::Git {
        command: "check-ignore".to_owned(),
        folder: folder.to_owned(),
        said: "it fails".to_owned(),
    })?;
    unlisted.extend(inside.into_iter().map(<[u8]>::to_vec));
    Ok(unlisted)
}

/// Returns those of `paths` that git ignores in the workspace; `None` if it refuses, as for one in a
/// submodule.
fn ignored(folder: &Path, paths: &[&[u8]]) -> Result<Option<Vec<Vec<u8>>>> {
    if paths.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let input = [&paths.join(&b"\0"[..])[..], b"\0"].concat();
    let args = ["-c", "core.fsmonitor=false", "check-ignore", "-z", "--stdin"];
    // 1 says that it ignores none.
    match git_with(folder, &args, input)? {
        (Some(0 | 1), said) => {
            let all = said.split(|byte| *byte == 0).filter(|path| !path.is_empty());
            Ok(Some(all.map(<[u8]>::to_vec).collect()))
        }
        _ => Ok(None),
    }
}
